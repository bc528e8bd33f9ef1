"""The emulator's key=value files."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.workers.devices.avd import read_ini, rewrite_ini, write_ini
from distrl.workers.devices.errors import EmulatorError

TEXT = "# path=comment\nhw.ramSize = 2048\n\npath=/a=b\nno value\nlast=\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.ini"
    path.write_text(TEXT)
    return path


def test_keys_and_values(file: Path) -> None:
    assert read_ini(file) == {"hw.ramSize": "2048", "path": "/a=b", "last": ""}


def test_only_what_changes_is_written_anew(file: Path) -> None:
    rewrite_ini(file, lambda key, value: {"hw.ramSize": "4096", "last": None}.get(key, value))
    assert file.read_text() == "# path=comment\nhw.ramSize = 4096\n\npath=/a=b\nno value\n"


def test_without_a_change_every_byte_stays(file: Path) -> None:
    rewrite_ini(file, lambda key, value: value)
    assert file.read_text() == TEXT


def test_bytes_that_are_no_utf_8_survive(tmp_path: Path) -> None:
    path = tmp_path / "x.ini"
    path.write_bytes(b"name=\xff\xfe\npath=a\n")
    rewrite_ini(path, lambda key, value: "b" if key == "path" else value)
    assert path.read_bytes() == b"name=\xff\xfe\npath=b\n"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_ini(tmp_path / "x.ini", {"a": "1", "b": "x=y"})
    assert read_ini(tmp_path / "x.ini") == {"a": "1", "b": "x=y"}
    assert [path.name for path in tmp_path.iterdir()] == ["x.ini"]


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match=r"none\.ini"):
        read_ini(tmp_path / "none.ini")
