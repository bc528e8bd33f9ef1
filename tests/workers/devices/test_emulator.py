"""Emulator processes, played by small shell scripts: started, followed, ended; nothing is left over."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sim_phones
from avds import avd_with_snapshot
from emulator_programs import bystander, dead_pid, program
from PIL import Image
from waiting import until

from distrl.workers.devices import processes
from distrl.workers.devices.adb import DEFAULT_DISPLAY, ShellResult
from distrl.workers.devices.avd import Avd, AvdStore
from distrl.workers.devices.claims import claim_ports
from distrl.workers.devices.emulator import (
    EmulatorOptions,
    EmulatorProcess,
    LogFollower,
    fault_of,
    running,
    wait_booted,
)
from distrl.workers.devices.errors import (
    AvdLocked,
    BootTimeout,
    DeviceNotFound,
    DeviceTimeout,
    EmulatorError,
    EmulatorExited,
    LowDisk,
    NoAcceleration,
    PortInUse,
    SnapshotFailed,
    SnapshotMissing,
    SnapshotPending,
)
from distrl.workers.devices.processes import Entry, Registry
from distrl.workers.devices.sdk import Sdk
from distrl.workers.devices.snapshots import Manifest, write_manifest

pytestmark = pytest.mark.usefixtures("state")


WAITS = 'read forever <> "$0.fifo"'
"""Waits for ever: nobody writes into it."""
LIVES = f'echo "$@"; echo "home=$ANDROID_AVD_HOME sdk=$ANDROID_HOME server=$ANDROID_ADB_SERVER_PORT"; {WAITS}'
Make = Callable[..., EmulatorProcess]


class Nobody:
    """A client of a device that the adb server does not see."""

    serial = "nobody"

    def state(self, timeout_s: float = 2.0) -> str:
        raise DeviceNotFound("no such device.")


@pytest.fixture
def avd(store: AvdStore) -> Avd:
    return avd_with_snapshot(store)


@pytest.fixture
def make(tmp_path: Path, avd: Avd) -> Iterator[Make]:
    """Makes emulators whose program is the given script; all are stopped at the end."""
    made: list[EmulatorProcess] = []

    def _make(*lines: str, **options: object) -> EmulatorProcess:
        script = program(tmp_path / "sdk" / "emulator" / "emulator", *lines)
        if not made:
            os.mkfifo(script.with_name("emulator.fifo"))
        ports, sdk = claim_ports(sim_phones.free_pair()), Sdk(tmp_path / "sdk", "--sdk")
        made.append(EmulatorProcess(sdk, avd, ports, EmulatorOptions(**options), adb_server_port=12345))
        return made[-1]

    yield _make
    for one in made:
        one.stop(0.0)
        one.ports.release()
    assert Registry().entries() == []


def said(process: EmulatorProcess) -> str:
    until(lambda: "server=" in process.log.tail(), details=process.log.tail)
    return process.log.tail()


def test_it_is_told_what_it_needs(
    make: Make, avd: Avd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANDROID_HOME", "/another/sdk")
    process = make(LIVES, snapshot="base", extra=("-memory", "4096"))
    process.start()
    words = said(process).split()
    ports = process.ports
    assert words[words.index("-avd") + 1] == "pixel"
    assert words[words.index("-port") + 1] == str(ports.console)
    assert "-grpc-use-token" in words
    assert "-grpc" not in words  # that would open a port to everyone on the network
    assert words[words.index("-snapshot") + 1] == "base"
    assert words[words.index("-memory") + 1] == "4096"
    assert {"-no-window", "-no-audio", "-no-boot-anim", "-no-snapshot-save"} <= set(words)
    assert not {"-read-only", "-no-snapshot-load"} & set(words)
    assert {f"home={avd.home}", f"sdk={tmp_path / 'sdk'}", "server=12345"} <= set(words)
    with pytest.raises(BootTimeout) as caught:
        process.wait_booted(Nobody(), 0.1)
    assert "server=12345" in caught.value.evidence


def test_who_stops_it_while_it_starts_leaves_nothing_behind(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a pool that closes: between the start of the program and its entry."""
    process = make(LIVES)
    add = Registry.add

    def stop_first(self: Registry, pid: int, *args: Any) -> Entry:
        assert process.stop(0.0) in ("SIGTERM", "SIGKILL")
        return add(self, pid, *args)

    monkeypatch.setattr(Registry, "add", stop_first)
    with pytest.raises(EmulatorError, match="ended at once"):
        process.start()
    assert process.pid is None


def test_it_lives_in_a_session_of_its_own_and_is_entered(make: Make) -> None:
    process = make(LIVES)
    process.start()
    pid = process.pid
    assert pid is not None
    assert os.getsid(pid) == pid
    (entry,) = Registry().entries()
    assert (entry.key.pid, entry.console_port) == (pid, process.ports.console)
    assert "AVD pixel" in entry.what
    said(process)
    assert process.stop() == "SIGTERM"
    assert process.pid is None
    assert not processes.is_alive(entry.key)
    assert process.stop() == "gone"


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (
            "echo 'INFO | hello'; echo 'ERROR | a'; echo 'ERROR | the skin is missing'; echo bye; exit 3",
            EmulatorExited,
            r"ended with exit status 3, saying: the skin is missing\. See",
        ),
        ("echo \"FATAL | Not enough disk space to run AVD 'pixel'. Exiting...\"; " + WAITS, LowDisk, "disk"),
        ("echo hello; kill -9 $$", EmulatorExited, "was ended by signal 9, saying: hello"),
    ],
)
def test_its_last_words_are_the_error(make: Make, line: str, kind: type[EmulatorError], said: str) -> None:
    process = make(line)
    process.start()
    with pytest.raises(kind, match=said):
        process.wait_booted(Nobody(), 30.0)


def test_a_full_disk_is_named_before_the_emulator_misses_its_locks(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulator that cannot write snapshot.lock says that a snapshot operation is pending."""
    process = make(LIVES)
    usage = shutil.disk_usage(process.avd.directory)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3 * 2**20))
    with pytest.raises(LowDisk, match=r"the disk of the AVD 'pixel' is full: 3 MB are left.*Free some GB"):
        process.start()
    assert process.pid is None


def test_a_snapshot_of_other_hardware_or_that_is_missing_is_not_started_from(make: Make, avd: Avd) -> None:
    manifest = Manifest(0.0, 34, "", "host", "", {}, 420, 1, 1, {"cores": 64})
    write_manifest(manifest, avd.snapshots / "base")
    process = make(LIVES, snapshot="base", extra=("-cores", "2"))
    with pytest.raises(SnapshotFailed, match="cores: 64 when it was saved, 2 now"):
        process.start()
    assert process.pid is None
    make(LIVES, snapshot="base", extra=("-cores", "64")).start()
    with pytest.raises(SnapshotMissing, match="distrl snapshot-avd create pixel other"):
        make(LIVES, snapshot="other").start()


def test_a_snapshot_that_does_not_load_is_no_reason_to_go_on(make: Make) -> None:
    line = "echo \"WARNING | Failed to load snapshot 'base'\"; " + WAITS
    process = make(line, snapshot="base")
    process.start()
    with pytest.raises(SnapshotFailed):
        process.wait_booted(Nobody(), 30.0)
    cold = make(line)
    cold.start()
    with pytest.raises(BootTimeout, match="waiting for adb: no such device"):
        cold.wait_booted(Nobody(), 0.2)


def test_a_locked_avd_is_seen_before_the_start(make: Make, avd: Avd) -> None:
    emulator = bystander()
    (avd.directory / "hardware-qemu.ini.lock").write_text(str(emulator.pid))
    shared = make(LIVES, read_only=True)
    with pytest.raises(AvdLocked):
        shared.start()
    emulator.communicate()
    shared.start()
    assert {"-read-only", "-no-snapshot-load"} <= set(said(shared).split())


def test_what_cannot_be_entered_does_not_run(make: Make, state: Path) -> None:
    process = make(LIVES)
    (state / "processes").touch()
    with pytest.raises(EmulatorError, match="cannot be written"):
        process.start()
    assert process.pid is None
    (state / "processes").unlink()


def png(*colours: str) -> bytes:
    image = Image.new("RGB", (4, len(colours)))
    for row, colour in enumerate(colours):
        image.paste(Image.new("RGB", (4, 1), colour), (0, row))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@dataclass
class Phone:
    """What a phone answers to each question from which second on; each call takes a tenth of one."""

    answers: dict[str, list[tuple[float, object]]]
    now: float = 0.0
    display, serial = DEFAULT_DISPLAY, "emulator-5554"
    last_timeout_s: float = field(default=0.0)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, question: str, timeout_s: float) -> Any:
        self.last_timeout_s = timeout_s
        self.now += 0.1
        answer = [said for second, said in self.answers[question] if second <= self.now][-1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def state(self, timeout_s: float = 2.0) -> str:
        return str(self.ask("state", timeout_s))

    def shell(self, command: str, timeout_s: float) -> ShellResult:
        return ShellResult(str(self.ask(command, timeout_s)).encode(), b"", 0)

    def exec_out(self, command: str, timeout_s: float) -> bytes:
        answer: bytes = self.ask(command, timeout_s)
        return answer


BOOTED, ANIMATION = "getprop sys.boot_completed", "getprop init.svc.bootanim"


def phone(changes: dict[str, list[tuple[float, object]]]) -> Phone:
    """A phone that boots in twenty seconds."""
    answers: dict[str, list[tuple[float, object]]] = {
        "state": [(0, DeviceNotFound("no such device.")), (2, "offline"), (5, "device")],
        BOOTED: [(0, ""), (10, "1")],
        ANIMATION: [(0, "running"), (15, "stopped")],
        "wm size": [(0, "Can't find service: window\n"), (18, "Physical size: 1080x2400\n")],
        "screencap -p": [(0, b""), (18, png("black")), (20, png("black", "white"))],
    }
    return Phone(answers | changes)


def wait(phone: Phone) -> float:
    """Waits for at most 60 s. Returns how long."""
    wait_booted(phone, 60.0, lambda: None, lambda: phone.now, phone.sleep)
    return phone.now


def test_all_four_are_waited_for_in_order() -> None:
    assert 20 <= wait(phone({})) < 21


@pytest.mark.parametrize(
    ("question", "answer", "waits_for", "seen"),
    [
        ("state", "offline", "adb", "its state is 'offline'"),
        (BOOTED, "", "boot_completed", "sys.boot_completed is ''"),
        (BOOTED, DeviceTimeout("too late."), "boot_completed", "too late"),
        (ANIMATION, "running", "bootanim", "init.svc.bootanim is 'running'"),
        ("wm size", "Can't find service: window", "service", "Can't find service"),
        ("screencap -p", png("black", "black"), "service", "of one colour"),
        ("screencap -p", b"/system/bin/sh: screencap: not found", "service", "is not a PNG picture"),
    ],
)
def test_what_never_comes_is_named(question: str, answer: object, waits_for: str, seen: str) -> None:
    booting = phone({question: [(0, answer)]})
    with pytest.raises(BootTimeout) as caught:
        wait(booting)
    assert booting.now < 61.0
    assert booting.last_timeout_s <= 1.0  # one deadline bounds all of it
    assert f"emulator-5554: not ready after 60 s, waiting for {waits_for}: " in caught.value.message
    assert seen in caught.value.message
    assert ("ATD images" in caught.value.remedy) == ("of one colour" in seen)


FIELDS = "port.serial=5580\nport.adb=5581\navd.name=pixel\navd.dir=/avd/pixel.avd\n"


@pytest.fixture
def pid() -> Iterator[int]:
    process = bystander("-avd", "pixel")
    yield process.pid
    process.kill()
    process.communicate()


def announce(directory: Path, pid: int, text: str = FIELDS) -> dict[str, str]:
    folder = directory / "avd" / "running"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"pid_{pid}.ini").write_text(text)
    return {"XDG_RUNTIME_DIR": str(directory), "HOME": str(directory / "home"), "USER": "nobody-of-this-name"}


def test_only_one_that_runs_and_is_an_emulator_is_found(tmp_path: Path, pid: int) -> None:
    editor, gone = bystander(name="editor"), dead_pid()
    for one in (pid, editor.pid, gone):
        environ = announce(tmp_path, one)
    editor.communicate()
    (found,) = [one for one in running(environ) if one.avd_dir == Path("/avd/pixel.avd")]
    assert (found.key.pid, found.avd_name, found.serial) == (pid, "pixel", "emulator-5580")


# As emulators of several years print them: with a level in front, with "emulator:", bare.
COLD = "instead of loading the snapshot: "
LINES: list[tuple[str, type[EmulatorError], str]] = [
    ("FATAL        | Not enough disk space to run AVD 'pixel'. Exiting...", LowDisk, "Free some GB"),
    ("ERROR   | Not enough space to create userdata partition. Available: 3 MB.", LowDisk, "Free some GB"),
    (
        "emulator: ERROR: A snapshot operation for 'pixel' is pending and timeout has expired. Exiting...",
        SnapshotPending,
        "snapshot.lock",
    ),
    ("FATAL        | Running multiple emulators with the same AVD ", AvdLocked, "clone the AVD"),
    ("ERROR        | Another emulator instance is running. Please close it.", AvdLocked, "clone the AVD"),
    ("emulator: ERROR: There's another emulator instance running with the AVD.", AvdLocked, "clone the AVD"),
    ("ERROR   | x86_64 emulation currently requires hardware acceleration!", NoAcceleration, ""),
    ("ERROR | It seems too many emulator instances are running on this machine.", PortInUse, "--port"),
]
OF_SNAPSHOTS: list[tuple[str, type[EmulatorError], str]] = [
    ("WARNING      | Failed to load snapshot 'base'", SnapshotFailed, "'base' does not load"),
    ("WARNING | Device 'cache' does not have the requested snapshot 'base'", SnapshotMissing, "'base'"),
    (
        "WARNING      | Cold boot: selected renderer 'auto' doesn't support snapshots",
        SnapshotFailed,
        f"{COLD}selected renderer 'auto' doesn't support snapshots",
    ),
    ("WARNING | Resetting for cold boot: bad snapshot", SnapshotFailed, f"{COLD}bad snapshot"),
    (
        "emulator: WARNING: ignoring -snapshot option due to the use of -no-snapshot.",
        SnapshotFailed,
        f"{COLD}ignoring -snapshot option due to the use of -no-snapshot.",
    ),
]


@pytest.mark.parametrize(("line", "kind", "said"), [*LINES, *OF_SNAPSHOTS])
def test_each_known_line_has_its_error_and_remedy(line: str, kind: type[EmulatorError], said: str) -> None:
    error = fault_of(line, "emulator-5554", from_snapshot=True)
    assert type(error) is kind
    assert said in str(error)
    assert (error.serial, error.evidence) == ("emulator-5554", line)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "INFO         | Boot completed in 41234 ms",
        "ERROR        | Unable to connect to adb daemon on port: 5037",
        "",
        *(line for line, _, _ in OF_SNAPSHOTS),
    ],
)
def test_other_lines_end_nothing_nor_does_a_snapshot_that_was_not_asked_for(line: str) -> None:
    assert fault_of(line) is None
    assert fault_of("INFO | Successfully loaded snapshot 'base'", from_snapshot=True) is None


def test_a_log_is_followed_line_by_line(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path / "log")
    assert follower.lines() == []
    with follower.path.open("wb", buffering=0) as file:
        file.write(b"one\r\ntw")
        assert follower.lines() == ["one"]
        file.write(b"o\n\xff\n")
        assert follower.lines() == ["two", "\ufffd"]
        assert follower.lines() == []
    assert follower.tail(4) == "o\n\ufffd\n"
