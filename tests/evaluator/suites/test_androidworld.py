"""Task files of AndroidWorld tasks: seeds, splits, and what the environment gets of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.core.errors import TaskError
from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.androidworld import import_tasks, parse_seeds
from distrl.evaluator.suites.files import write_file
from distrl.workers.envs.android_world_child import instance_seed

DOUBLE = Path(__file__).resolve().parents[2] / "fakes" / "android_world_double"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOUBLE))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["aw.jsonl", "aw.yaml"])
def test_a_file_holds_each_task_at_each_seed(tmp_path: Path, name: str) -> None:
    tasks = import_tasks(["CounterReach", "AskDay"], range(100, 103), range(30, 31))
    path = tmp_path / name
    write_file(tasks, path)
    assert load_suite(str(path)) == tasks
    assert [task.id for task in load_suite(str(path), "eval")] == [
        "androidworld/CounterReach/eval/0030",
        "androidworld/AskDay/eval/0030",
    ]
    first = load_suite(str(path), "train")[0]
    assert first.seed == instance_seed(100, "CounterReach")
    assert first.params == {"task": "CounterReach", "family": "android_world", "suite_seed": 100}
    assert (first.suite, first.template, first.max_steps) == ("androidworld", "CounterReach", 12)
    with pytest.raises(TaskError, match="exists already"):
        write_file(tasks, path)


@pytest.mark.usefixtures("package")
def test_the_splits_share_no_seed() -> None:
    with pytest.raises(TaskError, match=r"2 seeds are in both training and evaluation, e\.g\. 3"):
        import_tasks(["CounterReach"], range(5), range(3, 9))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("names", "family", "message"),
    [
        (["CounterReech"], "android_world", "has no task 'CounterReech'"),
        (["Wordless"], "android_world", "Wordless has no goal before it runs on a device"),
        ([], "miniwob", "Unsupported family: miniwob"),
    ],
)
def test_what_cannot_be_imported_is_named(names: list[str], family: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        import_tasks(names, range(1), range(1, 2), family)


def test_seeds() -> None:
    assert [parse_seeds(text) for text in ("0:3", "30", "7:9")] == [range(3), range(30, 31), range(7, 9)]
    for text in ("", "a", "3:3", "5:2", "-1:4", "0:99999", f"0:{10**30}", "1:", "1.5"):
        with pytest.raises(TaskError, match="is not a range of seeds"):
            parse_seeds(text)


@pytest.mark.parametrize(
    ("name", "message"), [("aw.json", "extension is .jsonl or .yaml"), ("none/aw.jsonl", "does not exist")]
)
def test_where_a_file_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        write_file([], tmp_path / name)
