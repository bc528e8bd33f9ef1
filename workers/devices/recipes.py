"""Recipes bring a phone without snapshots back to a start state, step by step, and check the result.

    wake · unlock ─► force-stop ─► pm clear ─► settings, time zone ─► home ─► verify

A recipe resets what it lists and nothing else: accounts, downloads and the data of other apps stay. It has no
PIN; a phone that is used here has no lock but the swipe. Whether the steps had their effect is checked once,
at the end: that the phone is awake, unlocked, at home, configured as wanted and not full.
"""

from __future__ import annotations

import re
import shlex
import time
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from distrl.workers.devices.adb import AdbClient, ShellResult, require_input
from distrl.workers.devices.apps import ASK_S, ask, home_package, in_front
from distrl.workers.devices.errors import NotReady, ResetFailed

CLEAR_S = 60.0
"""Deadline of `pm clear`, which deletes the app's files."""
POLL_S = 0.5
UNSET = "null"
"""What `settings get` prints for a setting without a value, and what a recipe says to delete one."""
_MOVES = ("window_animation", "transition_animation", "animator_duration")
STILL = {f"global/{name}_scale": "0" for name in _MOVES}
"""The settings that switch animations off."""
_LOCKED = re.compile(r"(?:KeyguardShowing|mDreamingLockscreen|mShowingLockscreen)=(true|false)")
_LOCK_COMMAND = (
    "dumpsys activity activities | grep -E 'KeyguardShowing='; "
    "dumpsys window | grep -E 'mDreamingLockscreen=|mShowingLockscreen='"
)

_CLOSE_DIALOGS = "am broadcast -a android.intent.action.CLOSE_SYSTEM_DIALOGS >/dev/null 2>&1 &"
"""Closes the dialogs of apps that crashed or do not respond, which the home key leaves; not awaited, because
such an app may hold it up."""


def _known_zone(name: str) -> str:
    known = zoneinfo.available_timezones()
    if known and name not in known:
        raise ValueError(f"{name!r} is not a time zone; use a name such as Europe/Berlin")
    return name


Package = Annotated[str, Field(pattern=r"^[A-Za-z][\w.]*$")]
SettingName = Annotated[str, Field(pattern=r"^(system|secure|global)/[\w.\-]+$")]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
Wrong = tuple[str, str]
"""What is wrong with a phone, and what to do about it."""


class Recipe(BaseModel):
    """What a start state is.

    Attributes:
        force_stop: Packages that are stopped.
        clear: Packages whose data is deleted, as after a fresh installation.
        settings: Values by "system/…", "secure/…" or "global/…"; "null" deletes the setting.
        keep_awake: Whether the screen stays on while the phone is charged.
        animations_off: Whether the three animation scales are set to 0.
        time_zone: As "Europe/Berlin".
        min_free_mib: Space that must be free on /data.
        home: Whether episodes start at the home screen.
        ready_s: How long the phone may take until it is as it must be.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    force_stop: tuple[Package, ...] = ()
    clear: tuple[Package, ...] = ()
    settings: dict[SettingName, str] = {}
    keep_awake: bool = True
    animations_off: bool = True
    time_zone: TimeZone | None = None
    min_free_mib: int = Field(512, ge=0)
    home: bool = True
    ready_s: float = Field(15.0, gt=0.0, le=300.0)

    @property
    def wanted_settings(self) -> dict[str, str]:
        """All settings that the recipe wants, its switches included."""
        awake = {"global/stay_on_while_plugged_in": "7"} if self.keep_awake else {}
        return {**(STILL if self.animations_off else {}), **awake, **self.settings}


class Cook:
    """Brings one phone to the start state of a recipe."""

    def __init__(
        self,
        shell: AdbClient,
        recipe: Recipe,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._shell, self._recipe = shell, recipe
        self._clock, self._sleep = clock, sleep

    def apply(self) -> None:
        """All steps, in their order. Raises ResetFailed if one did not do what it should."""
        self._wake()  # a sleeping phone is slow at all that follows
        for package in self._recipe.force_stop:
            self._stop(package)
        for package in self._recipe.clear:
            self._clear(package)
        self.season()

    def season(self) -> None:
        """Only what a snapshot may lack: the screen on, the settings, home. Raises as `apply`."""
        self._wake()
        if commands := [*self._put_commands()]:
            self._shell.shell("; ".join(commands), ASK_S, reads=True)  # twice has the effect of once
        if self._recipe.home:
            self._shell.shell(f"cmd statusbar collapse; {_CLOSE_DIALOGS}", ASK_S, reads=True)
            self._press("KEYCODE_HOME")

    def _wake(self) -> None:
        """Switches the screen on and dismisses a lock screen without a secret."""
        self._press("KEYCODE_WAKEUP")
        self._shell.shell("wm dismiss-keyguard", ASK_S, reads=True)

    def _press(self, key: str) -> None:
        result = self._shell.shell(f"input keyevent {key}", ASK_S)
        require_input(result, self._shell.serial)
        if result.status != 0:
            raise self._failed(f"the key {key} cannot be pressed", "See the output of the device.", result)

    def _stop(self, package: str) -> None:
        result = self._shell.shell(f"am force-stop {package}", ASK_S, reads=True)
        if result.status != 0:
            raise self._failed(f"{package} cannot be stopped", "Look at the device.", result)

    def _clear(self, package: str) -> None:
        result = self._shell.shell(f"pm clear {package}", CLEAR_S)
        if result.status != 0 or "Success" not in result.text:
            remedy = f"Check that {package} is installed (`pm list packages`) and may be cleared by adb."
            raise self._failed(f"the data of {package} cannot be cleared", remedy, result)

    def _failed(self, complaint: str, remedy: str, result: ShellResult) -> ResetFailed:
        return ResetFailed(f"{complaint}.", remedy, serial=self._shell.serial, evidence=result.said)

    def _put_commands(self) -> Iterator[str]:
        recipe = self._recipe
        for name, value in recipe.wanted_settings.items():
            key = name.replace("/", " ")
            is_unset = value == UNSET
            yield f"settings delete {key}" if is_unset else f"settings put {key} {shlex.quote(value)}"
        if recipe.time_zone is not None:
            zone = shlex.quote(recipe.time_zone)
            yield f"cmd alarm set-timezone {zone} || service call alarm 3 s16 {zone}"  # before Android 12

    # ---- the result ----

    def verify(self) -> None:
        """Waits until every check passes, for `recipe.ready_s` in all; then raises NotReady."""
        deadline = self._clock() + self._recipe.ready_s
        checks = (
            self._is_awake,
            self._is_unlocked,
            self._has_settings,
            self._has_time,
            self._has_room,
            self._is_at_home,
        )
        for check in checks:
            while (wrong := check()) is not None:
                if self._clock() >= deadline:
                    raise NotReady(wrong[0], wrong[1], serial=self._shell.serial)
                self._sleep(min(POLL_S, max(0.0, deadline - self._clock())))

    def _is_awake(self) -> Wrong | None:
        if "mWakefulness=Awake" in ask(self._shell, "dumpsys power | grep -E 'mWakefulness='"):
            return None
        return "its screen is off.", "Charge it, and let it stay awake while charging (developer options)."

    def _is_unlocked(self) -> Wrong | None:
        states = _LOCKED.findall(ask(self._shell, _LOCK_COMMAND))
        if not states:
            return "it does not report whether it is locked.", "Its Android version is not supported here."
        if "true" not in states:
            return None
        return "it is locked.", "Remove the PIN or pattern: a phone for training has the swipe lock or none."

    def _has_settings(self) -> Wrong | None:
        wanted = self._recipe.wanted_settings
        if not wanted:
            return None
        gets = "; ".join(f"settings get {name.replace('/', ' ')}" for name in wanted)
        lines = self._shell.shell(gets, ASK_S, reads=True).text.splitlines()
        if len(lines) != len(wanted):
            return f"its settings cannot be read: {' '.join(lines)[:200]!r}.", "Restart it."
        for (name, value), found in zip(wanted.items(), lines, strict=True):
            if not _is_value(found.strip(), value):
                return (
                    f"the setting {name} is {found.strip()!r}, not {value!r}.",
                    "Allow adb to change settings in the developer options (some makers add a switch for "
                    "that), or leave the setting out; something on the phone may set it back.",
                )
        return None

    def _has_time(self) -> Wrong | None:
        wanted = self._recipe.time_zone
        if wanted is None or (found := ask(self._shell, "getprop persist.sys.timezone")) == wanted:
            return None
        return (
            f"the time zone is {found or 'unknown'}, not {wanted}.",
            "Choose it in the phone's settings, and switch the network's time zone off.",
        )

    def _has_room(self) -> Wrong | None:
        match = re.search(r"(\d+)\s+\d+%", ask(self._shell, "df -k /data").rpartition("\n")[2])
        free_mib = int(match[1]) // 1024 if match else 0
        if free_mib >= self._recipe.min_free_mib:
            return None
        return (
            f"it has {free_mib} MiB free on /data, less than {self._recipe.min_free_mib}.",
            "Delete something on it, or lower `min_free_mib` in the recipe.",
        )

    def _is_at_home(self) -> Wrong | None:
        if not self._recipe.home:
            return None
        front, home = in_front(self._shell), home_package(self._shell)
        # The settings app stands in until a phone that boots can read its storage.
        if front and front[0].package == home and not front[0].activity.endswith(".FallbackHome"):
            return None
        shown = str(front[0]) if front else "nothing"
        return f"{shown} is in front, not the home screen.", "Close what covers it; add it to `force_stop`."


def _is_value(found: str, wanted: str) -> bool:
    """Whether a setting has the value that is wanted: the same text, or the same number."""
    try:
        return found == wanted or float(found) == float(wanted)
    except ValueError:
        return False
