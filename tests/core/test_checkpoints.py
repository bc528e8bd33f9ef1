"""Checkpoint directories: whole or not at all, pointers, damage named, old ones removed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distrl.core import checkpoints
from distrl.core.errors import CheckpointError


def make(directory: Path, name: str, text: str = "weights") -> Path:
    def fill(path: Path) -> None:
        (path / "policy").mkdir()
        (path / "policy" / "model.bin").write_text(text)
        (path / "state.json").write_text("{}")

    return checkpoints.write_checkpoint(directory, name, fill)


def test_names_and_pointers_resolve(tmp_path: Path) -> None:
    path = make(tmp_path, "step_3")
    checkpoints.point(tmp_path, "latest", "step_3")
    checkpoints.point(tmp_path, "best", "step_3", note="0.75")
    assert checkpoints.resolve(tmp_path) == path == checkpoints.resolve(tmp_path, "step_3")
    assert checkpoints.note_of(tmp_path, "best") == "0.75"
    assert checkpoints.note_of(tmp_path, "latest") == ""
    assert checkpoints.pointed(tmp_path, "final") is None


@pytest.mark.parametrize("name", ["latest", "step_9", "nonsense"])
def test_a_missing_checkpoint_says_what_there_is(tmp_path: Path, name: str) -> None:
    make(tmp_path, "step_3")
    with pytest.raises(CheckpointError, match="step_3"):
        checkpoints.resolve(tmp_path, name)


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_damage_is_found_and_the_file_named(tmp_path: Path, damage: str) -> None:
    path = make(tmp_path, "step_1")
    make(tmp_path, "step_2")
    victim = path / "policy" / "model.bin"
    if damage == "truncate":
        victim.write_text("weig")
    elif damage == "flip":
        victim.write_text("weightS")
    elif damage == "remove":
        victim.unlink()
    else:
        victim = path / checkpoints.MANIFEST
        victim.write_text("{")
    with pytest.raises(CheckpointError, match=rf"{victim.name}.*Use another checkpoint: step_2\.$"):
        checkpoints.resolve(tmp_path, "step_1")


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill(path: Path) -> None:
        (path / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space"):
        checkpoints.write_checkpoint(tmp_path, "step_1", fill)
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_half_written_can_be_removed(tmp_path: Path) -> None:
    make(tmp_path, "step_1")
    (tmp_path / ".step_2.tmp" / "policy").mkdir(parents=True)
    checkpoints.remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_after_going_back_best_never_names_other_weights_than_were_measured(tmp_path: Path) -> None:
    for number in (100, 110):
        make(tmp_path, f"step_{number}")
    checkpoints.point(tmp_path, "best", "step_110", note="0.9")
    checkpoints.point(tmp_path, "final", "step_110")
    checkpoints.point(tmp_path, "latest", "step_100")
    make(tmp_path, "step_105", "other weights")
    assert checkpoints.pointed(tmp_path, "best") == "step_110"
    make(tmp_path, "step_110", "other weights")
    assert checkpoints.pointed(tmp_path, "best") is None
    assert checkpoints.note_of(tmp_path, "best") == ""
    assert checkpoints.pointed(tmp_path, "final") is None
    assert checkpoints.pointed(tmp_path, "latest") == "step_100"


def test_what_was_measured_of_earlier_weights_goes_when_their_name_is_used_again(tmp_path: Path) -> None:
    for name in ("step_1", "step_2"):
        (tmp_path / "evaluations" / name / "seed-0").mkdir(parents=True)
    make(tmp_path / "checkpoints", "step_2")
    assert [path.name for path in (tmp_path / "evaluations").iterdir()] == ["step_1"]


@pytest.mark.parametrize(
    ("latest", "removed"),
    [(105, ["step_90", "step_110", "step_130"]), (None, ["step_90", "step_100", "step_105", "step_110"])],
    ids=["what was rolled back does not count as newest", "without a pointer"],
)
def test_old_ones_go_but_not_what_is_protected_or_pointed_to(tmp_path: Path, latest, removed) -> None:
    names = [make(tmp_path, f"step_{number}").name for number in (0, 90, 100, 105, 110, 120, 130)]
    checkpoints.point(tmp_path, "best", "step_120")
    if latest is not None:
        checkpoints.point(tmp_path, "latest", f"step_{latest}")
    assert checkpoints.remove_old(tmp_path, 2, {"step_0"}) == removed
    assert checkpoints.checkpoints(tmp_path) == [name for name in names if name not in removed]


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_lost_pointer_is_told_and_not_taken_for_a_new_run(tmp_path: Path, is_empty: bool) -> None:
    for number in (0, 40):
        make(tmp_path, f"step_{number}")
    if is_empty:
        (tmp_path / "latest").write_text("\n")
    with pytest.raises(
        CheckpointError, match=r"latest does not name an existing checkpoint; available: step_0, step_40\."
    ):
        checkpoints.to_resume_from(tmp_path)
    checkpoints.point(tmp_path, "latest", "step_40")
    assert checkpoints.to_resume_from(tmp_path) == tmp_path / "step_40"


def test_a_crash_before_the_first_pointer_costs_nothing(tmp_path: Path) -> None:
    assert checkpoints.to_resume_from(tmp_path) is None
    make(tmp_path, "step_0")
    assert checkpoints.to_resume_from(tmp_path) is None


def test_an_old_one_that_cannot_be_removed_is_tried_again(tmp_path: Path, monkeypatch, caplog) -> None:
    for number in (5, 10, 15, 20):
        make(tmp_path, f"step_{number}")
    real = checkpoints.shutil.rmtree

    def busy(path: Path) -> None:
        if path.name == "step_5":
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.shutil, "rmtree", busy)
        assert checkpoints.remove_old(tmp_path, 2, set()) == ["step_10"]
    assert "step_5 yet: Directory not empty" in caplog.text
    assert checkpoints.remove_old(tmp_path, 2, set()) == ["step_5"]
