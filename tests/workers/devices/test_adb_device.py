"""A device behind adb: what is asked and sent, what passes as an observation, and what is never repeated."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adb_console_fake import fake_console
from adb_server_fake import Answer, FakeDevice, Peer, fake_server, runs
from PIL import Image

from distrl.core.errors import EnvError
from distrl.simulator.adb.backend import AdbSimBackend
from distrl.workers.devices.adb import DEFAULT_DISPLAY, AdbClient, Display
from distrl.workers.devices.adb_device import IDLE_S, AdbDevice, EmulatorDevice
from distrl.workers.devices.console import Console
from distrl.workers.devices.device import Key
from distrl.workers.devices.errors import (
    ActionOutcomeUnknown,
    BlankFrame,
    DeviceTimeout,
    EmulatorExited,
    FrameTruncated,
    OutputInvalid,
    ServiceRejected,
)
from distrl.workers.envs.backends import RecipeBackend, backend_for

XML = '<?xml version=\'1.0\' ?>\n<hierarchy rotation="0">\n<node text="ü"/>\n</hierarchy>'


def png(colour: tuple[int, int, int] = (200, 30, 40), size: tuple[int, int] = (90, 200)) -> bytes:
    image = Image.new("RGB", size)
    image.paste(colour, (10, 10, 50, 60))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


class Script:
    """Answers by the beginning of a command; a list is used up, its last entry stays."""

    def __init__(self, **answers: object) -> None:
        self.answers: dict[str, object] = {"input": "", **answers}
        self.commands: list[str] = []

    def run(self, command: str) -> Answer | bytes | str:
        command = command.removeprefix("raw:")
        self.commands.append(command)
        for start, answer in self.answers.items():
            if command.startswith(start.replace("_", " ")):
                if isinstance(answer, list):
                    answer = answer.pop(0) if len(answer) > 1 else answer[0]
                return answer  # type: ignore[return-value]
        return b"", b"not found", 127


@contextmanager
def device_with(
    script: Script, slept: list[float] | None = None, display: Display = DEFAULT_DISPLAY
) -> Iterator[AdbDevice]:
    with fake_server(phone=FakeDevice(serve=runs(script.run))) as server:
        sleep = (slept if slept is not None else []).append
        yield AdbDevice(AdbClient("phone", server.port, sleep=sleep, display=display))


def test_an_override_is_the_size_until_a_screenshot_tells_how_it_is_turned() -> None:
    script = Script(wm="Physical size: 1080x2400\nOverride size: 90x200\n", screencap=png(size=(200, 90)))
    with device_with(script) as device:
        assert device.size == device.size == (90, 200)
        assert device.screenshot().size == (200, 90)
        assert device.size == (200, 90)
    assert script.commands == ["wm size", "screencap -p"]
    with device_with(Script(wm="Error: no display")) as device, pytest.raises(OutputInvalid, match="no size"):
        assert device.size


@pytest.mark.parametrize(
    ("display", "to"), [(DEFAULT_DISPLAY, "input"), (Display(46198276775508011, 2), "input -d 2")]
)
def test_inputs_are_written_as_the_shell_takes_them_and_go_to_the_display(display: Display, to: str) -> None:
    script = Script(screencap=png(), wm="Physical size: 90x200\n")
    with device_with(script, display=display) as device:
        assert device.size == (90, 200)
        device.screenshot()
        device.tap(1, 2)
        device.double_tap(5, 6)
        device.long_press(3, 4)
        device.swipe(1, 2, 30, 40)
        for key in Key:
            device.key(key)
        device.type_text("a 'b'\nc")
    id_ = "" if to == "input" else " -d 46198276775508011"
    assert script.commands == [
        f"wm size{to.removeprefix('input')}",
        f"screencap{id_} -p",
        f"{to} tap 1 2",
        f"{to} tap 5 6 & sleep 0.12; {to} tap 5 6 && wait $!",
        f"{to} swipe 3 4 3 4 800",
        f"{to} swipe 1 2 30 40 300",
        *(f"{to} keyevent {code}" for code in (4, 3, 66)),
        f"{to} text 'a%s'\"'\"'b'\"'\"''",
        f"{to} keyevent 66",
        f"{to} text c",
    ]


def one_colour(colour: str = "black") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (90, 200), colour).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("bad", "kind", "said"),
    [
        (png()[:-20], FrameTruncated, "in the middle"),
        (png()[:60] + png()[-12:], FrameTruncated, "cannot be decoded"),
        (b"Display Id '7' is not valid.\n", FrameTruncated, r"29 bytes: Display Id '7' is not valid\. If"),
        (one_colour(), BlankFrame, "of one colour"),
    ],
)
def test_a_broken_screenshot_is_taken_again_and_never_passed_on(
    bad: bytes, kind: type[EnvError], said: str
) -> None:
    slept: list[float] = []
    script = Script(screencap=[bad, bad, png()])
    with device_with(script, slept) as device:
        assert device.screenshot().size == (90, 200)
    assert slept == [0.2, 1.0]
    script = Script(screencap=bad)
    with device_with(script) as device, pytest.raises(kind, match=f"phone: .*{said}"):
        device.screenshot()
    assert script.commands.count("screencap -p") == 3


DISPLAYS = (
    'Display 4619827677550801152 (HWC display 0): port=0 pnpId=GGL displayName="Outer"\n'
    'Display 4619827677550801153 (HWC display 1): port=1 pnpId=GGL displayName="Inner"\n'
)


def test_a_blank_screenshot_of_a_foldable_names_its_displays() -> None:
    script = Script(screencap=one_colour(), dumpsys_SurfaceFlinger=DISPLAYS)
    remedy = "set `display` .* 4619827677550801152 or 4619827677550801153"
    with device_with(script) as device, pytest.raises(BlankFrame, match=f"it has 2 displays.*{remedy}"):
        device.screenshot()
    one = Script(screencap=one_colour(), dumpsys_SurfaceFlinger=DISPLAYS.splitlines()[0])
    with device_with(one) as device, pytest.raises(BlankFrame, match="Wake the screen"):
        device.screenshot()


def windows(
    secure: str = " SECURE", awake: str = "true", focus: str = "Window{8a1 u0 com.bank/com.bank.Main}"
) -> str:
    """What Android 14 says of two windows, the second one an app's."""
    return (
        f"    mAwake={awake} mScreenOnEarly={awake} mScreenOnFully={awake}\n"
        f"  mCurrentFocus={focus}\n"
        "  Window #0 Window{abc u0 NavigationBar0}:\n"
        "      fl=NOT_FOCUSABLE SECURE SPLIT_TOUCH\n"
        "  Window #1 Window{8a1 u0 com.bank/com.bank.Main}:\n"
        f"      fl=LAYOUT_IN_SCREEN{secure} SPLIT_TOUCH HARDWARE_ACCELERATED\n"
        "  Window #2 Window{9f0 u0 com.film/com.film.Main}:\n"
        "      fl=#81812100\n"
    )


@pytest.mark.parametrize("focus", ["8a1 u0 com.bank/com.bank.Main", "9f0 u0 com.film/com.film.Main"])
def test_a_black_picture_of_a_secure_window_is_an_observation(
    focus: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No screenshot shows it; the agent went there, and may go back."""
    script = Script(screencap=one_colour(), dumpsys_window=windows(focus=f"Window{{{focus}}}"))
    with device_with(script) as device:
        assert device.screen().key == device.screen().key
        assert device.screenshot().getcolors(1) == [(90 * 200, (0, 0, 0))]
        assert script.commands.count("screencap -p") == 3
        assert [record.message for record in caplog.records if "secure" in record.message] == [
            "phone: it shows a secure window, of which every screenshot is black"
        ]
        # The same picture, of a display that is off.
        script.answers["dumpsys_window"] = windows(awake="false")
        with pytest.raises(BlankFrame):
            device.screen()


@pytest.mark.parametrize(
    ("colour", "told"),
    [
        ("black", windows(secure="")),
        ("black", windows(focus="null")),
        ("white", windows()),
    ],
)
def test_other_pictures_of_one_colour_are_none(colour: str, told: str) -> None:
    script = Script(screencap=one_colour(colour), dumpsys_window=told)
    with device_with(script) as device, pytest.raises(BlankFrame):
        device.screen()


LAUNCHABLE = """2 activities found:
  Activity #0:
    priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true
    com.android.settings/.Settings
  Activity #1:
    priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true
    com.odd/com.odd.Main$Inner
"""
START = "am start -a android.intent.action.MAIN -c android.intent.category.LAUNCHER -f 0x10200000 -n "


def test_an_app_is_opened_by_its_name_as_a_launcher_does_it() -> None:
    script = Script(cmd_package=LAUNCHABLE, am_start=(b"Starting: Intent { }\n", b"", 0))
    with device_with(script) as device:
        assert device.open_app("Settings")
        assert device.open_app("com.odd")
        assert not device.open_app("Clock")
    started = [command for command in script.commands if command.startswith("am")]
    assert started == [START + "com.android.settings/.Settings", START + "'com.odd/com.odd.Main$Inner'"]


@pytest.mark.parametrize(
    "refusal",
    [
        (b"Starting: Intent { }\n", b"Error: Activity not started, unable to resolve Intent", 0),
        (b"", b"java.lang.SecurityException: Permission Denial: starting Intent { } not exported", 255),
    ],
)
def test_an_app_that_does_not_start_is_no_fault_of_the_device(refusal: tuple[bytes, bytes, int]) -> None:
    """Else a policy that likes such an app would put the devices to rest, and never learn better."""
    with device_with(Script(cmd_package=LAUNCHABLE, am_start=refusal)) as device:
        assert not device.open_app("Settings")


REFUSED = b"""Exception occurred while executing 'tap':
java.lang.SecurityException: Injecting input events requires the caller to have the INJECT_EVENTS permission.
"""


@pytest.mark.parametrize("status", [255, 0])
def test_a_phone_that_lets_adb_send_no_inputs_says_what_to_switch_on(status: int) -> None:
    script = Script(input=(b"", REFUSED, status))
    with (
        device_with(script) as device,
        pytest.raises(ServiceRejected, match=r"USB debugging \(Security settings\)"),
    ):
        device.tap(1, 2)
    assert len(script.commands) == 1


def test_a_hung_device_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"SCREENSHOT_S": 0.2, "INPUT_S": 2.0, "ASK_S": 0.2, "HIERARCHY_S": 0.2}
    for limit, seconds in limits.items():
        monkeypatch.setattr(f"distrl.workers.devices.adb_device.{limit}", seconds)
    fake = FakeDevice(serve=lambda service, peer: peer.hang())
    with fake_server(phone=fake) as server:
        device = AdbDevice(AdbClient("phone", server.port))
        for ask in (device.screenshot, device.hierarchy, device.foreground, lambda: device.size):
            with pytest.raises(DeviceTimeout):
                ask()
        with pytest.raises(ActionOutcomeUnknown):
            device.tap(1, 2)


def test_the_hierarchy_is_whole_or_an_error() -> None:
    script = Script(**{"rm_-f": [(b"", b"ERROR: could not get idle state.", 0), XML + "\n"]})
    with device_with(script) as device:
        assert device.hierarchy() == XML
    assert len(script.commands) == 2
    with device_with(Script(**{"rm_-f": XML[:-3]})) as device, pytest.raises(OutputInvalid, match="complete"):
        device.hierarchy()
    failed = Script(**{"rm_-f": (b"", b"null root node returned", 1)})
    with device_with(failed) as device, pytest.raises(OutputInvalid, match="null root"):
        device.hierarchy()
    assert len(failed.commands) == 3


def test_a_screen_that_never_stands_still_is_told_and_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """uiautomator has taken so long to say so that the time is over before it could say it again."""
    monkeypatch.setattr("distrl.workers.devices.adb_device.HIERARCHY_S", IDLE_S)
    script = Script(**{"rm_-f": (b"", b"ERROR: could not get idle state.", 0)})
    with device_with(script) as device, pytest.raises(OutputInvalid, match="could not get idle state"):
        device.hierarchy()
    assert len(script.commands) == 1


@pytest.mark.parametrize(
    ("said", "app"),
    [
        ("  topResumedActivity=ActivityRecord{9b1 u10 com.a.b/.Main$Inner t12}\n", "com.a.b"),
        ("  ResumedActivity: ActivityRecord{9b1 u0 org.simphone.clock/.Main t12}\n", "clock"),
        ("  ResumedActivity: null\n", ""),
        ((b"", b"", 1), ""),
    ],
)
def test_the_app_in_front(said: Any, app: str) -> None:
    with device_with(Script(dumpsys_activity=said)) as device:
        assert device.foreground() == app


def test_snapshots_are_for_emulators() -> None:
    with device_with(Script()) as device:
        for do in (device.save_state, device.load_state):
            with pytest.raises(ServiceRejected, match=r"phone: it has no snapshots.*emulator"):
                do("start")


@pytest.mark.parametrize(
    ("qemu", "guard", "is_guarded"),
    [
        ("\n\n", "physical", True),
        ("\n1\n", "physical", False),
        ("1\n\n", "physical", False),
        ("\n\n", None, False),
    ],
)
def test_a_physical_phone_is_guarded_by_default(qemu: str, guard: Any, is_guarded: bool) -> None:
    script = Script(
        **{"getprop ro.distrl.simphone": "\n", "getprop ro.kernel.qemu; getprop ro.boot.qemu": qemu}
    )
    with device_with(script) as device:
        backend = backend_for(device, guard=guard)
        assert isinstance(backend, RecipeBackend)
        assert (backend.guard is not None, device.settles_at_once) == (is_guarded, False)
    with device_with(Script(getprop="1\n")) as device:
        assert isinstance(backend_for(device, guard=guard), AdbSimBackend)
        assert (device.settles_at_once, device.is_physical) == (True, False)


def test_states_are_snapshots_and_loading_waits_for_the_device(tmp_path: Path) -> None:
    """After a load the old connection is silent; the device answers once it has been reconnected."""
    token = tmp_path / "token"
    token.write_text("secret")
    fake = FakeDevice()

    def respond(line: str) -> bytes:
        if "load" in line:
            fake.serve = silent_until_reconnected
        return b"OK\r\n"

    def silent_until_reconnected(service: str, peer: Peer) -> None:
        if fake.reconnects:
            runs(lambda command: "")(service, peer)
        else:
            peer.hang()

    with fake_server(emulator=fake) as server, fake_console(respond) as console:
        device = EmulatorDevice(AdbClient("emulator", server.port), Console(console.port, token))
        device.save_state("start")
        device.load_state("start")
        assert fake.reconnects >= 1
        assert fake.asked[-1] == "shell,v2,raw:true"
        console.stop_listening()
        fake.serve = lambda service, peer: peer.hang()
        with pytest.raises(EmulatorExited, match="nothing listens at its console port"):
            device.client.wait_ready(20.0, device.console.require_running)
    assert console.commands == ["avd snapshot save start", "avd snapshot load start"]
