"""Recipes bring a phone without snapshots back to a start state, step by step, and check the result.

    wake · unlock ─► force-stop ─► pm clear ─► language ─► time zone ─► hook ─► settings ─► home

A recipe resets what it lists and nothing else: accounts, downloads and the data of other apps stay. It has no
PIN; a phone that is used here has no lock but the swipe. `Readiness` checks that a phone is awake, unlocked,
at home, configured as wanted and not full.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from distrl.core.importing import import_object
from distrl.core.types import Task
from distrl.core.user_errors import read_fields
from distrl.workers.devices.adb import AdbClient, ShellResult, require_input
from distrl.workers.devices.apps import ASK_S, ask, home_package, in_front
from distrl.workers.devices.errors import DeviceError, NotReady, ResetFailed

CLEAR_S = 60.0
"""Deadline of `pm clear`, which deletes the app's files."""

Package = Annotated[str, Field(pattern=r"^[A-Za-z][\w.]*$")]
SettingName = Annotated[str, Field(pattern=r"^(system|secure|global)/[\w.\-]+$")]
Locale = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
TimeZone = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*$")]
Hook = Callable[[AdbClient, Task | None], None]


class Recipe(BaseModel):
    """What a start state is.

    Attributes:
        force_stop: Packages that are stopped.
        clear: Packages whose data is deleted, as after a fresh installation.
        settings: Values by "system/…", "secure/…" or "global/…"; "null" deletes the setting.
        keep_awake: Whether the screen stays on while the phone is charged.
        animations_off: Whether the three animation scales are set to 0.
        locale: The system's language, as "de-DE".
        time_zone: As "Europe/Berlin".
        max_clock_skew_s: How far the phone's clock may be from this machine's; None for any.
        min_free_mib: Space that must be free on /data.
        home: Whether episodes start at the home screen.
        hook: "pkg.mod:Name" of a function that is called with the device's shell and the task; settings and
            home come after it.
        ready_s: How long the phone may take until it is as it must be.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    force_stop: tuple[Package, ...] = ()
    clear: tuple[Package, ...] = ()
    settings: dict[SettingName, str] = {}
    keep_awake: bool = True
    animations_off: bool = True
    locale: Locale | None = None
    time_zone: TimeZone | None = None
    max_clock_skew_s: float | None = Field(None, gt=0.0)
    min_free_mib: int = Field(512, ge=0)
    home: bool = True
    hook: str | None = None
    ready_s: float = Field(15.0, gt=0.0, le=300.0)

    @classmethod
    def of(cls, fields: Mapping[str, object] | Recipe | None) -> Recipe:
        """The recipe in a configuration; the defaults for None.

        Raises:
            ConfigError: A field is unknown or wrong.
        """
        return read_fields(cls, fields, "recipe")

    @property
    def put_settings(self) -> dict[str, str]:
        """The settings that are put one by one."""
        awake = {"global/stay_on_while_plugged_in": "7"} if self.keep_awake else {}
        return {**awake, **self.settings}

    @property
    def wanted_settings(self) -> dict[str, str]:
        """All settings that the recipe wants, its switches included."""
        still = {f"global/{name}": "0" for name in ANIMATION_SCALES} if self.animations_off else {}
        return {**still, **self.put_settings}


class Cook:
    """Brings one phone to the start state of a recipe.

    Args:
        shell: The phone's shell.
        recipe: What to do.

    Raises:
        ConfigError: The recipe's hook is not there.
    """

    def __init__(self, shell: AdbClient, recipe: Recipe) -> None:
        self._shell = shell
        self.recipe = recipe
        self._hook: Hook | None = import_object(recipe.hook) if recipe.hook else None

    def season(self) -> None:
        """Only what a snapshot may lack: the screen on, the settings, home. Raises as `apply`."""
        wake(self._shell)
        if self.recipe.animations_off:
            turn_off_animations(self._shell)
        for name, value in self.recipe.put_settings.items():
            put_setting(self._shell, name, value)
        if self.recipe.home:
            go_home(self._shell)

    def apply(self, task: Task | None = None) -> None:
        """All steps, in their order.

        Raises:
            ResetFailed: A step did not do what it should; it says which and how to help.
            DeviceError: The phone did not answer.
        """
        recipe = self.recipe
        wake(self._shell)  # a sleeping phone is slow at all that follows
        for package in recipe.force_stop:
            self._stop(package)
        for package in recipe.clear:
            self._clear(package)
        if recipe.locale is not None:
            set_locale(self._shell, recipe.locale)
        if recipe.time_zone is not None:
            set_time_zone(self._shell, recipe.time_zone)
        if self._hook is not None:
            self._run_hook(self._hook, task)
        self.season()

    def _stop(self, package: str) -> None:
        result = self._shell.shell(f"am force-stop {package}", ASK_S, reads=True)
        if result.status != 0:
            raise failed(self._shell, f"{package} cannot be stopped", "Look at the device.", result)

    def _clear(self, package: str) -> None:
        result = self._shell.shell(f"pm clear {package}", CLEAR_S)
        if result.status != 0 or "Success" not in result.text:
            remedy = f"Check that {package} is installed (`pm list packages`) and may be cleared by adb."
            raise failed(self._shell, f"the data of {package} cannot be cleared", remedy, result)

    def _run_hook(self, hook: Hook, task: Task | None) -> None:
        try:
            hook(self._shell, task)
        except DeviceError:
            raise
        except Exception as error:
            raise ResetFailed(
                f"the hook {self.recipe.hook} failed: {type(error).__name__}: {error}.",
                "Correct the hook.",
                serial=self._shell.serial,
            ) from error


def wake(shell: AdbClient) -> None:
    """Switches the screen on and dismisses a lock screen without a secret. Awake already, nothing happens."""
    _press(shell, "KEYCODE_WAKEUP")
    shell.shell("wm dismiss-keyguard", ASK_S, reads=True)


def go_home(shell: AdbClient) -> None:
    """Closes the notification shade and shows the home screen."""
    shell.shell("cmd statusbar collapse", ASK_S, reads=True)
    _press(shell, "KEYCODE_HOME")


def _press(shell: AdbClient, key: str) -> None:
    result = shell.shell(f"input keyevent {key}", ASK_S)
    require_input(result, shell.serial)
    if result.status != 0:
        raise failed(shell, f"the key {key} cannot be pressed", "See the output of the device.", result)


UNSET = "null"
"""What `settings get` prints for a setting without a value, and what a recipe says to delete one."""


def read_setting(shell: AdbClient, name: str) -> str:
    """The value of "namespace/name", `UNSET` if it has none."""
    namespace, _, key = name.partition("/")
    return ask(shell, f"settings get {namespace} {key}")


def put_setting(shell: AdbClient, name: str, value: str) -> None:
    """Sets "namespace/name" and reads it back. Raises ResetFailed if its value differs then."""
    namespace, _, key = name.partition("/")
    if value == UNSET:
        command = f"settings delete {namespace} {key}"
    else:
        command = f"settings put {namespace} {key} {shlex.quote(value)}"
    result = shell.shell(command, ASK_S, reads=True)
    found = read_setting(shell, name)
    if not is_value(found, value):
        remedy = "Allow adb to change settings in the developer options, or leave the setting out."
        raise failed(shell, f"the setting {name} is {found!r}, not {value!r}", remedy, result)


def is_value(found: str, wanted: str) -> bool:
    """Whether a setting has the value that is wanted: the same text, or the same number."""
    try:
        return found == wanted or float(found) == float(wanted)
    except ValueError:
        return False


def read_locale(shell: AdbClient) -> str:
    """The language in use, as "de-DE"; "" if the phone does not report it."""
    match = re.search(r"\b([a-z]{2,3})-r([A-Z]{2}|[0-9]{3})\b", ask(shell, "am get-config"))
    if match is not None:
        return f"{match[1]}-{match[2]}"
    names = ("settings get system system_locales", "getprop persist.sys.locale", "getprop ro.product.locale")
    for value in (ask(shell, name) for name in names):
        if value not in ("", UNSET):
            return value.split(",")[0]
    return ""


def set_locale(shell: AdbClient, wanted: str) -> None:
    """Makes `wanted` the language; raises ResetFailed if it is not. Most phones apply it at the next boot."""
    if read_locale(shell) == wanted:
        return
    result = shell.shell(f"settings put system system_locales {wanted}", ASK_S, reads=True)
    found = read_locale(shell)
    if found != wanted:
        remedy = "Choose it in the phone's settings once, or restart the phone; without root adb cannot."
        raise failed(shell, f"the language is {found or 'unknown'}, not {wanted}", remedy, result)


def read_time_zone(shell: AdbClient) -> str:
    """The time zone, as "Europe/Berlin"."""
    return ask(shell, "getprop persist.sys.timezone")


def set_time_zone(shell: AdbClient, wanted: str) -> None:
    """Makes `wanted` the time zone; raises ResetFailed if it is not. Older Androids need the service call."""
    result: ShellResult | None = None
    for command in (f"cmd alarm set-timezone {wanted}", f"service call alarm 3 s16 {wanted}"):
        if read_time_zone(shell) == wanted:
            return
        result = shell.shell(command, ASK_S, reads=True)
    found = read_time_zone(shell)
    if found != wanted:
        remedy = "Choose it in the phone's settings, and switch the network's time zone off."
        raise failed(shell, f"the time zone is {found or 'unknown'}, not {wanted}", remedy, result)


def failed(shell: AdbClient, complaint: str, remedy: str, result: ShellResult | None) -> ResetFailed:
    """The error for a step that did not work, with what the command said as evidence."""
    return ResetFailed(f"{complaint}.", remedy, serial=shell.serial, evidence=result.said if result else "")


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
        clock, sleep: Monotonic seconds, and a pause.
    """

    def __init__(
        self,
        shell: AdbClient,
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
            return "it does not report whether it is locked.", "Its Android version is not supported here."
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


ANIMATION_SCALES = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")


def turn_off_animations(shell: AdbClient) -> None:
    """Sets the three animation scales to 0 and reads them back. Raises ResetFailed if one is not 0 then."""
    puts = [f"settings put global {name} 0" for name in ANIMATION_SCALES]
    gets = [f"settings get global {name}" for name in ANIMATION_SCALES]
    # Putting 0 twice is putting it once, so the whole line may be repeated.
    result = shell.shell("; ".join([*puts, *gets]), ASK_S, reads=True)
    values = result.text.split()[-len(ANIMATION_SCALES) :]
    on = [name for name, value in zip(ANIMATION_SCALES, values, strict=False) if not is_value(value, "0")]
    if on or len(values) != len(ANIMATION_SCALES):
        complaint = f"its animations cannot be switched off: {', '.join(on) or 'no answer'}"
        remedy = "Allow adb to change settings in the developer options (some makers add a switch for that)."
        raise failed(shell, complaint, remedy, result)
