"""Files are written whole or not at all, and what the system says against it is told to users."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from full_disk import full_disk

from distrl.core.errors import CheckpointError, PolicyError, RunDirectoryError
from distrl.core.files import Scratch, abandoned, reclaim, write_atomically, write_bytes_atomically, writing


def refuse() -> None:
    raise OSError(28, "No space left on device")


def refuse_as_torch() -> None:
    try:
        refuse()
    finally:
        raise RuntimeError("unexpected pos 768 vs 662")


def refuse_as_rust() -> None:
    raise ValueError("Error while serializing: No space left on device (os error 28)")


@pytest.mark.parametrize("write", [refuse, refuse_as_torch, refuse_as_rust])
def test_a_full_disk_is_told_whoever_met_it(tmp_path: Path, write) -> None:
    message = r"weights cannot be written: .*No space left.*Free some"
    with pytest.raises(CheckpointError, match=message), writing(tmp_path / "weights", CheckpointError):
        write()


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), PolicyError("It does not fit.")])
def test_other_errors_stay_what_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, writing(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("is_durable", [False, True])
def test_what_does_not_fit_leaves_the_old_file_and_nothing_else(tmp_path: Path, is_durable: bool) -> None:
    file = tmp_path / "table.json"
    write_atomically(file, "old")
    with pytest.raises(RunDirectoryError, match=r"table.json cannot be written"), full_disk(1000):
        write_bytes_atomically(file, bytes(2000), is_durable)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    write_bytes_atomically(file, b"new", is_durable)
    assert file.read_text() == "new"


def test_the_reason_is_told_where_nothing_can_be_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match=r"Not a directory.*existing folder"):
        write_bytes_atomically(tmp_path / "file" / "table.json", b"new")


KILLED = """
import os, signal
from distrl.core.files import Scratch
scratch = Scratch("{kind}")
(scratch.path / "log").write_text("what it had to say")
print(scratch.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files, here and in started processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def of_a_killed_process(kind: str = "test") -> Path:
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(kind=kind)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(done.stdout.strip())


def test_it_is_private_and_goes_with_all_that_is_in_it(temporary: Path) -> None:
    with Scratch("test") as scratch:
        assert scratch.path.parent == temporary
        assert scratch.path.stat().st_mode & 0o777 == 0o700
        (scratch.path / "folder").mkdir()
        (scratch.path / "folder" / "file").touch()
    assert list(temporary.iterdir()) == []
    scratch.remove()


def test_one_that_is_held_is_not_abandoned() -> None:
    with Scratch("test") as scratch, Scratch("test") as other:
        assert abandoned() == []
        assert not reclaim(scratch.path)
        assert scratch.path.exists()
        assert other.path.exists()


def test_what_a_killed_process_left_goes_with_the_next_of_its_kind(temporary: Path) -> None:
    left, others = of_a_killed_process(), of_a_killed_process("other")
    assert abandoned() == sorted([left, others])
    with Scratch("test") as scratch:
        assert sorted(temporary.iterdir()) == sorted([others, scratch.path])
    assert reclaim(others)
    assert not reclaim(others)
    assert list(temporary.iterdir()) == []


def test_what_is_none_of_these_folders_is_left_alone(temporary: Path) -> None:
    (temporary / "distrl-test-bare").mkdir()
    (temporary / "distrl-test-file").touch()
    held = temporary / "elsewhere"
    held.mkdir()
    (held / ".held").touch()
    (temporary / "distrl-test-link").symlink_to(held)
    before = sorted(temporary.iterdir())
    assert abandoned() == []
    Scratch("test").remove()
    assert sorted(temporary.iterdir()) == before
