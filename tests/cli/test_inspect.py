"""`distrl inspect`: lists with filters, and one trajectory as a page."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core.store import TrajectoryStore
from distrl.core.types import (
    ActionRecord,
    Branch,
    Fault,
    Observation,
    Outcome,
    Purpose,
    Task,
    TimeStep,
    Trajectory,
)

runner = CliRunner()
IMAGE = "0" * 32


def trajectory(number: int, template: str, success: bool, fault: Fault = Fault.NONE) -> Trajectory:
    return Trajectory(
        id=f"{number:08x}" + "f" * 24,
        task=Task(id=f"s/{template}/{number}", suite="s", template=template, split="test", goal="Go <b>"),
        steps=(
            TimeStep(
                observation=Observation(image=IMAGE, width=9, height=20),
                chats=(),
                action=ActionRecord(kind="complete"),
                done=True,
            ),
        ),
        outcome=Outcome.SUCCESS if success else Outcome.FAILURE,
        fault=fault,
        success=float(success),
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    for number, (template, success) in enumerate([("alarm", True), ("alarm", False), ("toggle", True)]):
        store.add(trajectory(number, template, success), {IMAGE: b"bytes"})
    store.close()
    return tmp_path


def test_an_imagined_episode_is_shown_beside_the_real_one(tmp_path: Path) -> None:
    done = trajectory(0, "alarm", True)
    tap = TimeStep(
        observation=Observation(image=IMAGE, width=9, height=20),
        chats=(),
        action=ActionRecord(kind="tap", point=(0.5, 0.5)),
    )
    real = done.model_copy(update={"steps": (tap, tap, *done.steps)})
    branch = Branch.of(real, 1, horizon=4)
    other = {"id": "1" * 32, "purpose": Purpose.IMAGINED, "branch": branch}
    lone = {**other, "id": "2" * 32, "branch": branch.model_copy(update={"trajectory": "9" * 32})}
    with contextlib.closing(TrajectoryStore(tmp_path / "store.sqlite3")) as store:
        for one in (real, done.model_copy(update=other), done.model_copy(update=lone)):
            store.add(one, {IMAGE: b"bytes"})

    def strips(name: str) -> list[list[str]]:
        """The numbers of the steps of each strip on the page."""
        file = tmp_path / f"{name}.html"
        result = runner.invoke(
            app, ["inspect", str(tmp_path), "--trajectory", name * 32, "--output", str(file)]
        )
        assert result.exit_code == 0, result.output
        strips = file.read_text().split('<ol class="strip">')[1:]
        return [re.findall(r'<div class="cap"><b>(\d+)</b>', strip) for strip in strips]

    assert strips("1") == [["2"], ["2", "3"]]  # both go on after the first step
    assert strips("2") == []  # the real one has been trimmed


def test_the_list_is_filtered_and_newest_first(run_dir: Path) -> None:
    def listed(*options: str) -> list[str]:
        result = runner.invoke(app, ["inspect", str(run_dir), *options])
        assert result.exit_code == 0
        return [line.split()[0] for line in result.stdout.splitlines()[1:]]

    assert listed() == ["00000002ffff", "00000001ffff", "00000000ffff"]
    assert listed("--template", "alarm", "--limit", "1") == ["00000001ffff"]
    assert listed("--outcome", "success") == ["00000002ffff", "00000000ffff"]
    assert listed("--failed") == listed("--mode", "premature-stop") == ["00000001ffff"]
    assert listed("--mode", "stuck") == []
    assert listed("--success", "--template", "toggle") == ["00000002ffff"]
    assert listed("--task", "s/alarm/1") == ["00000001ffff"]
    assert listed("--split", "test", "--seed", "0") == listed()
    assert listed("--template", "toggle", "--failed") == []


@pytest.fixture
def hostile_run(run_dir: Path) -> Path:
    """A run with an episode of another version: actions that this one does not know, and odd names."""
    odd = trajectory(9, "alarm", False)
    steps = [
        odd.steps[0].model_copy(update={"action": action, "done": False})
        for action in (ActionRecord(kind="dance"), ActionRecord(kind="dance"), ActionRecord(kind="tap"))
    ]
    task = odd.task.model_copy(update={"id": "s/x\x1b]0;owned\x07\n00000000ffff  success \u202e"})
    odd = odd.model_copy(update={"id": "a\x1b[2J\nb", "steps": tuple(steps), "task": task, "truncated": True})
    store = TrajectoryStore(run_dir / "store.sqlite3")
    store.add(odd, {IMAGE: b"bytes"})
    store.close()
    return run_dir


def test_a_record_of_another_version_hides_no_other_and_controls_no_terminal(hostile_run: Path) -> None:
    result = runner.invoke(app, ["inspect", str(hostile_run)])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)
    assert "a\\x1b[2J\\nb" in lines[1]
    assert "s/x\\x1b]0;owned\\x07\\n00000000ffff  success \\u202e" in lines[1]
    assert [line.split()[0] for line in lines[2:]] == ["00000002ffff", "00000001ffff", "00000000ffff"]


@pytest.mark.needs("jinja2")
def test_an_unknown_action_is_shown_as_such(hostile_run: Path, tmp_path: Path) -> None:
    for option in (["--html"], ["--trajectory", "a\x1b"]):
        page = tmp_path / "page.html"
        result = runner.invoke(app, ["inspect", str(hostile_run), *option, "--output", str(page), "--force"])
        assert result.exit_code == 0, result.output
        assert "Unknown action “dance”" in page.read_text()


def tell(run: Path, goal: str) -> None:
    """Stores another trajectory, of a task with this goal."""
    store = TrajectoryStore(run / "store.sqlite3")
    one = trajectory(9, "alarm", True)
    store.add(one.model_copy(update={"task": one.task.model_copy(update={"goal": goal})}), {IMAGE: b"bytes"})
    store.close()


@pytest.mark.parametrize("width", [80, 160])
def test_goals_fit_a_terminal_and_cannot_control_it(run_dir: Path, monkeypatch, width: int) -> None:
    monkeypatch.setattr("distrl.cli.inspect._terminal_width", lambda: width)
    tell(run_dir, "Open \x1b[2J 設定 " + "and scroll further " * 9)
    lines = runner.invoke(app, ["inspect", str(run_dir)]).stdout.splitlines()
    assert "Open \\x1b[2J 設定 and scroll" in lines[1]
    assert lines[1].endswith("…")
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)
    assert ("s/alarm/9" in lines[1]) == (width > 100)


def test_tasks_are_listed_with_what_became_of_them(run_dir: Path) -> None:
    def tasks(*filters: str) -> list[list[str]]:
        result = runner.invoke(app, ["inspect", str(run_dir), "--tasks", *filters])
        assert result.exit_code == 0, result.output
        return [line.split() for line in result.stdout.splitlines()[1:]]

    store = TrajectoryStore(run_dir / "store.sqlite3")
    for number, fault in ((3, Fault.NONE), (4, Fault.DEVICE)):
        again = trajectory(0, "alarm", False, fault).model_copy(update={"id": f"{number}", "duration_s": 3.0})
        store.add(again, {IMAGE: b"bytes"})
    store.close()
    assert tasks("--limit", "2") == [
        ["train", "2", "0.50", "1.0", "1.5", "1", "s/alarm/0"],
        ["train", "1", "1.00", "1.0", "0.0", "0", "s/toggle/2"],
    ]
    assert [line[-1] for line in tasks("--template", "alarm")] == ["s/alarm/0", "s/alarm/1"]


@pytest.mark.needs("jinja2")
def test_one_trajectory_becomes_a_page_that_is_not_overwritten(run_dir: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ["inspect", str(run_dir), "--trajectory", "00000001", "--output", str(page)]
    result = runner.invoke(app, command)
    assert result.exit_code == 0
    assert str(page) in result.stdout
    html = page.read_text()
    assert "Go &lt;b&gt;" in html
    assert "not solved" in html

    page.write_text("mine")
    again = runner.invoke(app, command)
    assert again.exit_code == 3
    assert page.read_text() == "mine"
    assert runner.invoke(app, [*command, "--force"]).exit_code == 0
    assert page.read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--trajectory", "nope"], 10, "has no trajectory 'nope'"),
        (["--trajectory", "0000"], 10, "3 trajectories begin with"),
        (["--outcome", "won"], 2, "Use one of success"),
        (["--mode", "tired"], 2, "Use one of unrecovered-mistake"),
        (["--template", "alarms"], 2, "there is no template 'alarms' here. Did you mean 'alarm'?"),
        (["--split", "unseen"], 2, "there is no split 'unseen' here. Choose from: test."),
        (["--task", "s/alarm/9"], 2, "Did you mean 's/alarm/"),
        (["--seed", "7"], 2, "there is no seed '7' here. Choose from: 0."),
        (["--tasks", "--template", "alarms"], 2, "Did you mean 'alarm'?"),
        (["--tasks", "--html"], 2, "Use one of them"),
        (["--output", "x.html"], 2, "Add --html or --trajectory"),
        (["--trajectory", "0000", "--split", "test"], 2, "filters have no effect"),
    ],
)
def test_wrong_questions_get_one_line(run_dir: Path, arguments: list[str], code: int, expected: str) -> None:
    result = runner.invoke(app, ["inspect", str(run_dir), *arguments])
    assert result.exit_code == code
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_quarantined_trajectories_are_listed_with_the_reason(run_dir: Path) -> None:
    store = TrajectoryStore(run_dir / "store.sqlite3")
    store.quarantine("00000001ffff0000", "IndexError: out of range")
    store.close()
    result = runner.invoke(app, ["inspect", str(run_dir)])
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1].split(maxsplit=3)
    assert (last[0], last[3]) == ("00000001ffff", "IndexError: out of range")
