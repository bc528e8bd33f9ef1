"""What is sent to a device to type a text: every character, in words that its shell takes as they are."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator

import pytest
from adb_server_fake import FakeAdbServer, FakeDevice, Peer, fake_server, runs
from adb_world import AdbWorld, adb_world
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import MAX_TEXT, focus, show
from distrl.workers.devices import adb, typing_text
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_device import EmulatorDevice
from distrl.workers.devices.errors import (
    ActionOutcomeUnknown,
    DeviceDisconnected,
    NonZeroExit,
    ServiceRejected,
)
from distrl.workers.devices.typing_text import KEYBOARD, MAX_CHUNK, type_text

LATIN = "com.android.inputmethod.latin/.LatinIME"


def typed_by_android(argument: str) -> str:
    """What Android's `input text` makes of its argument: Input.sendText, rewritten."""
    buffer, escaped, at = list(argument), False, 0
    while at < len(buffer):
        if escaped:
            escaped = False
            if buffer[at] == "s":
                buffer[at] = " "
                at -= 1
                del buffer[at]
        if buffer[at] == "%":
            escaped = True
        at += 1
    return "".join(buffer)


class Phone:
    """A device whose focused field gets what is typed; it knows the few commands that typing uses."""

    def __init__(self, installed: tuple[str, ...] = (LATIN, KEYBOARD), current: str = LATIN) -> None:
        self.field = ""
        self.installed = installed
        self.current = current
        self.enabled = {LATIN}
        self.commands: list[str] = []
        self.broken = ""

    def run(self, command: str) -> tuple[bytes, bytes, int]:
        command = command.removeprefix("raw:")
        self.commands.append(command)
        if self.broken and self.broken in command:
            return b"", b"Error: broken", 1
        out = "".join(self._one(shlex.split(part)) for part in command.split(" && "))
        return out.encode(), b"", 0

    def _one(self, words: list[str]) -> str:
        match words:
            case ["input", "text", argument]:
                assert argument.isascii()
                assert self.current != KEYBOARD
                self.field += typed_by_android(argument)
            case ["input", "keyevent", "66"]:
                self.field += "\n"
            case ["ime", "list", "-a", "-s"]:
                return "".join(f"{ime}\n" for ime in self.installed)
            case ["echo", "="]:
                return "=\n"
            case ["ime", "enable", ime]:
                self.enabled.add(ime)
            case ["ime", "set", ime]:
                assert ime in self.enabled
                self.current = ime
            case ["ime", "reset"]:
                self.current = LATIN
            case ["settings", "get", "secure", "default_input_method"]:
                return self.current
            case ["dumpsys", "input_method"]:
                return f"  mCurId={self.current} mHaveConnection=true mBoundToMethod=true"
            case ["am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", message]:
                assert self.current == KEYBOARD
                self.field += base64.b64decode(message).decode()
            case _:
                raise AssertionError(f"no such command: {words}")
        return ""


@pytest.fixture(scope="module")
def server() -> Iterator[FakeAdbServer]:
    with fake_server(phone=FakeDevice()) as running:
        yield running


def types(server: FakeAdbServer, phone: Phone, text: str) -> None:
    server.devices["phone"].serve = runs(phone.run)
    type_text(AdbClient("phone", server.port, sleep=lambda seconds: None), text)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.text(max_size=600), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=600)
    )
)
def test_any_text_at_all_arrives_but_for_control_characters(server: FakeAdbServer, text: str) -> None:
    phone = Phone()
    types(server, phone, text)
    assert phone.field == "".join(c for c in text if c == "\n" or not (ord(c) < 32 or ord(c) == 127))
    assert phone.current == LATIN
    assert all(len(command) < 4000 for command in phone.commands)


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("one\r\ntwo\n", ["input text one", "input keyevent 66", "input text two", "input keyevent 66"]),
        ("", ["input text ''"]),  # without effect
        ("a\ud800b", ["input text ab"]),  # half of a character
        ("x" * (MAX_CHUNK + 1), ["input text " + "x" * MAX_CHUNK, "input text x"]),
    ],
)
def test_what_is_sent(server: FakeAdbServer, text: str, commands: list[str]) -> None:
    phone = Phone()
    types(server, phone, text)
    assert phone.commands == commands


@pytest.mark.parametrize("current", ["", "null", LATIN, KEYBOARD])
def test_text_beyond_ascii_borrows_the_keyboard(server: FakeAdbServer, current: str) -> None:
    phone = Phone(current=current)
    types(server, phone, "Zürich → 東京 👍🏽 'n' $(x) %s")
    assert phone.field == "Zürich → 東京 👍🏽 'n' $(x) %s"
    assert phone.current == (KEYBOARD if current == KEYBOARD else LATIN)
    assert any("ime set" in command for command in phone.commands) == (current != KEYBOARD)


def test_without_the_keyboard_the_remedy_is_named_and_nothing_typed(server: FakeAdbServer) -> None:
    phone = Phone(installed=(LATIN,))
    with pytest.raises(ServiceRejected, match="Install ADBKeyboard") as caught:
        types(server, phone, "abc é")
    assert caught.value.serial == "phone"
    assert phone.field == ""


@pytest.mark.parametrize(("focus", "least"), [("View{1a2b}", 4), ("null", 2)])
def test_the_keyboard_is_waited_for_until_it_is_shown_but_not_for_ever(
    server: FakeAdbServer, monkeypatch: pytest.MonkeyPatch, focus: str, least: int
) -> None:
    """It is bound at the second look, but listens to broadcasts only from its first view on."""
    monkeypatch.setattr(typing_text, "_BOUND_S", 0.2)
    for shows_at in (3, 10**9):
        phone, looks = Phone(), 0

        def run(command: str, phone: Phone = phone, shows_at: int = shows_at) -> tuple[bytes, bytes, int]:
            nonlocal looks
            if "dumpsys" not in command:
                return phone.run(command)
            looks += 1
            shown = str(focus != "null" and looks > shows_at).lower()
            bound = str(looks > 1).lower()
            said = f"mCurId={KEYBOARD} mHaveConnection={bound}\n mInputShown={shown}\n mServedView={focus}\n"
            return said.encode(), b"", 0

        server.devices["phone"].serve = runs(run)
        type_text(AdbClient("phone", server.port, sleep=lambda seconds: None), "é")
        assert (looks >= least, phone.field, phone.current) == (True, "é", LATIN)


def test_a_failed_broadcast_still_gives_the_keyboard_back(server: FakeAdbServer) -> None:
    phone = Phone()
    phone.broken = "am broadcast"
    with pytest.raises(NonZeroExit):
        types(server, phone, "é")
    assert phone.current == LATIN


@pytest.mark.parametrize("broken", ["am broadcast", "dumpsys input_method"])
def test_a_device_that_answers_too_late_does_not_keep_the_keyboard(
    server: FakeAdbServer, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """No reset of a phone would put the former one back."""
    monkeypatch.setattr(adb, "RETRY_AFTER_S", ())
    phone = Phone()

    def serve(service: str, peer: Peer) -> None:
        if broken in service:
            raise ConnectionError
        runs(phone.run)(service, peer)

    server.devices["phone"].serve = serve
    with pytest.raises(ActionOutcomeUnknown if "am" in broken else DeviceDisconnected):
        type_text(AdbClient("phone", server.port), "é")
    assert phone.current == LATIN


def test_text_cut_off_in_between_is_not_typed_again(server: FakeAdbServer) -> None:
    phone = Phone()
    device = server.devices["phone"]
    del device.asked[:]

    def serve(service: str, peer: Peer) -> None:
        if "text two" in service:
            raise ConnectionError
        runs(phone.run)(service, peer)

    device.serve = serve
    with pytest.raises(ActionOutcomeUnknown):
        type_text(AdbClient("phone", server.port), "one\ntwo\nthree")
    assert phone.field == "one\n"
    assert sum("text two" in service for service in device.asked) == 1


FIELD = "browser.query"
EVIL = (
    "$(touch /sdcard/a) `touch /sdcard/b`; touch /sdcard/c",
    "> /sdcard/d",
    "' && reboot && '",
    "é; touch /sdcard/e",
    "100% sure %s %d %% % s",
    " leading and trailing ",
    "\\n\\t\\0\\x41\\' \\",
    "--longpress 3",
    "* ? [a-z] {a,b} ~ $HOME !! # no",
    "A" * MAX_TEXT,
    "' " * (MAX_TEXT // 2),
    "日本語 العربية 👍🏽 e\u0301 “curly”",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbWorld]:
    with adb_world(tmp_path_factory.mktemp("home"), 180, 400) as found:
        yield found


def field_after(device: EmulatorDevice, text: str) -> str:
    """What an empty field holds after `text` was typed into it."""
    state = new_state()
    show(state, "browser")
    focus(state, FIELD)
    device.client.check("cmd simphone load", 10.0, stdin=json.dumps(state).encode())
    device.type_text(text)
    after = json.loads(device.client.check("cmd simphone dump", 10.0).out)
    assert after["focus"] == FIELD
    held: str = after["fields"][FIELD]
    return held


def test_evil_strings_arrive_exactly_and_nothing_of_them_is_executed(world: AdbWorld) -> None:
    device = world.device()
    ask = "ls -a /sdcard; settings get secure default_input_method"
    before = device.client.check(ask, 10.0).text
    for text in EVIL:
        assert field_after(device, text) == text
    assert device.client.check(ask, 10.0).text == before
