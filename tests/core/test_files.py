"""Files are written whole or not at all, and what the system says against it is told to users."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_disk import full_disk

from distrl.core.errors import CheckpointError, PolicyError, RunDirectoryError
from distrl.core.files import write_atomically, write_bytes_atomically, writing


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
