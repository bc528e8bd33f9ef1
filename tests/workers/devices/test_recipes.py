"""Reset recipes and readiness on a phone that is known by its shell: what they do, check, and complain of."""

from __future__ import annotations

from typing import Any

import pytest
from shell_phone import HOME, ShellPhone

from distrl.core.errors import ConfigError
from distrl.core.user_errors import read_fields
from distrl.workers.devices.apps import Component, home_package, in_front
from distrl.workers.devices.errors import NotReady, OutputInvalid, ResetFailed, ServiceRejected
from distrl.workers.devices.recipes import STILL, Cook, Recipe


def ready(phone: ShellPhone, **fields: Any) -> list[float]:
    """Verifies; returns the pauses that it took."""
    time, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time[0] += seconds

    Cook(phone, Recipe.model_validate(fields), lambda: time[0], sleep).verify()
    return pauses


def test_a_recipe_brings_a_sleeping_phone_to_its_start_state() -> None:
    phone = ShellPhone(
        front="com.shop/.Main",
        dialog="Application Not Responding: com.shop",
        settings={"system/font_scale": "1.3", "secure/x": "1"},
    )
    fields = {
        "force_stop": ["com.shop", "com.mail"],
        "clear": ["com.shop"],
        "settings": {"system/font_scale": "1.0", "secure/x": "null", "secure/name": "it's $(here)"},
        "time_zone": "Europe/Berlin",
    }
    Cook(phone, Recipe.model_validate(fields)).apply()
    assert (phone.awake, phone.locked, phone.front, phone.dialog) == (True, False, HOME, "")
    assert (phone.stopped, phone.cleared) == (["com.shop", "com.mail"], ["com.shop"])
    assert phone.settings == {
        **STILL,
        "global/stay_on_while_plugged_in": "7",
        "system/font_scale": "1.0",
        "secure/name": "it's $(here)",
    }
    assert phone.properties["persist.sys.timezone"] == "Europe/Berlin"
    assert ready(phone, **fields) == []


@pytest.mark.parametrize("key", ["KEYCODE_WAKEUP", "KEYCODE_HOME"])
def test_a_key_that_is_refused_is_the_error(key: str) -> None:
    """Not what follows from it: that the phone sleeps, or that an app is in front."""
    phone = ShellPhone(refuse={f"input keyevent {key}"})
    with pytest.raises(ResetFailed, match=f"the key {key} cannot be pressed"):
        Cook(phone, Recipe()).apply()
    phone.refusal = b"SecurityException: Injecting input events requires ... the INJECT_EVENTS permission."
    with pytest.raises(ServiceRejected, match=r"lets? adb send .*USB debugging \(Security settings\)"):
        Cook(phone, Recipe()).apply()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clear": ["com.missing"]}, r"data of com\.missing cannot be cleared\. Check that .* installed"),
        ({"force_stop": ["com.a"]}, r"com\.a cannot be stopped"),
    ],
)
def test_a_step_that_does_not_work_says_which(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ResetFailed, match=message) as caught:
        Cook(ShellPhone(refuse={"am force-stop com.a"}), Recipe.model_validate(fields)).apply()
    assert (caught.value.serial, caught.value.fault) == ("PHONE1", "device")


def test_after_a_snapshot_only_settings_and_home_are_seen_to() -> None:
    phone = ShellPhone(front="com.shop/.Main")
    Cook(phone, Recipe.model_validate({"clear": ["com.shop"], "force_stop": ["com.shop"]})).season()
    assert (phone.cleared, phone.stopped, phone.front) == ([], [], HOME)
    assert STILL.items() <= phone.settings.items()


@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ({"awake": False}, {}, "its screen is off"),
        ({"locked": True}, {}, r"it is locked\. Remove the PIN"),
        (
            {"settings": STILL},
            {},
            "the setting global/stay_on_while_plugged_in is 'null', not '7'.* Allow adb",
        ),
        ({"free_kib": 100_000}, {}, "97 MiB free on /data, less than 512"),
        ({"front": "com.mail/.Inbox"}, {}, r"com\.mail/com\.mail\.Inbox is in front, not the home screen"),
        ({}, {"time_zone": "Asia/Tokyo"}, "the time zone is UTC"),
        ({"lock_form": "silent"}, {}, "does not report whether it is locked"),
    ],
)
def test_a_phone_that_is_not_ready_says_what_is_wrong(
    change: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    state: dict[str, Any] = {
        "awake": True,
        "locked": False,
        "settings": {**STILL, "global/stay_on_while_plugged_in": "7"},
    }
    ready(ShellPhone(**state))
    with pytest.raises(NotReady, match=f"^PHONE1: .*{message}"):
        ready(ShellPhone(**{**state, **change}), ready_s=2.0, **fields)


def test_what_comes_late_is_waited_for_and_an_episode_may_start_elsewhere() -> None:
    class Slow(ShellPhone):
        looks = 0

        def _dumpsys_power(self) -> str:
            self.looks += 1
            self.awake = self.looks > 3
            return super()._dumpsys_power()

    phone = Slow(locked=False, front="com.shop/.Main")
    Cook(phone, Recipe.model_validate({"home": False})).apply()
    assert phone.front == "com.shop/.Main"
    assert ready(phone, ready_s=5.0, home=False) == [0.5, 0.5, 0.5]


def test_the_stand_in_of_a_phone_that_boots_is_not_its_home_screen() -> None:
    class Booting(ShellPhone):
        looks = 0

        def _dumpsys_activity(self, what: str) -> str:
            self.looks += 1
            self.front = self.home = "com.android.settings/.FallbackHome" if self.looks < 5 else HOME
            return super()._dumpsys_activity(what)

    phone = Booting(awake=True, locked=False)
    cook = Cook(phone, Recipe(keep_awake=False, animations_off=False), sleep=lambda seconds: None)
    for _ in range(2):
        cook.verify()
        assert phone.front == HOME


def test_what_is_in_front() -> None:
    class Old(ShellPhone):
        def _dumpsys_activity(self, what: str) -> str:
            return (
                "    mResumedActivity: ActivityRecord{a1b2 u0 com.a/.Main t3}\n"
                "  ResumedActivity: ActivityRecord{a1b2 u0 com.a/.Main t3}\n"
                "    mResumedActivity: ActivityRecord{c3 u0 com.b/com.other.Part$1 t4}"
            )

        def _cmd_package(self, *words: str) -> str:
            return "No activity found"

    assert in_front(Old()) == [Component("com.a", "com.a.Main"), Component("com.b", "com.other.Part$1")]
    with pytest.raises(OutputInvalid, match="names no home screen"):
        home_package(Old())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clear": ["com.a; reboot"]}, r"recipe\.clear\.0` is"),
        ({"settings": {"global/a b": "1"}}, r"recipe\.settings"),
        ({"settings": {"wifi": "1"}}, r"recipe\.settings"),
        ({"time_zone": "Foo/Bar"}, r"recipe\.time_zone.*'Foo/Bar' is not a time zone; use .* Europe/Berlin"),
        ({"clean": []}, r"recipe\.clean`: "),
    ],
)
def test_a_wrong_recipe_names_its_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_fields(Recipe, fields, "recipe")
