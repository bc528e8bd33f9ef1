"""`input`: taps, gestures, keys and text reach the phone as in process."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import state as phone_state
from distrl.workers.devices.device import Key

FIELD = "browser.query"


def focus(phone: AndroidSystem) -> None:
    """Opens the browser with its search field focused."""
    phone.activities.open("browser")
    phone.change(lambda state: phone_state.focus(state, FIELD))


def text(phone: AndroidSystem) -> str:
    value: str = phone.state["fields"][FIELD]
    return value


def test_the_same_gestures_as_in_process(phone: AndroidSystem, sh: Any) -> None:
    twin = SimDevice(540, 1200)
    sh("input tap 270 1100; input swipe 270 900 270 300")
    sh("input swipe 100 100 100 100 600; input tap 65.9 700.2")
    twin.tap(270, 1100)
    twin.swipe(270, 900, 270, 300)
    twin.long_press(100, 100)
    twin.tap(65, 700)
    sh("input keyevent 4; input keyevent KEYCODE_HOME; input touchscreen swipe 270 900 270 200 100")
    twin.key(Key.BACK)
    twin.key(Key.HOME)
    twin.swipe(270, 900, 270, 200)
    assert phone.device.phone.dump() == twin.phone.dump()


def test_a_finger_in_single_events(phone: AndroidSystem, sh: Any) -> None:
    twin = SimDevice(540, 1200)
    sh("input motionevent DOWN 270 1000; input motionevent MOVE 270 700; input motionevent UP 270 400")
    twin.swipe(270, 1000, 270, 400)
    sh("input motionevent DOWN 60 700; input motionevent CANCEL; input motionevent UP 60 700")
    assert phone.device.phone.dump() == twin.phone.dump()


def test_a_finger_that_rests_is_a_long_press(phone: AndroidSystem) -> None:
    now = [0.0]
    phone.input._clock = lambda: now[0]
    phone.activities.open("notes")
    pressed = []
    phone.device.long_press = lambda x, y: pressed.append((x, y))  # type: ignore[method-assign]
    phone.input.motion("DOWN", 100, 200)
    now[0] = 0.5
    phone.input.motion("UP", 103, 201)
    assert pressed == [(100, 200)]


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("abc", "abc"),
        ("a%sb", "a b"),
        ("%s%s", "  "),
        ("100%", "100%"),
        ("%%s", "% "),
        ("%d", "%d"),
        ("%", "%"),
        ("a b", "a b"),
        ("it's", "it's"),
        ('"$(id)" `ls` ; & | < > \\ ~ #', '"$(id)" `ls` ; & | < > \\ ~ #'),
        ("ß", "ß"),
    ],
)
def test_text_is_typed_exactly(phone: AndroidSystem, sh: Any, written: str, typed: str) -> None:
    focus(phone)
    quoted = "'" + written.replace("'", "'\\''") + "'"
    assert sh(f"input text {quoted}").status == 0
    assert text(phone) == typed


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


def test_characters_that_the_virtual_keyboard_lacks_fail_as_on_android(phone: AndroidSystem, sh: Any) -> None:
    focus(phone)
    result = sh("input text 'aü'")
    assert result.status == 255
    assert "NullPointerException: Attempt to get length of null array" in result.err
    assert text(phone) == ""


def test_keys_type_delete_and_submit(phone: AndroidSystem, sh: Any) -> None:
    focus(phone)
    sh("input keyevent 29 KEYCODE_B 7 SPACE KEYCODE_DEL")
    sh("input keycombination 59 31; input keycombination 59 8")
    assert text(phone) == "ab0C!"
    sh("input keyevent --longpress 67; input keyevent 67")
    assert text(phone) == "ab0"
    sh("input keycombination KEYCODE_CTRL_LEFT KEYCODE_A; input text xyz")
    assert text(phone) == "xyz"
    sh("input keycombination 113 29; input keyevent 67")
    assert text(phone) == ""
    sh("input text dogs; input keyevent ENTER")
    assert phone.state["apps"]["browser"]["searches"] == ["dogs"]
    focus(phone)
    sh("input text 'cats\n'")
    assert phone.state["apps"]["browser"]["searches"] == ["dogs", "cats"]


def test_without_a_focus_text_goes_nowhere(phone: AndroidSystem, sh: Any) -> None:
    assert sh("input text abc").status == 0
    assert phone.state["fields"] == {}


def test_a_dark_screen_takes_no_input_but_the_keys_that_wake_it(phone: AndroidSystem, sh: Any) -> None:
    sh("input keyevent POWER")
    before = phone.device.phone.dump()
    assert not phone.screen_on
    sh("input tap 270 1100; input swipe 1 900 1 100; input text x; input keyevent BACK 67 24")
    assert phone.device.phone.dump() == before
    assert phone.screenshot().getcolors() == [(540 * 1200, (0, 0, 0))]
    sh("input keyevent KEYCODE_WAKEUP")
    assert phone.screen_on
    sh("input keyevent 223; input keyevent 26")
    assert phone.screen_on


def test_volume_brightness_and_app_keys(phone: AndroidSystem, sh: Any) -> None:
    sh("input keyevent VOLUME_UP; input keyevent BRIGHTNESS_DOWN; input keyevent SETTINGS")
    values = phone.state["apps"]["settings"]
    assert (values["volume"], values["brightness"], phone.device.foreground()) == (47, 50, "settings")
    sh("input keyevent VOLUME_MUTE; input keyevent 187 82 9999 NONSENSE")
    assert values["volume"] == 0 or phone.state["apps"]["settings"]["volume"] == 0


def test_a_wheel_scrolls(phone: AndroidSystem, sh: Any) -> None:
    sh("input mouse scroll 270 800 --axis VSCROLL,-2")
    assert phone.state["drawer"] is True
    sh("input scroll --axis SCROLL,2")
    assert phone.state["drawer"] is False


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("input tap", 'Argument expected after "tap"'),
        ("input tap 1", 'Argument expected after "tap"'),
        ("input tap a b", "Error: Invalid arguments for command: tap"),
        ("input tap NaN 1", "Error: Invalid arguments for command: tap"),
        ("input swipe 1 2 3 4 x", "Error: Invalid arguments for command: swipe"),
        ("input motionevent FLY 1 2", "Unknown action: FLY"),
        ("input keycombination 113", "keycombination requires at least 2 keycodes"),
        ("input keycombination 113 FOO", "Unknown keycode: FOO"),
    ],
)
def test_wrong_arguments_fail_with_androids_words(sh: Any, command: str, message: str) -> None:
    result = sh(command)
    assert result.status == 255
    assert message in result.err


def test_adb_keyboard_types_any_text_while_it_is_the_input_method(phone: AndroidSystem, sh: Any) -> None:
    focus(phone)
    broadcast = "am broadcast -a ADB_INPUT_B64 --es msg 8J+YgCBuYcOvdmUg5L2g5aW9"
    assert sh(broadcast).out.endswith("Broadcast completed: result=0\n")
    assert text(phone) == ""
    keyboard = "com.android.adbkeyboard/.AdbIME"
    assert keyboard in sh("ime list -a -s").out.split()
    assert sh(f"ime set {keyboard}").status == 255
    result = sh(f"ime enable {keyboard} && ime set {keyboard} && settings get secure default_input_method")
    assert result.out == (
        f"Input method {keyboard}: now enabled for user #0\n"
        f"Input method {keyboard} selected for user #0\n{keyboard}\n"
    )
    sh(broadcast)
    assert text(phone) == "😀 naïve 你好"
    dump = sh("dumpsys input_method").out
    assert f"mCurId={keyboard}" in dump
    assert "mInputShown=true" in dump
    assert "mServedView=android.widget.EditText{" in dump
    sh("am broadcast -a ADB_CLEAR_TEXT; am broadcast -a ADB_INPUT_TEXT --es msg 'a b'")
    sh("am broadcast -a ADB_INPUT_CHARS --eia chars '128512,33'; am broadcast -a ADB_INPUT_CODE --ei code 67")
    assert text(phone) == "a b😀"
    sh("am broadcast -a ADB_INPUT_B64 --es msg '***'; ime reset")
    assert sh("settings get secure default_input_method").out == "org.simphone.keyboard/.SoftKeyboard\n"
    sh("input keyevent HOME")
    dump = sh("dumpsys input_method").out
    assert "mInputShown=false" in dump
    assert "mServedView=null" in dump
    sh(broadcast)
    assert text(phone) == "a b😀"
