"""Starting, stopping and describing apps: am, monkey, pm, dumpsys, uiautomator, screencap."""

from __future__ import annotations

import io
import re
import struct
from typing import Any

import pytest
from PIL import Image, ImageChops

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.shell.commands.display import DISPLAY_ID
from distrl.simulator.apps import BUILT_IN

FOCUS = re.compile(r"mCurrentFocus=Window{.*\s+(?P<package>[^\s]+)/(?P<activity>[^\s]+)\}")
RESUMED = re.compile(
    r"mResumedActivity: ActivityRecord\{.*?\s+(?P<package>[^\s]+)/(?P<activity>[^\s]+)\s.*?\}"
)
TOP = re.compile(r"ACTIVITY (?P<package>[^\s]+)/(?P<activity>[^/\s]+) \w+ pid=(?P<pid>\d+)")
STACK = re.compile(
    r"^\ *taskId=(?P<id>[0-9]*): (?P<base>[^\s]*) .*visible=true.*topActivity=ComponentInfo{(?P<top>[^\s]*)}$"
)
VIEWPORT = re.compile(
    r"DisplayViewport{.*?valid=true, .*?orientation=(\d+), .*?deviceWidth=(\d+), deviceHeight=(\d+)"
)


def test_there_is_a_package_for_every_app(sh: Any) -> None:
    names = re.findall(r"^package:(\S+)$", sh("pm list packages").out, re.M)
    assert {f"org.simphone.{name}" for name in BUILT_IN} < set(names)
    assert sh("pm list packages -3").out == "package:com.android.adbkeyboard\n"
    listed = sh("cmd package list packages -f -s notes").out
    assert listed == "package:/product/app/Notes/Notes.apk=org.simphone.notes\n"
    assert sh("pm path org.simphone.notes").out == "package:/product/app/Notes/Notes.apk\n"
    missing = sh("pm path org.nothing")
    assert (missing.out, missing.status) == ("", 1)


@pytest.mark.parametrize("app", sorted(BUILT_IN))
def test_every_dump_names_the_app_that_was_started(phone: AndroidSystem, sh: Any, app: str) -> None:
    """With the very patterns that adbutils, android-env and others search for."""
    package = f"org.simphone.{app}"
    result = sh(f"am start -W -n {package}/.MainActivity")
    assert result.out.startswith(f"Starting: Intent {{ cmp={package}/.MainActivity }}\nStatus: ok\n")
    assert f"Activity: {package}/.MainActivity\n" in result.out
    assert phone.device.foreground() == app
    focused = FOCUS.search(sh("dumpsys window displays").out)
    assert focused is not None
    assert focused["package"] == package
    assert focused["activity"] == f"{package}.MainActivity"
    assert FOCUS.search(sh("dumpsys window").out)
    assert not FOCUS.search(sh("dumpsys window windows").out)  # as of Android 10
    resumed = RESUMED.search(sh("dumpsys activity activities").out)
    assert resumed is not None
    assert (resumed["package"], resumed["activity"]) == (package, ".MainActivity")
    assert sh("dumpsys activity activities | grep topResumedActivity=").out.count(package) == 1
    on_top = {found["package"]: found["pid"] for found in TOP.finditer(sh("dumpsys activity top").out)}
    assert on_top[package] == sh(f"pidof {package}").out.strip()
    stack = [found for line in sh("am stack list").out.splitlines() if (found := STACK.match(line))]
    assert [found["top"] for found in stack] == [f"{package}/{package}.MainActivity"]
    assert sh("cmd simphone foreground").out == f"{app}\n"


def test_views_are_nested_as_on_the_screen(sh: Any) -> None:
    """android-env follows a path of patterns through the indentation."""
    sh("am start -n org.simphone.settings/.MainActivity")
    lines = sh("dumpsys activity org.simphone.settings org.simphone.settings").out.splitlines()
    depth = {line.strip(): len(line) - len(line.lstrip()) for line in lines}
    assert depth["View Hierarchy:"] == 4
    path = [
        "DecorView@",
        r"android.widget.FrameLayout\{.*id/settings\}",
        r".*RecyclerView\{.*id/settings_root_list\}",
    ]
    assert [depth[next(key for key in depth if re.match(part, key))] for part in path] == [6, 8, 10]


def test_older_androids_name_the_focus_among_the_windows() -> None:
    from distrl.simulator.adb.shell.commands.dumpsys_window import window

    assert FOCUS.search(window(AndroidSystem(width=540, height=1200, api_level=28), ["windows"]))


def test_sizes_and_orientation_in_the_forms_that_tools_parse(sh: Any) -> None:
    assert sh("wm size").out == "Physical size: 540x1200\n"
    assert sh("wm density | cut -d ' ' -f 3").out == "240\n"
    viewport = VIEWPORT.search(sh("dumpsys display").out)
    assert viewport is not None
    assert viewport.groups() == ("0", "540", "1200")
    dump = sh("dumpsys input").out
    assert "logicalFrame=[0, 0, 540, 1200]" in dump
    assert re.search(r"^\s+(SurfaceOrientation|InputDeviceOrientation):\s+0$", dump, re.M)
    assert sh("dumpsys window | grep mCurrentRotation | head -1").out.strip().endswith("ROTATION_0")
    assert re.search(r"Display (\d+) ", sh("dumpsys SurfaceFlinger --display-id").out)
    refused = sh("wm size 720x1280")
    assert refused.status == 255
    assert "fixed at 540x1200" in refused.err
    assert sh("wm size reset; wm size 540x1200; wm density reset").status == 0


def test_power_and_keyguard_lines(phone: AndroidSystem, sh: Any) -> None:
    assert "mHoldingDisplaySuspendBlocker=true" in sh("dumpsys power").out
    assert "mWakefulness=Awake" in sh("dumpsys power").out
    assert "mKeyguardShowing=false" in sh("dumpsys activity activities").out
    phone.power(False)
    assert "mHoldingDisplaySuspendBlocker=false" in sh("dumpsys power").out
    assert "mCurrentFocus=null" in sh("dumpsys window").out
    assert "mDreamingLockscreen=false" in sh("dumpsys window").out


@pytest.mark.parametrize(
    ("intent", "app", "page"),
    [
        ("-a android.settings.SETTINGS", "settings", ["root"]),
        ("-a android.settings.WIFI_SETTINGS", "settings", ["section", "network"]),
        ("-a android.settings.BLUETOOTH_SETTINGS", "settings", ["section", "devices"]),
        (
            "-a android.intent.action.VIEW -d http://find.example/?q=red%20shoes",
            "browser",
            ["results", "red shoes"],
        ),
        ("-a android.intent.action.VIEW -d https://market.example/", "browser", ["shop"]),
        ("-a android.intent.action.VIEW -d https://example.org", "browser", ["root"]),
        ("-a android.intent.action.SENDTO -d sms:123", "messages", ["root"]),
        ("-a android.intent.action.MAIN -c android.intent.category.APP_CALCULATOR", "calculator", ["root"]),
        ("-a android.intent.action.VIEW -d content://contacts/people/", "contacts", ["root"]),
        ("org.simphone.clock", "clock", ["root"]),
        ("-S -n org.simphone.weather/org.simphone.weather.MainActivity", "weather", ["root"]),
    ],
)
def test_intents_open_what_they_name(
    phone: AndroidSystem, sh: Any, intent: str, app: str, page: list[str]
) -> None:
    result = sh(f"am start {intent}")
    assert (result.status, result.err) == (0, "")
    assert phone.device.foreground() == app
    assert phone.state["stacks"][app][-1] == page
    phone.screenshot()


def test_intents_that_nobody_takes(phone: AndroidSystem, sh: Any) -> None:
    gone = sh("am start -n com.android.chrome/com.google.android.apps.chrome.Main")
    assert gone.status == 1
    assert (
        "Error type 3\nError: Activity class {com.android.chrome/com.google.android.apps.chrome.Main}"
        in gone.err
    )
    call = sh("am start -a android.intent.action.CALL -d tel:5551234")
    assert (
        "Error: Activity not started, unable to resolve Intent { act=android.intent.action.CALL" in call.err
    )
    assert "5551234" not in call.out + call.err
    assert "Bad component name: nonsense" in sh("am start -n nonsense").err
    assert sh("am instrument -w x/y").status == 1
    assert sh("am nonsense").status == 255
    assert phone.device.foreground() == "launcher"


def test_stopping_and_clearing(phone: AndroidSystem, sh: Any) -> None:
    sh("am start -a android.settings.WIFI_SETTINGS; settings put global wifi_on 0")
    assert sh("am force-stop org.simphone.settings").status == 0
    assert phone.device.foreground() == "launcher"
    assert phone.state["stacks"]["settings"] == [["root"]]
    assert sh("pidof org.simphone.settings").status == 1
    assert phone.state["apps"]["settings"]["wifi"] is False
    assert sh("pm clear org.simphone.settings").out == "Success\n"
    assert phone.state["apps"]["settings"]["wifi"] is True
    assert sh("pm clear org.nothing").out == "Failed\n"
    assert sh("am force-stop org.nothing").status == 0


def test_unsaved_text_is_gone_after_a_stop(phone: AndroidSystem, sh: Any) -> None:
    sh("am start -n org.simphone.browser/.MainActivity")
    phone.state["fields"].update({"browser.query": "a", "shop.query": "b", "notes.text": "c"})
    sh("am force-stop org.simphone.browser")
    assert phone.state["fields"] == {"notes.text": "c"}


def test_starting_what_is_in_front_is_a_warning(sh: Any) -> None:
    sh("am start -n org.simphone.notes/.MainActivity")
    again = sh("am start -n org.simphone.notes/.MainActivity")
    assert "Warning: Activity not started, intent has been delivered" in again.err
    launcher = "-a android.intent.action.MAIN -c android.intent.category.LAUNCHER"
    assert "brought to the front" in sh(f"am start {launcher} -n org.simphone.notes/.MainActivity").err


def test_monkey_starts_an_app(phone: AndroidSystem, sh: Any) -> None:
    result = sh("monkey -p org.simphone.notes -c android.intent.category.LAUNCHER 1")
    assert (result.status, phone.device.foreground()) == (0, "notes")
    assert "Events injected: 1\n" in result.out
    gone = sh("monkey -p com.whatsapp 1")
    assert (gone.status, gone.out) == (252, "** No activities found to run, monkey aborted.\n")


def test_recent_tasks_can_be_removed(phone: AndroidSystem, sh: Any) -> None:
    sh("am start -n org.simphone.notes/.MainActivity; am start -n org.simphone.clock/.MainActivity")
    ids = re.findall(r"^\s+id=(\d+)", sh("dumpsys activity recents").out, re.M)
    assert len(ids) == 2
    for number in ids:
        sh(f"am stack remove {number}")
    assert phone.device.foreground() == "launcher"
    assert re.findall(r"^\s+id=(\d+)", sh("dumpsys activity recents").out, re.M) == []


def test_who_takes_the_home_intent(sh: Any) -> None:
    home = "-a android.intent.action.MAIN -c android.intent.category.HOME"
    brief = sh(f"cmd package resolve-activity --brief {home}").out.splitlines()
    assert brief[1] == "org.simphone.launcher/.MainActivity"
    assert (
        sh("pm resolve-activity --brief org.simphone.notes | tail -1").out
        == "org.simphone.notes/.MainActivity\n"
    )
    assert sh("cmd package resolve-activity --brief com.foo").out == "No activity found\n"
    launcher = "-a android.intent.action.MAIN -c android.intent.category.LAUNCHER"
    launchers = sh(f"cmd package query-activities --components {launcher}")
    assert set(launchers.out.split()) == {f"org.simphone.{name}/.MainActivity" for name in BUILT_IN}


def test_permissions(sh: Any) -> None:
    name = "android.permission.INTERNET"
    assert sh(f"pm revoke org.simphone.weather {name}").status == 0
    assert f"{name}: granted=false" in sh("dumpsys package org.simphone.weather").out
    assert sh(f"pm grant org.simphone.weather {name}").status == 0
    assert f"{name}: granted=true" in sh("dumpsys package org.simphone.weather").out
    assert "has not requested permission" in sh("pm grant org.simphone.weather android.permission.CAMERA").err
    assert "Unknown package: org.nothing" in sh(f"pm grant org.nothing {name}").err


def test_package_facts(sh: Any) -> None:
    dump = sh("dumpsys package org.simphone.notes").out
    assert re.search(r"versionName=(?P<name>[^\s]+)", dump)
    assert re.search(r"versionCode=(?P<code>\d+)", dump)
    assert re.search(r"firstInstallTime=2025-06-03 00:00:00", dump)
    assert re.search(r"targetSdk=(\d+)", dump)
    assert "Unable to find package: org.nothing" in sh("dumpsys package org.nothing").out


def test_the_hierarchy_is_the_phones(phone: AndroidSystem, sh: Any) -> None:
    result = sh("rm -f /sdcard/w.xml; uiautomator dump /sdcard/w.xml && cat /sdcard/w.xml")
    line, _, xml = result.out.partition("\n")
    assert line == "UI hierchary dumped to: /sdcard/w.xml"
    assert xml == phone.device.hierarchy().replace("\n", "")
    assert xml.startswith(
        "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\">"
    )
    assert sh("uiautomator dump").out == "UI hierchary dumped to: /sdcard/window_dump.xml\n"
    assert sh("uiautomator dump /dev/tty").out == xml + "UI hierchary dumped to: /dev/tty\n"
    assert sh("uiautomator dump /nope/x").status == 1
    phone.power(False)
    assert "ERROR: null root node" in sh("uiautomator dump").err


def test_screenshots_as_png_and_raw(phone: AndroidSystem, sh: Any) -> None:
    picture = phone.device.screenshot()
    png = Image.open(io.BytesIO(sh("screencap -p").data)).convert("RGB")
    assert ImageChops.difference(png, picture).getbbox() is None
    raw = sh("screencap").data
    assert struct.unpack("<4I", raw[:16]) == (540, 1200, 1, 1)
    colours = Image.frombytes("RGBA", (540, 1200), raw[16:])
    assert ImageChops.difference(colours.convert("RGB"), picture).getbbox() is None
    assert sh(
        "screencap -p /sdcard/a.png; screencap /sdcard/b.png; cmp -s /sdcard/a.png; ls /sdcard/*.png"
    ).out == ("/sdcard/a.png\n/sdcard/b.png\n")
    assert phone.files.read("/sdcard/a.png") == phone.files.read("/sdcard/b.png") == sh("screencap -p").data
    assert sh("screencap -p /nope/a.png").status == 1
    assert sh(f"screencap -p -d {DISPLAY_ID}").data == sh("screencap -p").data
    refused = sh("screencap -d 5 -p")
    assert (refused.status, refused.data, refused.err) == (1, b"", "Display Id '5' is not valid.\n")


def test_the_same_screen_is_encoded_once(phone: AndroidSystem, sh: Any) -> None:
    encoded = []
    png = phone.encode_png
    phone.encode_png = lambda image: encoded.append(image) or png(image)  # type: ignore[func-returns-value]
    first = sh("screencap -p").data
    assert sh("screencap -p").data == first
    assert len(encoded) == 1
    phone.blank = True
    black = sh("screencap -p").data
    assert Image.open(io.BytesIO(black)).convert("L").getextrema() == (0, 0)
    phone.blank = False
    assert sh("screencap -p").data == first
