"""`distrl inspect`: lists with filters, and one trajectory as a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Fault, Observation, Outcome, Task, TimeStep, Trajectory
from distrl.learner.task_statistics import TaskRecord, write_table

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


def test_the_list_is_filtered_and_newest_first(run_dir: Path) -> None:
    def listed(*options: str) -> list[str]:
        result = runner.invoke(app, ["inspect", str(run_dir), *options])
        assert result.exit_code == 0
        return [line.split()[0] for line in result.stdout.splitlines()[1:]]

    assert listed() == ["00000002ffff", "00000001ffff", "00000000ffff"]
    assert listed("--template", "alarm", "--limit", "1") == ["00000001ffff"]
    assert listed("--outcome", "success") == ["00000002ffff", "00000000ffff"]
    assert listed("--failed") == listed("--mode", "premature-stop") == ["00000001ffff"]
    assert listed("--mode", "stuck") == listed("--min-steps", "2") == []
    assert listed("--success", "--template", "toggle") == ["00000002ffff"]


@pytest.mark.needs("jinja2")
def test_what_is_found_becomes_a_page(run_dir: Path, tmp_path: Path) -> None:
    page = tmp_path / "found.html"
    command = ["inspect", str(run_dir), "--template", "alarm", "--html", "--output", str(page)]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.stderr
    html = page.read_text()
    assert "template: alarm" in html
    assert html.count('class="card example"') == 2
    assert "s/alarm/1" in html
    assert "s/toggle/2" not in html
    assert runner.invoke(app, command).exit_code == 3


def test_training_tasks_are_listed_with_what_became_of_them(run_dir: Path) -> None:
    table = {
        "s/alarm/0": TaskRecord("alarm", episodes=4, judged=4, success=3.0, steps=10, seconds=6.0, faults=1),
        "s/toggle/0": TaskRecord("toggle", expired=2, abandoned=1),
    }
    write_table(run_dir / "tasks.json", table)
    result = runner.invoke(app, ["inspect", str(run_dir), "--tasks"])
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["4", "0.75", "2.5", "1.5", "1", "0", "0", "s/alarm/0"],
        ["0", "-", "-", "-", "0", "2", "1", "s/toggle/0"],
    ]
    only = runner.invoke(app, ["inspect", str(run_dir), "--tasks", "--template", "alarm"])
    assert [line.split()[-1] for line in only.stdout.splitlines()[1:]] == ["s/alarm/0"]


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
        (["--tasks"], 10, "A learner writes it with each checkpoint"),
    ],
)
def test_wrong_questions_get_one_line(run_dir: Path, arguments: list[str], code: int, expected: str) -> None:
    result = runner.invoke(app, ["inspect", str(run_dir), *arguments])
    assert result.exit_code == code
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_place_without_a_store_is_an_error(tmp_path: Path) -> None:
    result = runner.invoke(app, ["inspect", str(tmp_path / "nowhere")])
    assert result.exit_code == 10
    assert "no trajectory store" in result.stderr
