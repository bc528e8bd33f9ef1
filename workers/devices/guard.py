"""A guard for phones with a number, an account and a card: no calls, no SMS, no purchases, only allowed apps.

After each action it looks at what is in front. Something forbidden is left at once (a call is hung up first):

    BACK ─► HOME ─► force-stop and HOME ─► GuardTripped: the episode is faulted

and the step is marked with what it was. The guard looks after the fact, once per action: it cannot stop what
a single tap sends without showing a screen of its own. That is why whole apps that call or send are
forbidden, not only the screens on which they do it; and why a phone for training has no SIM and no card.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field

from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.apps import ASK_S, Component, ask, home_package, in_front
from distrl.workers.devices.errors import GuardTripped

CALL, TEXT, PURCHASE, BLOCKED, NOT_ALLOWED = "call", "sms", "purchase", "blocked", "not-allowed"
"""Why something was left; a step's mark is such a word and the activity."""

LEAVE_S, POLL_S = 2.0, 0.2
"""How long an app may take to go away after each attempt, and how often that is looked at."""


class GuardPolicy(BaseModel):
    """What is forbidden. Patterns are globs over "package/activity", without regard to case.

    Attributes:
        allow: The only packages that may be in front; the home screen and the system's own are always
            allowed. Empty: every package that nothing else forbids.
        calls, sms, purchases: Whether `CALLS`, `SMS` and `PURCHASES` are forbidden.
        block: More patterns that are.
        except_: Patterns that the rules for calls, SMS and purchases do not hold for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    allow: tuple[str, ...] = ()
    calls: bool = True
    sms: bool = True
    purchases: bool = True
    block: tuple[str, ...] = ()
    except_: tuple[str, ...] = Field((), alias="except")

    def reason(self, component: Component, home: str) -> str:
        """Why `component` may not be in front, "" if it may; `home` is the home screen's package."""
        if _matches(component, self.block):
            return BLOCKED
        rules = ((CALL, self.calls, CALLS), (TEXT, self.sms, SMS), (PURCHASE, self.purchases, PURCHASES))
        for name, is_on, patterns in rules:
            if is_on and _matches(component, patterns) and not _matches(component, self.except_):
                return name
        is_open = not self.allow or component.package in (*self.allow, home)
        return "" if is_open or _matches(component, SYSTEM) else NOT_ALLOWED


class Guard:
    """Applies a policy to one phone. Used by one thread."""

    def __init__(
        self,
        shell: AdbClient,
        policy: GuardPolicy,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._shell = shell
        self._policy = policy
        self._clock, self._sleep = clock, sleep
        self._home = ""

    def check(self) -> str:
        """Looks at what is in front, and leaves it if it is forbidden, or raises GuardTripped.

        Returns the mark for the step, as "call: com.android.dialer/com.android.dialer.Main", "" for none.
        """
        found = self._forbidden()
        if found is None:
            return ""
        reason, component = found
        home = "input keyevent KEYCODE_HOME"
        for command in ("input keyevent KEYCODE_BACK", home, f"am force-stop {component.package}; {home}"):
            # Without a call this key would switch the screen off.
            if reason == CALL and self._is_calling():
                self._shell.shell("input keyevent KEYCODE_ENDCALL", ASK_S)
            self._shell.shell(command, ASK_S)
            if self._is_left() and not (reason == CALL and self._is_calling()):
                return f"{reason}: {component}"
        raise GuardTripped(
            f"{component} is in front, which the guard forbids ({reason}), and it does not go away.",
            "Close it by hand, or remove the app; or allow it by `except` in the guard's options.",
            serial=self._shell.serial,
        )

    def _forbidden(self) -> tuple[str, Component] | None:
        self._home = self._home or home_package(self._shell)
        front = in_front(self._shell)
        found = ((self._policy.reason(component, self._home), component) for component in front)
        return next((pair for pair in found if pair[0]), None)

    def _is_calling(self) -> bool:
        text = ask(self._shell, "dumpsys telephony.registry | grep -E 'mCallState='")
        return re.search(r"mCallState=[1-9]", text) is not None

    def _is_left(self) -> bool:
        deadline = self._clock() + LEAVE_S
        while self._forbidden() is not None:
            if self._clock() >= deadline:
                return False
            self._sleep(POLL_S)
        return True


def _matches(component: Component, patterns: tuple[str, ...]) -> bool:
    name = str(component).lower()
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


CALLS: tuple[str, ...] = (
    "com.android.dialer/*",
    "com.google.android.dialer/*",
    "com.samsung.android.dialer/*",
    "com.oneplus.dialer/*",
    "com.simplemobiletools.dialer/*",
    "org.fossify.phone/*",
    "com.android.phone/*",
    "com.android.server.telecom/*",
    "*incallui*/*",
    "*/*incallactivity*",
    "*/*emergencydialer*",
    "com.android.contacts/*dialtacts*",
)
"""Dialers, the call screen, the telephony and telecom services' own activities."""

SMS: tuple[str, ...] = (
    "com.google.android.apps.messaging/*",
    "com.android.messaging/*",
    "com.android.mms/*",
    "com.samsung.android.messaging/*",
    "com.simplemobiletools.smsmessenger/*",
    "org.fossify.messages/*",
    "com.oneplus.mms/*",
)
"""Messengers that send SMS: from the compose screen, sending is one tap on a number that may cost."""

PURCHASES: tuple[str, ...] = (
    "com.android.vending/*billing*",
    "com.android.vending/*acquire*",
    "com.android.vending/*purchase*",
    "com.android.vending/*payment*",
    "com.google.android.gms/*wallet*",
    "com.google.android.gms/*payment*",
    "com.google.android.apps.walletnfcrel/*",
    "com.samsung.android.spay/*",
    "com.sec.android.app.samsungapps/*payment*",
    "com.sec.android.app.samsungapps/*billing*",
    "com.amazon.venezia/*purchase*",
    "com.amazon.venezia/*iap*",
    "com.huawei.appmarket/*pay*",
)
"""Payment sheets of the app stores, and wallets; the stores themselves may be looked at."""

SYSTEM: tuple[str, ...] = (
    "android/*",
    "com.android.systemui/*",
    "com.android.intentresolver/*",
    "com.android.permissioncontroller/*",
    "com.google.android.permissioncontroller/*",
    "com.android.documentsui/*",
    "com.google.android.documentsui/*",
)
"""What the system shows on behalf of an app: allowed beside every allow-list."""
