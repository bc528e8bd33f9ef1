"""`distrl cleanup`: what was left behind goes, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sim_phones
from emulator_programs import bystander, dead_pid
from emulator_world import emulator_world
from typer.testing import CliRunner, Result
from waiting import until

from distrl.cli.main import app
from distrl.core.files import Scratch
from distrl.workers.devices.emulator import running, running_from
from distrl.workers.devices.processes import Entry, Registry

runner = CliRunner()
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ANDROID_AVD_HOME", str(tmp_path / "avd"))
    for folder in ("avd", "tmp"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "avd"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes; whatever is left of them goes at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def _start(*words: str) -> subprocess.Popen[bytes]:
        started.append(bystander(*words))
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.communicate()


def enter(process: subprocess.Popen[bytes], *, orphan: bool = True, **changes: object) -> Entry:
    """Enters a process; an orphan's owner has ended."""
    registry = Registry()
    entry = registry.add(process.pid, "emulator of AVD pixel")
    if orphan:
        assert entry.owner is not None
        entry = replace(entry, owner=replace(entry.owner, pid=dead_pid()))
    entry = replace(entry, **changes)
    (path,) = registry.directory.glob(f"{process.pid}-*.json")
    path.write_text(json.dumps(asdict(entry)))
    return entry


def cleanup(*words: str) -> Result:
    return runner.invoke(app, ["cleanup", *words])


def test_an_orphan_is_ended_and_forgotten_and_an_unfinished_clone_removed(start: Start, home: Path) -> None:
    process = start("-avd", "pixel")
    enter(process)
    (home / "x.avd.distrl-partial").mkdir()
    (home / "pixel.avd").mkdir()
    result = cleanup()
    assert result.exit_code == 0
    assert [path.name for path in home.iterdir()] == ["pixel.avd"]
    assert f"emulator of AVD pixel (process {process.pid}) ended (SIGTERM)." in result.stdout
    assert process.wait(30.0) != 0
    assert Registry().entries() == []
    assert cleanup().stdout == "Nothing to clean up.\n"


def test_a_dry_run_only_says_so(start: Start, home: Path) -> None:
    process = start("-avd", "pixel")
    enter(process)
    (home / "x.avd.distrl-partial").mkdir()
    result = cleanup("--dry-run")
    assert f"(process {process.pid}) would be ended." in result.stdout
    assert "x.avd.distrl-partial, an unfinished clone, would be removed." in result.stdout
    assert process.poll() is None
    assert len(Registry().entries()) == 1
    assert (home / "x.avd.distrl-partial").exists()


def test_what_a_living_command_uses_stays_unless_all_is_asked_for(start: Start) -> None:
    process = start("-avd", "pixel")
    entry = enter(process, orphan=False)
    assert entry.owner is not None
    assert f"is in use by process {entry.owner.pid}; left alone" in cleanup().stdout
    assert process.poll() is None
    assert "ended (SIGTERM)" in cleanup("--all").stdout
    process.wait(30.0)


def test_a_stranger_under_the_same_number_is_not_touched(start: Start) -> None:
    process = start("-avd", "pixel")
    entry = enter(process)
    enter(process, key=replace(entry.key, started=entry.key.started - 10))
    result = cleanup("--all")
    assert f"(process {process.pid}) is gone." in result.stdout
    assert process.poll() is None


def test_folders_of_processes_that_are_gone_go_and_others_stay(home: Path) -> None:
    with Scratch("sim-host") as held, Scratch("chaos") as left:
        left._held.release()  # type: ignore[union-attr]  # as the kernel does when the process is killed
        told = f"{left.path}, a folder of a process that is gone, "
        assert cleanup("--dry-run").stdout == f"{told}would be removed.\n"
        assert left.path.exists()
        assert cleanup().stdout == f"{told}was removed.\n"
        assert not left.path.exists()
        assert held.path.exists()


def test_what_a_killed_command_left_is_ended(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A real command, killed while its emulator boots for ever."""
    with emulator_world(tmp_path_factory.mktemp("world")) as world:
        world.avd("pixel", "hang_boot")
        port = sim_phones.free_pair()
        words = ["snapshot-avd", "create", "pixel", "base", "--port", str(port)]
        command = subprocess.Popen([sys.executable, "-m", "distrl", *words], stderr=subprocess.DEVNULL)
        until(lambda: [one for one in running() if one.console_port == port], "the emulator")
        command.kill()
        command.wait()
        (entry,) = Registry().entries()
        assert entry.is_orphan
        result = cleanup()
        assert f"emulator of AVD pixel at port {port} (process {entry.key.pid}) ended" in result.stdout
        assert not entry.is_running
        assert running_from(world.sdk.store.get("pixel")) is None
