"""Bringing a phone without snapshots back to a start state, step by step; `readiness` checks the result.

wake · unlock ─► force-stop ─► pm clear ─► language ─► time zone ─► hook ─► settings ─► home

A recipe resets what it lists and nothing else: accounts, downloads and the data of other apps stay. It never
knows a PIN; a phone that is used here has no lock but the swipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from distrl.core.fields import read_fields
from distrl.core.importing import import_object
from distrl.core.types import Task
from distrl.workers.devices import animations
from distrl.workers.devices.errors import DeviceError, ResetFailed
from distrl.workers.devices.front import ASK_S, Shell, require_input
from distrl.workers.devices.preferences import failed, put_setting, set_locale, set_time_zone

CLEAR_S = 60.0
"""Deadline of `pm clear`, which deletes the app's files."""

Package = Annotated[str, Field(pattern=r"^[A-Za-z][\w.]*$")]
SettingName = Annotated[str, Field(pattern=r"^(system|secure|global)/[\w.\-]+$")]
Locale = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
TimeZone = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*$")]
Hook = Callable[[Shell, Task | None], None]


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
        still = {f"global/{name}": "0" for name in animations.SCALES} if self.animations_off else {}
        return {**still, **self.put_settings}


class Cook:
    """Brings one phone to the start state of a recipe.

    Args:
        shell: The phone's shell.
        recipe: What to do.

    Raises:
        ConfigError: The recipe's hook is not there.
    """

    def __init__(self, shell: Shell, recipe: Recipe) -> None:
        self._shell = shell
        self.recipe = recipe
        self._hook: Hook | None = import_object(recipe.hook) if recipe.hook else None

    def season(self) -> None:
        """Only what a snapshot may lack: the screen on, the settings, home. Raises as `apply`."""
        wake(self._shell)
        if self.recipe.animations_off:
            animations.turn_off(self._shell)
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
        if result.status != 0 or b"Success" not in result.out:
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


def wake(shell: Shell) -> None:
    """Switches the screen on and dismisses a lock screen without a secret. Awake already, nothing happens."""
    _press(shell, "KEYCODE_WAKEUP")
    shell.shell("wm dismiss-keyguard", ASK_S, reads=True)


def go_home(shell: Shell) -> None:
    """Closes the notification shade and shows the home screen."""
    shell.shell("cmd statusbar collapse", ASK_S, reads=True)
    _press(shell, "KEYCODE_HOME")


def _press(shell: Shell, key: str) -> None:
    result = shell.shell(f"input keyevent {key}", ASK_S)
    require_input(result, shell.serial)
    if result.status != 0:
        raise failed(shell, f"the key {key} cannot be pressed", "See what the device says.", result)
