"""The emulator's console: secret, answers, refusals, snapshots, one deadline."""

from __future__ import annotations

from pathlib import Path

import pytest
from adb_console_fake import fake_console

from distrl.workers.devices.console import Console
from distrl.workers.devices.errors import (
    DeviceDisconnected,
    DeviceError,
    DeviceNotFound,
    DeviceTimeout,
    EmulatorError,
    LowDisk,
    ServiceRejected,
    SnapshotFailed,
    SnapshotPending,
)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


def test_a_wrong_or_absent_secret_is_said_so(token: Path, tmp_path: Path) -> None:
    with fake_console(lambda line: b"OK\r\n", token="another") as fake:
        with pytest.raises(ServiceRejected, match="authentication token does not match") as caught:
            Console(fake.port, token).command("ping")
        assert "secret" not in str(caught.value)
        with pytest.raises(ServiceRejected, match="none, which cannot be read"):
            Console(fake.port, tmp_path / "none").command("ping")
    assert fake.commands == []


def test_an_answer_is_its_lines_or_an_error_with_its_text(token: Path) -> None:
    with fake_console(lambda line: b"Pixel_6\r\nOK\r\n" if "avd" in line else b"KO:  unknown\r\n") as fake:
        console = Console(fake.port, token)
        assert [console.command(text) for text in ("avd name", "avd status")] == [["Pixel_6"]] * 2
        with pytest.raises(ServiceRejected, match=f"^emulator-{fake.port}: its console refuses 'sim fault'"):
            console.command("sim fault")
    assert fake.commands == ["avd name", "avd status", "sim fault"]


def test_the_deadline_holds(token: Path) -> None:
    with fake_console(lambda line: None) as fake, pytest.raises(DeviceTimeout, match=r"within 0\.3 s"):
        Console(fake.port, token).command("ping", 0.3)
    with pytest.raises(DeviceNotFound, match=f"no emulator console listens at port {fake.port}"):
        Console(fake.port, token).command("ping")
    with fake_console(lambda line: b"", token="") as fake, pytest.raises(DeviceDisconnected):
        Console(fake.port, token).command("ping")  # without a secret, and an answer cut short


@pytest.mark.parametrize("answer", [b"OK: killing emulator, bye bye\r\n", b""])
def test_kill_is_done_when_the_emulator_says_so_or_hangs_up(token: Path, answer: bytes) -> None:
    with fake_console(lambda line: answer) as fake:
        Console(fake.port, token).kill()
    assert fake.commands == ["kill"]


def test_snapshots_are_saved_loaded_and_deleted(token: Path) -> None:
    with fake_console(lambda line: b"OK\r\n") as fake:
        console = Console(fake.port, token)
        console.snapshot("save", "s1")
        console.snapshot("load", "s1")
        console.snapshot("delete", "s1")
    assert fake.commands == [f"avd snapshot {verb} s1" for verb in ("save", "load", "delete")]


@pytest.mark.parametrize(
    ("said", "kind", "remedy"),
    [
        ("A snapshot operation for 'P' is pending and timeout has expired", SnapshotPending, "Wait"),
        ("Not enough disk space to save", LowDisk, "Free some"),
        ("emulator is read-only", SnapshotFailed, "-read-only"),
        ("", SnapshotFailed, "log"),
    ],
)
def test_a_failed_save_is_told_by_its_cause(
    token: Path, said: str, kind: type[DeviceError], remedy: str
) -> None:
    with fake_console(lambda line: f"KO: {said}\r\n".encode()) as fake, pytest.raises(DeviceError) as caught:
        Console(fake.port, token).snapshot("save", "s")
    assert type(caught.value) is kind
    assert caught.value.evidence == said
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("name", ["", "a b", "a\nkill", "../x", "-x", "x" * 101])
def test_names_that_the_console_would_take_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(EmulatorError, match="not a valid snapshot name"):
        Console(1).snapshot("save", name)
    with pytest.raises(ValueError, match="one line"):
        Console(1).command("ping\r\nkill")
