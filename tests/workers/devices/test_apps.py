"""Which app a name means."""

from __future__ import annotations

import pytest

from distrl.workers.devices.apps import components, find

PACKAGES = (
    "com.android.camera2",
    "com.android.chrome",
    "com.android.settings",
    "com.android.vending",
    "com.google.android.apps.docs",
    "com.google.android.deskclock",
    "com.google.android.gm",
    "com.simplemobiletools.calendar.pro",
    "com.simplemobiletools.gallery.pro",
    "net.gsantner.markor",
    "org.videolan.vlc",
)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("com.android.settings", "com.android.settings"),
        (" COM.Android.Settings ", "com.android.settings"),
        ("Settings", "com.android.settings"),
        ("the settings app", "com.android.settings"),
        ("Google Chrome", "com.android.chrome"),
        ("Clock", "com.google.android.deskclock"),
        ("Gmail", "com.google.android.gm"),
        ("Play Store", "com.android.vending"),
        ("Markor", "net.gsantner.markor"),
        ("calendar", "com.simplemobiletools.calendar.pro"),
        ("Simple Calendar Pro", "com.simplemobiletools.calendar.pro"),
    ],
)
def test_a_name_means_an_app(name: str, package: str) -> None:
    assert find(name, PACKAGES) == package
    assert find(name, reversed(PACKAGES)) == package


@pytest.mark.parametrize(
    "name", ["", " ", "?!", "app", "Simple", "simplemobiletools", "com", "Pro", "Telegram", "com.android"]
)
def test_a_name_that_means_none_or_several_opens_none(name: str) -> None:
    assert find(name, PACKAGES) is None


def test_an_app_that_calls_itself_by_a_common_word_is_found_all_the_same() -> None:
    assert find("Google", ("com.google.android.googlequicksearchbox",)) is not None
    assert find("app", ("org.app",)) == "org.app"


def test_the_activities_are_read_from_both_forms_of_the_answer() -> None:
    brief = "1 activities found:\n  Activity #0:\n    priority=0 match=0x108000\n    com.a/.Main\n"
    assert components(brief) == components("com.a/.Main\ncom.a/.Second\n") == {"com.a": "com.a/.Main"}
    assert components("No activities found\n") == {}
