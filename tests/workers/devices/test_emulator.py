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
from distrl.workers.devices.emulator import EmulatorOptions, EmulatorProcess, running, wait_booted
from distrl.workers.devices.errors import (
    AvdLocked,
    BootTimeout,
    DeviceNotFound,
    DeviceTimeout,
    EmulatorError,
    EmulatorExited,
    LowDisk,
    SnapshotFailed,
    SnapshotMissing,
)
from distrl.workers.devices.processes import Entry, Registry
from distrl.workers.devices.screen import ScreenMark
from distrl.workers.devices.sdk import Sdk
from distrl.workers.devices.snapshots import Manifest, write_manifest

pytestmark = pytest.mark.usefixtures("state")


WAITS = 'read forever <> "$0.fifo"'
"""Waits for ever: nobody writes into it."""
LIVES = 'echo "$@"; echo "home=$ANDROID_AVD_HOME server=$ANDROID_ADB_SERVER_PORT"; ' + WAITS
Make = Callable[..., EmulatorProcess]


class Nobody:
    """A client of a device that the adb server does not see."""

    serial = "nobody"

    def state(self, timeout_s: float = 2.0) -> str:
        raise DeviceNotFound("no such device.")

    def shell(self, command: str, timeout_s: float) -> None:
        raise AssertionError

    def exec_out(self, command: str, timeout_s: float) -> bytes:
        raise AssertionError


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
        ports = claim_ports(sim_phones.free_pair())
        one = EmulatorProcess(
            Sdk(script, "--sdk"), avd, ports, EmulatorOptions(**options), adb_server_port=12345
        )
        made.append(one)
        return one

    yield _make
    for one in made:
        one.stop(0.0)
        one.ports.release()
    assert Registry().entries() == []


def said(process: EmulatorProcess) -> str:
    until(lambda: "server=" in process.log.tail(), details=process.log.tail)
    return process.log.tail()


def test_it_is_told_what_it_needs(make: Make, avd: Avd) -> None:
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
    assert f"home={avd.home}" in words
    assert "server=12345" in words
    with pytest.raises(BootTimeout) as caught:
        process.wait_booted(Nobody(), 0.1)
    assert "server=12345" in caught.value.evidence


def test_it_takes_the_images_of_its_own_sdk(
    tmp_path: Path, avd: Avd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.setenv(name, "/another/sdk")
    script = program(tmp_path / "sdk" / "emulator", 'echo "[$ANDROID_HOME $ANDROID_SDK_ROOT]"')
    with claim_ports(sim_phones.free_pair()) as ports:
        process = EmulatorProcess(Sdk(script, "--sdk", tmp_path / "sdk"), avd, ports)
        process.start()
        until(lambda: "]" in process.log.tail())
        process.stop()
    assert process.log.tail() == f"[{tmp_path / 'sdk'} {tmp_path / 'sdk'}]\n"


def test_who_stops_it_while_it_starts_leaves_nothing_behind(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a pool that closes: between the start of the program and its entry."""
    process = make(LIVES)
    add = Registry.add

    def stop_first(self: Registry, pid: int, *args: Any, **more: Any) -> Entry:
        assert process.stop(0.0) in ("SIGTERM", "SIGKILL")
        return add(self, pid, *args, **more)

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
    assert entry.is_running
    assert not entry.is_orphan
    assert process.stop() == "SIGTERM"
    assert process.pid is None
    assert not processes.is_alive(entry.key)
    assert process.stop() == "gone"


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (
            "echo 'INFO | hello'; echo 'ERROR | the skin is missing'; exit 3",
            EmulatorExited,
            r"ended with exit status 3, saying: the skin is missing\. See",
        ),
        ("echo \"FATAL | Not enough disk space to run AVD 'pixel'. Exiting...\"; " + WAITS, LowDisk, "disk"),
        ("kill -9 $$", EmulatorExited, "was ended by signal 9"),
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


def test_a_snapshot_of_other_hardware_is_not_started_from(make: Make, avd: Avd) -> None:
    screen = ScreenMark(1, 1, "")
    manifest = Manifest("base", "pixel", 0.0, 34, "", "host", "", {}, 420, screen, {"cores": 64})
    write_manifest(manifest, avd.snapshots / "base")
    process = make(LIVES, snapshot="base", extra=("-cores", "2"))
    with pytest.raises(SnapshotFailed, match="cores: 64 when it was saved, 2 now"):
        process.start()
    assert process.pid is None
    make(LIVES, snapshot="base", extra=("-cores", "64")).start()


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


def test_a_missing_snapshot_is_seen_before_the_start(make: Make) -> None:
    process = make(LIVES, snapshot="other")
    with pytest.raises(SnapshotMissing, match="distrl snapshot-avd create pixel other"):
        process.start()
    assert process.pid is None


def test_a_locked_avd_is_seen_before_the_start(make: Make, avd: Avd) -> None:
    emulator = bystander()
    (avd.directory / "hardware-qemu.ini.lock").write_text(str(emulator.pid))
    with pytest.raises(AvdLocked):
        make(LIVES).start()
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
    """What a phone shows from which second on; each call takes a tenth of one.

    Attributes:
        answers: For each question the answers by second; an exception is raised.
        asked: The questions, with their timeouts.
    """

    answers: dict[str, list[tuple[float, object]]]
    now: float = 0.0
    display, serial = DEFAULT_DISPLAY, "emulator-5554"
    asked: list[tuple[str, float]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, question: str, timeout_s: float) -> object:
        self.asked.append((question, timeout_s))
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
        answer = self.ask(command, timeout_s)
        assert isinstance(answer, bytes)
        return answer


def phone(**changes: list[tuple[float, object]]) -> Phone:
    """A phone that boots in twenty seconds."""
    names = {
        "state": "state",
        "booted": "getprop sys.boot_completed",
        "animation": "getprop init.svc.bootanim",
        "size": "wm size",
        "picture": "screencap -p",
    }
    answers: dict[str, list[tuple[float, object]]] = {
        "state": [(0, DeviceNotFound("no such device.")), (2, "offline"), (5, "device")],
        "booted": [(0, ""), (10, "1")],
        "animation": [(0, "running"), (15, "stopped")],
        "size": [(0, "Can't find service: window\n"), (18, "Physical size: 1080x2400\n")],
        "picture": [(0, b""), (18, png("black")), (20, png("black", "white"))],
    }
    return Phone({names[key]: value for key, value in (answers | changes).items()})


def wait(phone: Phone, timeout_s: float = 60.0, check: Callable[[], object] = lambda: None) -> float:
    """Waits. Returns how long."""
    wait_booted(phone, timeout_s, check, phone.clock, phone.sleep)
    return phone.now


def test_all_four_are_waited_for_in_order() -> None:
    assert 20 <= wait(phone(size=[(0, "Physical size: 1080x2400\nOverride size: 540x1200\n")])) < 21


@pytest.mark.parametrize(
    ("changes", "waits_for", "seen"),
    [
        ({"state": [(0, "offline")]}, "adb", "its state is 'offline'"),
        ({"state": [(0, DeviceNotFound("no such device."))]}, "adb", "no such device"),
        ({"booted": [(0, "")]}, "boot_completed", "sys.boot_completed is ''"),
        ({"booted": [(0, DeviceTimeout("too late."))]}, "boot_completed", "too late"),
        ({"animation": [(0, "running")]}, "bootanim", "init.svc.bootanim is 'running'"),
        ({"size": [(0, "Can't find service: window")]}, "service", "Can't find service"),
        ({"picture": [(0, png("black", "black"))]}, "service", "of one colour"),
        ({"picture": [(0, png("black", "white")[:40])]}, "service", "its screenshot ends after 40 bytes"),
        ({"picture": [(0, b"/system/bin/sh: screencap: not found")]}, "service", "is not a PNG picture"),
    ],
)
def test_what_never_comes_is_named(changes: dict, waits_for: str, seen: str) -> None:
    booting = phone(**changes)
    with pytest.raises(BootTimeout) as caught:
        wait(booting)
    assert booting.now < 61.0
    assert booting.asked[-1][1] <= 1.0  # one deadline bounds all of it
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


def mine(environ: dict[str, str], pid: int) -> list:
    return [one for one in running(environ) if one.key.pid == pid]


def test_a_running_one_is_found_with_its_ports(tmp_path: Path, pid: int) -> None:
    environ = announce(tmp_path, pid)
    assert not mine({**environ, "XDG_RUNTIME_DIR": ""}, pid)
    announce(tmp_path / "home" / ".android", pid)
    assert mine({**environ, "XDG_RUNTIME_DIR": ""}, pid)
    (found,) = mine(environ, pid)
    assert (found.avd_name, found.console_port) == ("pixel", 5580)
    assert (found.serial, found.avd_dir) == ("emulator-5580", Path("/avd/pixel.avd"))


def test_the_dead_do_not_count_nor_does_another_process_under_the_same_number(tmp_path: Path) -> None:
    process, gone = bystander(name="editor"), dead_pid()
    for pid in (process.pid, gone):
        assert not mine(announce(tmp_path, pid), pid)
    process.communicate()


@pytest.mark.parametrize("text", ["", "port.serial=5580\n", FIELDS.replace("5580", "x")])
def test_a_file_that_is_not_whole_does_not_count(tmp_path: Path, pid: int, text: str) -> None:
    assert not mine(announce(tmp_path, pid, text), pid)
