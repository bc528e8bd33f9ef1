"""`distrl tasks`: lists, filters, one task, and what wrong names are answered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core.types import Task
from distrl.evaluator.suites import SUITES, load_suite

runner = CliRunner()


def test_list_shows_every_task_of_a_split() -> None:
    result = runner.invoke(app, ["tasks", "list", "--split", "test"])
    assert result.exit_code == 0
    tasks = load_suite("quickstart", "test")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [task.id for task in tasks]
    assert tasks[0].goal in result.stdout
    assert f"{len(tasks)} tasks: {len(tasks)} test" in result.stderr
    assert tasks[0].id not in runner.invoke(app, ["tasks", "list", "two_screens"]).stdout


def test_json_lines_are_tasks() -> None:
    result = runner.invoke(app, ["tasks", "list", "--split", "val", "--template", "alarm", "--json"])
    tasks = [Task.model_validate_json(line) for line in result.stdout.splitlines()]
    assert tasks == [task for task in load_suite("quickstart", "val") if task.template == "alarm"]


def test_show_gives_the_whole_task() -> None:
    task = load_suite("quickstart", "test")[3]
    result = runner.invoke(app, ["tasks", "show", task.id])
    assert Task.model_validate(json.loads(result.stdout)) == task


def test_a_task_file_is_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"id": "mine/1", "goal": "Do it", "template": "t", "params": {}}))
    assert "mine/1" in runner.invoke(app, ["tasks", "list", str(file)]).stdout
    shown = runner.invoke(app, ["tasks", "show", "mine/1", "--suite", str(file)])
    assert json.loads(shown.stdout)["goal"] == "Do it"
    wrong = runner.invoke(app, ["tasks", "show", "mine/2", "--suite", str(file)])
    assert (wrong.exit_code, "Did you mean 'mine/1'?" in wrong.stderr) == (6, True)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["list", "quickstat"], 6, "quickstart"),
        (["list", "--split", "tests"], 6, "test"),
        (["list", "--template", "alarms"], 2, "Did you mean 'alarm'?"),
        (["show", "quickstart/alarm/test/9999"], 6, "quickstart/alarm/test/"),
        (["list", "missing.yaml"], 6, "missing.yaml"),
        (["import", "-o", "x.jsonl"], 2, "no list to import was given. Name lists as SPLIT=FILE, or add"),
        (["import", "A", "-o", "x.jsonl"], 6, "'A' is not a valid list. Write SPLIT=FILE; with"),
        (["import", "--androidworld", "-o", "x.txt"], 6, "extension is .jsonl or .yaml"),
        (["import", "--androidworld", "-o", "x.jsonl", "--max-steps", "15"], 2, "no effect with --androidw"),
        (["import", "a=b.txt", "-o", "x.jsonl", "--eval-seeds", "8"], 2, "no effect without --androidworld"),
        (
            ["import", "--androidworld", "-o", "x.jsonl", "--train-seeds", "x"],
            6,
            "'x' is not a range of seeds",
        ),
        (
            ["import", "--androidworld", "-o", "x.jsonl", "--train-seeds", "0:9", "--eval-seeds", "8"],
            6,
            "e.g. 8",
        ),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], code: int, expected: str) -> None:
    result = runner.invoke(app, ["tasks", *arguments])
    assert result.exit_code == code
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


DOUBLE = Path(__file__).resolve().parents[1] / "fakes" / "android_world_double"


def test_import_writes_a_task_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOUBLE))
    file = tmp_path / "aw.jsonl"
    seeds = ["--train-seeds", "0:20", "--eval-seeds", "20:22"]
    names = ["CounterReach", "AskDay"]
    result = runner.invoke(app, ["tasks", "import", "--androidworld", *names, *seeds, "-o", str(file)])
    assert result.exit_code == 0, result.stderr
    assert "44 tasks: 40 train, 4 eval" in result.stderr
    listed = runner.invoke(app, ["tasks", "list", str(file), "--split", "eval"])
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [
        f"androidworld/{name}/eval/{seed:04d}" for name in names for seed in (20, 21)
    ]


def test_lists_of_instructions_become_a_suite(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("Open Chrome\nPlay music\n")
    (tmp_path / "test.txt").write_text("play music.\nSet a timer\n")
    suite = tmp_path / "aitw.yaml"
    lists = [f"{split}={tmp_path / split}.txt" for split in ("train", "test")]
    result = runner.invoke(app, ["tasks", "import", *lists, "-o", str(suite), "--max-steps", "7"])
    assert result.exit_code == 0
    assert "3 tasks: 1 train, 2 test" in result.stderr
    assert "left out 1 of train that a later list has too:\n  Play music\n" in result.stderr
    tasks = load_suite(str(suite))
    assert [(task.suite, task.split, task.goal, task.max_steps) for task in tasks] == [
        ("aitw", "train", "Open Chrome", 7),
        ("aitw", "test", "play music.", 7),
        ("aitw", "test", "Set a timer", 7),
    ]
    again = runner.invoke(app, ["tasks", "import", *lists, "-o", str(suite)])
    assert (again.exit_code, "exists already" in again.stderr) == (6, True)


def test_what_an_import_leaves_out_is_told(tmp_path: Path) -> None:
    goals = tmp_path / "a.txt"
    goals.write_text("Open app\nopen app.\nOPEN app\n...\n")
    told = runner.invoke(app, ["tasks", "import", f"test={goals}", "-o", str(tmp_path / "a.yaml")]).stderr
    assert "left out 2 of test that repeat an instruction of their list\n" in told
    assert "left out 1 of test that have no instruction\n" in told


def checked(output: str) -> dict[str, list[str]]:
    """The table of a check: counts by split."""
    rows = [
        line.split()
        for line in output.splitlines()[: output.splitlines().index("Tasks that share with train:")]
    ]
    return {row[0]: row[1:] for row in rows}


def test_check_tells_splits_apart() -> None:
    webshop = checked(runner.invoke(app, ["tasks", "check", "webshop"]).stdout)
    assert webshop["val"] == ["60", "0", "0", "0", "0", "0"]
    assert webshop["unseen_app"] == ["400", "0", "0", "0", "0", "0"]
    one = runner.invoke(app, ["tasks", "check", "quickstart"])
    found = checked(one.stdout)
    assert found["test"] == ["408", "0", "0", "68", "0", "0"]
    assert found["split"] == ["of", "tasks", "goals", "params*", "phrasings", "names"]
    assert "params: the same template and parameters on another layout (* allowed)" in one.stdout


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(name, marks=pytest.mark.needs("libero")) if name.startswith("libero_") else name
        for name in SUITES
    ],
)
def test_every_suite_keeps_its_promise(suite: str) -> None:
    result = runner.invoke(app, ["tasks", "check", suite])
    assert result.exit_code == 0, result.output
    assert "Tasks that share with train:" in result.stdout


def test_check_lists_what_is_trained_on_and_fails(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    mine = {"id": "mine/1", "goal": "Open the Notes app", "template": "t", "params": {"a": 1}}
    one.write_text(json.dumps(mine))
    two.write_text(json.dumps(mine | {"id": "mine/2", "goal": "open the notes app.", "params": {"a": 2}}))
    result = runner.invoke(app, ["tasks", "check", str(one), "--against", str(two)])
    assert result.exit_code == 6
    assert f"Tasks that share with {two}:" in result.stdout
    assert "  mine/1: Open the Notes app\n    mine/2: open the notes app." in result.stdout
    assert "shares goals with" in result.stderr
