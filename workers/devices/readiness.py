"""Whether a phone is as it must be before an episode: awake, unlocked, at home, set as wanted, not full."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from distrl.workers.devices.errors import NotReady
from distrl.workers.devices.front import Shell, ask, home_package, in_front
from distrl.workers.devices.preferences import is_value, read_locale, read_setting, read_time_zone
from distrl.workers.devices.recipes import Recipe

POLL_S = 0.5
_LOCKED = re.compile(r"(?:KeyguardShowing|mDreamingLockscreen|mShowingLockscreen)=(true|false)")
_LOCK_COMMAND = (
    "dumpsys activity activities | grep -E 'KeyguardShowing='; "
    "dumpsys window | grep -E 'mDreamingLockscreen=|mShowingLockscreen='"
)
Check = Callable[[], tuple[str, str] | None]
"""Looks at one thing; what is wrong and what to do about it, or None."""


class Readiness:
    """The checks of a recipe on one phone.

    Args:
        shell: The phone's shell.
        recipe: What it must be like.
        now: Unix time, to compare the phone's clock with.
        clock, sleep: Seconds that never go back, and a pause of so many.
    """

    def __init__(
        self,
        shell: Shell,
        recipe: Recipe,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._shell = shell
        self._recipe = recipe
        self._now, self._clock, self._sleep = now, clock, sleep
        self._home: str | None = None

    def verify(self) -> None:
        """Waits until every check passes, for `recipe.ready_s` in all.

        Raises:
            NotReady: One still does not then; the error says which, and what to do.
            DeviceError: The phone did not answer.
        """
        deadline = self._clock() + self._recipe.ready_s
        for check in self._checks():
            while (wrong := check()) is not None:
                if self._clock() >= deadline:
                    raise NotReady(wrong[0], wrong[1], serial=self._shell.serial)
                self._sleep(min(POLL_S, max(0.0, deadline - self._clock())))

    def _checks(self) -> Iterator[Check]:
        yield self._is_awake
        yield self._is_unlocked
        yield from (self._setting(name, value) for name, value in self._recipe.wanted_settings.items())
        yield self._has_language_and_time
        yield self._has_room
        if self._recipe.home:
            yield self._is_at_home

    def _is_awake(self) -> tuple[str, str] | None:
        text = ask(self._shell, "dumpsys power | grep -E 'mWakefulness='")
        if "mWakefulness=Awake" in text:
            return None
        return "its screen is off.", "Charge it, and let it stay awake while charging (developer options)."

    def _is_unlocked(self) -> tuple[str, str] | None:
        states = _LOCKED.findall(ask(self._shell, _LOCK_COMMAND))
        if not states:
            return "it does not say whether it is locked.", "Its Android version is not supported here."
        if "true" not in states:
            return None
        return "it is locked.", "Remove the PIN or pattern: a phone for training has the swipe lock or none."

    def _setting(self, name: str, wanted: str) -> Check:
        def check() -> tuple[str, str] | None:
            found = read_setting(self._shell, name)
            if is_value(found, wanted):
                return None
            return f"the setting {name} is {found!r}, not {wanted!r}.", "Something on it sets it back."

        return check

    def _has_language_and_time(self) -> tuple[str, str] | None:
        recipe = self._recipe
        if recipe.locale is not None and (found := read_locale(self._shell)) != recipe.locale:
            return f"the language is {found}, not {recipe.locale}.", "Choose it in the phone's settings."
        if recipe.time_zone is not None and (found := read_time_zone(self._shell)) != recipe.time_zone:
            return f"the time zone is {found}, not {recipe.time_zone}.", "Choose it in the phone's settings."
        if recipe.max_clock_skew_s is None:
            return None
        text = ask(self._shell, "date +%s")
        skew_s = abs(float(text) - self._now()) if text.isdigit() else float("inf")
        if skew_s <= recipe.max_clock_skew_s:
            return None
        return f"its clock is {skew_s:.0f} s off.", "Set `global/auto_time: '1'` in the recipe's settings."

    def _has_room(self) -> tuple[str, str] | None:
        match = re.search(r"(\d+)\s+\d+%", ask(self._shell, "df -k /data").rpartition("\n")[2])
        free_mib = int(match[1]) // 1024 if match else -1
        if free_mib >= self._recipe.min_free_mib:
            return None
        return (
            f"it has {max(0, free_mib)} MiB free on /data, less than {self._recipe.min_free_mib}.",
            "Delete something on it, or lower `min_free_mib` in the recipe.",
        )

    def _is_at_home(self) -> tuple[str, str] | None:
        if self._home is None:
            self._home = home_package(self._shell)
        front = in_front(self._shell)
        if front and front[0].package == self._home:
            return None
        shown = str(front[0]) if front else "nothing"
        return f"{shown} is in front, not the home screen.", "Close what covers it; add it to `force_stop`."
