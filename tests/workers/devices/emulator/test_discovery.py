"""Emulators that announce themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator_programs import bystander, dead_pid

from distrl.workers.devices.emulator import running

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
    (found,) = mine(environ, pid)
    assert (found.avd_name, found.console_port) == ("pixel", 5580)
    assert (found.serial, found.avd_dir) == ("emulator-5580", Path("/avd/pixel.avd"))


def test_the_home_directory_counts_without_a_runtime_directory(tmp_path: Path, pid: int) -> None:
    announce(tmp_path / ".android", pid)
    assert mine({"HOME": str(tmp_path), "USER": "nobody-of-this-name"}, pid)


def test_the_dead_do_not_count(tmp_path: Path) -> None:
    pid = dead_pid()
    assert not mine(announce(tmp_path, pid), pid)


def test_another_process_under_the_same_number_does_not_count(tmp_path: Path) -> None:
    process = bystander(name="editor")
    assert not mine(announce(tmp_path, process.pid), process.pid)
    process.communicate()


@pytest.mark.parametrize("text", ["", "port.serial=5580\n", FIELDS.replace("5580", "x")])
def test_a_file_that_is_not_whole_does_not_count(tmp_path: Path, pid: int, text: str) -> None:
    assert not mine(announce(tmp_path, pid, text), pid)
