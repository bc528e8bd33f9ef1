"""What commands do to the phone, beside what they print (client_commands.yaml has that)."""

from __future__ import annotations

import io
import json
import re
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.commands import COMMANDS
from distrl.simulator.apps import APPS, BUILT_IN, EVERYDAY, store_catalog
from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.device import SimDevice
from distrl.simulator.names import Names
from distrl.simulator.phone import state as phone_state
from distrl.simulator.phone.phone import new_state
from distrl.workers.devices import apps
from distrl.workers.devices.device import Key

FIELD = "browser.query"
PODNEST = "org.simphone.podnest"
FOCUS = re.compile(r"mCurrentFocus=Window{.*\s+(?P<package>[^\s]+)/(?P<activity>[^\s]+)\}")
RESUMED = re.compile(
    r"mResumedActivity: ActivityRecord\{.*?\s+(?P<package>[^\s]+)/(?P<activity>[^\s]+)\s.*?\}"
)


def focus(phone: AndroidSystem) -> None:
    """Opens the browser with its search field focused."""
    phone.activities.open("browser")
    phone.change(lambda state: phone_state.focus(state, FIELD))


def text(phone: AndroidSystem) -> str:
    value: str = phone.state["fields"][FIELD]
    return value


@pytest.fixture
def shop(phone: AndroidSystem, sh: Any) -> AndroidSystem:
    """A phone with a store, one app of it, and web shops, of which one shows a panel."""
    assert sh("cmd simphone reset store").status == 0
    phone.change(lambda state: store_catalog.install(state, "podnest"))
    phone.state["apps"]["browser"]["web"] = shop_state.web()
    shop_state.data(phone.state, "voltivo")["panel"] = "menu"
    return phone


# input


def test_the_same_gestures_as_in_process(phone: AndroidSystem, sh: Any) -> None:
    twin = SimDevice(540, 1200)
    sh("input tap 270 1100; input swipe 270 900 270 300")
    sh("input swipe 100 100 100 100 600; input tap 65.9 700.2")
    twin.tap(270, 1100)
    twin.swipe(270, 900, 270, 300)
    twin.long_press(100, 100)
    twin.tap(65, 700)
    sh("input keyevent 4; input keyevent KEYCODE_HOME; input swipe 270 900 270 200 100")
    twin.key(Key.BACK)
    twin.key(Key.HOME)
    twin.swipe(270, 900, 270, 200)
    assert phone.device.phone.dump() == twin.phone.dump()


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=80))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_ascii_text_survives_quoting(phone: AndroidSystem, sh: Any, wanted: str) -> None:
    """A "%s" that is meant must come in two pieces; everything else goes through in one."""
    focus(phone)
    phone.input.clear_field()
    for piece in wanted.replace("%s", "%\0s").split("\0"):
        quoted = "'" + piece.replace(" ", "%s").replace("'", "'\\''") + "'"
        assert sh(f"input text {quoted}").status == 0
    assert text(phone) == wanted


def test_a_dark_screen_takes_no_input_but_the_keys_that_wake_it(phone: AndroidSystem, sh: Any) -> None:
    sh("input keyevent POWER")
    before = phone.device.phone.dump()
    assert not phone.screen_on
    sh("input tap 270 1100; input swipe 1 900 1 100; input text x; input keyevent BACK 67 24")
    assert phone.device.phone.dump() == before
    assert phone.screenshot().getcolors() == [(540 * 1200, (0, 0, 0))]
    assert "mHoldingDisplaySuspendBlocker=false" in sh("dumpsys power").out
    assert "mCurrentFocus=null" in sh("dumpsys window").out
    assert "ERROR: null root node" in sh("uiautomator dump").err
    sh("input keyevent KEYCODE_WAKEUP")
    assert phone.screen_on


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("input tap 1", 'Argument expected after "tap"'),
        ("input tap NaN 1", "Error: Invalid arguments for command: tap"),
        ("input swipe 1 2 3 4 x", "Error: Invalid arguments for command: swipe"),
        ("input roar", "Unknown command: roar"),
        ("am start -n nonsense", "Bad component name: nonsense"),
        ("am start -a", 'Argument expected after "-a"'),
        ("settings get nowhere x", "Invalid namespace 'nowhere'"),
        ("pm grant org.simphone.weather android.permission.CAMERA", "has not requested permission"),
    ],
)
def test_wrong_arguments_fail_with_androids_words(sh: Any, command: str, message: str) -> None:
    result = sh(command)
    assert result.status == 255
    assert message in result.err


def test_adb_keyboard_types_any_text_while_it_is_the_input_method(phone: AndroidSystem, sh: Any) -> None:
    focus(phone)
    broadcast = "am broadcast -a ADB_INPUT_B64 --es msg 8J+YgCBuYcOvdmUg5L2g5aW9"
    sh(broadcast)
    assert text(phone) == ""
    keyboard = "com.android.adbkeyboard/.AdbIME"
    sh(f"ime enable {keyboard} && ime set {keyboard}")
    sh(broadcast)
    assert text(phone) == "😀 naïve 你好"
    dump = sh("dumpsys input_method").out
    assert f"mCurId={keyboard}" in dump
    assert "mInputShown=true" in dump
    assert "mServedView=android.widget.EditText{" in dump
    sh("am broadcast -a ADB_CLEAR_TEXT; am broadcast -a ADB_INPUT_TEXT --es msg 'a b'")
    assert text(phone) == "a b"
    sh("am broadcast -a ADB_INPUT_B64 --es msg '***'; ime reset")
    assert sh("settings get secure default_input_method").out == "org.simphone.keyboard/.SoftKeyboard\n"
    sh(broadcast)
    assert text(phone) == "a b"


# Apps


@pytest.mark.parametrize("app", sorted(BUILT_IN))
def test_every_dump_names_the_app_that_was_started(phone: AndroidSystem, sh: Any, app: str) -> None:
    """With the very patterns that adbutils, android-env and others search for."""
    package = f"org.simphone.{app}"
    result = sh(f"am start -W -n {package}/.MainActivity")
    assert f"Activity: {package}/.MainActivity\n" in result.out
    assert phone.device.foreground() == app
    for dump in ("dumpsys window displays", "dumpsys window"):
        focused = FOCUS.search(sh(dump).out)
        assert focused is not None
        assert (focused["package"], focused["activity"]) == (package, f"{package}.MainActivity")
    assert not FOCUS.search(sh("dumpsys window windows").out)  # as of Android 10
    resumed = RESUMED.search(sh("dumpsys activity activities").out)
    assert resumed is not None
    assert (resumed["package"], resumed["activity"]) == (package, ".MainActivity")
    assert f"ComponentInfo{{{package}/{package}.MainActivity}}" in sh("am stack list | grep visible=true").out
    assert sh("cmd simphone foreground").out == f"{app}\n"


@pytest.mark.parametrize(
    ("intent", "app", "page"),
    [
        ("-a android.settings.SETTINGS", "settings", ["root"]),
        ("-a android.settings.WIFI_SETTINGS", "settings", ["section", "network"]),
        (
            "-a android.intent.action.VIEW -d 'http://find.example/?q=red%20shoes'",
            "browser",
            ["results", "red shoes"],
        ),
        ("-a android.intent.action.VIEW -d https://market.example/", "browser", ["shop"]),
        (
            "-a android.intent.action.VIEW -d https://www.voltivo.com/a",
            "browser",
            ["site", "voltivo", "home"],
        ),
        ("-a android.intent.action.VIEW -d https://example.org", "browser", ["root"]),
        ("-a android.intent.action.SENDTO -d sms:123", "messages", ["root"]),
        ("-a android.intent.action.VIEW -d content://contacts/people/", "contacts", ["root"]),
        (
            "-a android.intent.action.VIEW -d 'market://details?id=org.simphone.taskly'",
            "store",
            ["app", "taskly"],
        ),
        ("-S -n org.simphone.weather/org.simphone.weather.MainActivity", "weather", ["root"]),
    ],
)
def test_intents_open_what_they_name(
    shop: AndroidSystem, sh: Any, intent: str, app: str, page: list[str]
) -> None:
    result = sh(f"am start {intent}")
    assert (result.status, result.err) == (0, "")
    assert shop.device.foreground() == app
    assert shop.state["stacks"][app][-1] == page
    assert not shop_state.close(shop.state)


@pytest.mark.parametrize("address", ["http://[", "market://[", "https://find.example/?q=%01"])
def test_addresses_that_are_not_valid_open_the_first_page(shop: AndroidSystem, sh: Any, address: str) -> None:
    result = sh(f"am start -a android.intent.action.VIEW -d '{address}'")
    assert (result.status, result.err) == (0, "")
    app = shop.device.foreground()
    assert shop.state["stacks"][app] == [["root"]]


def test_what_an_address_asks_for_can_be_shown(phone: AndroidSystem, sh: Any) -> None:
    sh("am start -a android.intent.action.VIEW -d 'http://find.example/?q=a%01\udcffb%2541'")
    assert phone.state["stacks"]["browser"][-1] == ["results", "ab%41"]
    assert sh("uiautomator dump").status == 0


def test_stopping_and_clearing(phone: AndroidSystem, sh: Any) -> None:
    sh("am start -a android.settings.WIFI_SETTINGS; settings put global wifi_on 0")
    assert sh("am force-stop org.simphone.settings").status == 0
    assert phone.device.foreground() == "launcher"
    assert phone.state["stacks"]["settings"] == [["root"]]
    assert "org.simphone.settings" not in sh("ps -A").out
    assert phone.state["apps"]["settings"]["wifi"] is False
    assert sh("pm clear org.simphone.settings").out == "Success\n"
    assert phone.state["apps"]["settings"]["wifi"] is True
    assert sh("pm clear org.nothing").out == "Failed\n"
    sh("am start -n org.simphone.browser/.MainActivity")
    phone.state["fields"].update(
        {"browser.query": "a", "shop.query": "b", "web.query": "d", "notes.text": "c"}
    )
    sh("am force-stop org.simphone.browser")
    assert phone.state["fields"] == {"notes.text": "c"}


@pytest.mark.parametrize(
    "command", ["am force-stop --user 0", "pm clear --user 0", "pm uninstall -k --user 0", "pm uninstall -k"]
)
def test_an_app_that_ends_takes_its_dialog_along(shop: AndroidSystem, sh: Any, command: str) -> None:
    popup = {"kind": "popup", "look": 0, "which": 0, "due_s": 0, "since_s": 0, "app": "podnest"}
    shop.activities.open("podnest")
    shop.state["overlay"] = popup
    assert sh(f"pm path --user 0 {PODNEST}").status == 0
    assert sh(f"{command} {PODNEST}").status == 0
    assert (shop.device.foreground(), shop.state["overlay"]) == ("launcher", {})


@pytest.mark.parametrize("app", ["launcher", "settings"])
@pytest.mark.parametrize("is_by_adb", [True, False])
def test_starting_the_app_in_front_uncovers_it(
    shop: AndroidSystem, sh: Any, app: str, is_by_adb: bool
) -> None:
    shop.activities.open(app)
    wanted = shop.device.phone.tree()
    popup = {"kind": "popup", "look": 0, "which": 0, "due_s": 0, "since_s": 0, "app": app}
    for over in ({"drawer": True}, {"home_page": 1}, {"shade": True}, {"overlay": popup}):
        shop.device.load(shop.state | over)
        if is_by_adb:
            sh(f"am start -n org.simphone.{app}/.MainActivity")
        else:
            shop.device.phone.open(app)
        assert shop.device.phone.tree() == wanted


@pytest.mark.parametrize(
    ("app", "kept"),
    [
        ("browser", ["web"]),
        ("clock", ["edition", "cities"]),
        ("contacts", ["edition"]),
        ("music", ["albums"]),
        ("settings", ["edition", "dark"]),
        ("store", ["updates"]),
        ("weather", ["cities"]),
    ],
)
def test_a_cleared_app_has_what_came_with_the_phone(
    phone: AndroidSystem, sh: Any, app: str, kept: list[str]
) -> None:
    state = new_state(5, installed=(*EVERYDAY, "store"))
    for each in APPS.values():
        each.fill(state, Names(2))
    state["apps"]["browser"]["web"] = shop_state.web(["modavia"])
    state["apps"]["store"]["updates"] = ["taskly"]
    shop_state.data(state, "modavia")["sold_out"] = [3]
    data = json.loads(json.dumps(state["apps"][app]))
    shop_state.data(state, "modavia")["wish"] = [4]
    phone.device.load(state)
    sh(f"pm clear org.simphone.{app}; am start -n org.simphone.{app}/.MainActivity")
    cleared = state["apps"][app]
    assert {key: cleared[key] for key in kept} == {key: data[key] for key in kept}
    assert not cleared.get("playlists")
    assert sh("uiautomator dump").status == 0


def test_screenshots_as_png_and_raw(phone: AndroidSystem, sh: Any) -> None:
    picture = phone.device.screenshot()
    data = sh("screencap -p").data
    assert ImageChops.difference(Image.open(io.BytesIO(data)).convert("RGB"), picture).getbbox() is None
    raw = sh("screencap").data
    assert struct.unpack("<4I", raw[:16]) == (540, 1200, 1, 1)
    colours = Image.frombytes("RGBA", (540, 1200), raw[16:])
    assert ImageChops.difference(colours.convert("RGB"), picture).getbbox() is None
    sh("screencap -p /sdcard/a.png; screencap /sdcard/b.png")
    assert phone.files.read("/sdcard/a.png") == phone.files.read("/sdcard/b.png") == data
    assert sh("screencap -p /nope/a.png").status == 1


# Packages


def test_an_installed_app_cannot_run_here_which_the_log_says(phone: AndroidSystem, sh: Any) -> None:
    name = "com.android.adbkeyboard"
    phone.packages.update(name, activity=f"{name}.Main")
    assert sh(f"am start -n {name}/.Main").status == 0
    assert phone.device.foreground() == "launcher"
    assert "FATAL EXCEPTION" in sh("logcat -d -b crash").out


def packages(sh: Any, option: str = "") -> set[str]:
    return set(re.findall(r"^package:(\S+)$", sh(f"pm list packages {option}").out, re.M))


@pytest.mark.parametrize(
    "command",
    [f"monkey -p {PODNEST} -c android.intent.category.LAUNCHER 1", f"am start -n {PODNEST}/.MainActivity"],
)
@pytest.mark.parametrize("is_by_adb", [True, False])
def test_an_app_of_the_store_is_a_package_while_it_is_there(
    shop: AndroidSystem, sh: Any, command: str, is_by_adb: bool
) -> None:
    assert PODNEST in packages(sh, "-3")
    assert "org.simphone.store" in packages(sh, "-s")
    assert "installer=org.simphone.store" in sh("pm list packages -i podnest").out
    assert f"{PODNEST}/.MainActivity" in sh(apps.LAUNCHABLE).out
    assert sh(command).status == 0
    assert shop.device.foreground() == "podnest"
    assert PODNEST in sh("ps -A").out
    if is_by_adb:
        assert sh(f"pm uninstall {PODNEST}").out == "Success\n"
        assert "DELETE_FAILED_INTERNAL_ERROR" in sh("pm uninstall org.simphone.store").out
    else:
        shop.change(lambda state: store_catalog.uninstall(state, "podnest"))
    sh(command)
    assert shop.device.foreground() == "launcher"
    for gone in ("am stack list", "ps -A", "pm list packages"):
        assert PODNEST not in sh(gone).out


# The system


@pytest.mark.parametrize(
    ("on", "off", "key"),
    [
        ("settings put global wifi_on 1", "settings put global wifi_on 0", "wifi"),
        ("svc wifi enable", "svc wifi disable", "wifi"),
        ("svc bluetooth enable", "svc bluetooth disable", "bluetooth"),
        ("settings put secure ui_night_mode 2", "settings put secure ui_night_mode 1", "dark"),
        ("settings put secure location_mode 3", "settings put secure location_mode 0", "location"),
    ],
)
def test_settings_of_the_phone_are_what_its_screen_shows(
    phone: AndroidSystem, sh: Any, on: str, off: str, key: str
) -> None:
    phone.activities.open("settings", ["section", "network"])
    for command, wanted in ((on, True), (off, False), (on, True)):
        assert sh(command).status == 0
        assert phone.state["apps"]["settings"][key] is wanted
    before = sh("screencap -p").data
    sh("settings put global airplane_mode_on 1")
    assert sh("screencap -p").data != before


def test_a_slider_keeps_the_value_that_was_put_until_it_is_moved(phone: AndroidSystem, sh: Any) -> None:
    for value in ("1", "100", "255"):
        read = "settings get system screen_brightness; settings list system | grep screen_brightness="
        assert sh(f"settings put system screen_brightness {value}; {read}").out.split() == [
            value,
            f"screen_brightness={value}",
        ]
    phone.state["apps"]["settings"]["brightness"] = 20
    assert sh("settings get system screen_brightness").out == "51\n"


def test_the_phones_state_is_given_and_taken(phone: AndroidSystem, sh: Any) -> None:
    assert sh("cmd simphone dump").out == phone.device.phone.dump()
    wanted = new_state(1, 700)
    wanted["apps"]["settings"]["wifi"] = False
    assert sh("cmd simphone load", json.dumps(wanted).encode()).status == 0
    assert phone.state == wanted
    assert "no app tetris" in sh("cmd simphone reset tetris").err


BROKEN = json.dumps(new_state() | {"front": "nowhere"}).encode()


@pytest.mark.parametrize("bad", [b"", b"[]", b"{}", b"\xff", BROKEN])
def test_an_invalid_state_is_refused_and_changes_nothing(phone: AndroidSystem, sh: Any, bad: bytes) -> None:
    before = phone.device.phone.dump()
    result = sh("cmd simphone load", bad)
    assert result.status == 1
    assert result.err.startswith("Error: the state ")
    assert phone.device.phone.dump() == before


WORDS = """
-a -c -d -e -f -l -n -p -r -s -t -v -1 -- --x - + 0 1 5 -3 1e9 99999999999999999999 a a.b /sdcard %s é 😀
/data/local/tmp/f list get put set enable start install size dump load windows top keyevent text tap swipe
global system key value org.simphone.notes org.simphone.notes/.MainActivity -S 10 [ ] = {} ;
"""
ARGUMENTS = st.lists(st.sampled_from(WORDS.split()) | st.text("ab-'\" \n\\$é", max_size=8), max_size=6)


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"logcat", "sleep", "reboot", "app_process"}))
@given(ARGUMENTS, st.binary(max_size=30))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_command_takes_any_arguments(sh: Any, name: str, arguments: list[str], stdin: bytes) -> None:
    quoted = " ".join("'" + argument.replace("'", "'\\''") + "'" for argument in arguments)
    assert 0 <= sh(f"'{name}' {quoted}", stdin).status <= 255
