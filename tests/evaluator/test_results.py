"""An evaluation on disk: what survives a crash, what may be resumed, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from episode_factory import make_episode, make_task

from distrl.core.errors import RunDirectoryError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Task
from distrl.evaluator.results import (
    EPISODES_FILE,
    LOCK_FILE,
    RESULTS_FILE,
    SPEC_FILE,
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    episode_result,
    last_per_task,
    load_evaluation,
    read_episodes,
    read_spec,
    split_result,
    task_digest,
    tasks_digest,
)

SPEC = EvaluationSpec(suite="fake", splits=("test",), subject=Subject(kind="checkpoint", name="step_4"))


def add(directory: EvaluationDirectory, number: int, success: bool = True, fault: Fault = Fault.NONE) -> None:
    trajectory, images = make_episode(make_task(number), success, fault=fault)
    directory.add(episode_result(trajectory), trajectory, images)


def test_a_complete_evaluation_reads_back(tmp_path: Path) -> None:
    directory = EvaluationDirectory(tmp_path / "e", SPEC)
    add(directory, 0)
    add(directory, 1, success=False)
    evaluation = Evaluation(spec=SPEC, splits={"test": split_result(directory.episodes)}, duration_s=3.0)
    directory.finish(evaluation)
    directory.close()

    loaded = load_evaluation(tmp_path / "e")
    assert loaded.evaluation == evaluation
    assert loaded.evaluation.splits["test"].overall.success_rate == 0.5
    store = TrajectoryStore(loaded.directory / "store.sqlite3")
    assert [store.get(e.trajectory_id).task.id for e in loaded.episodes] == [
        e.task_id for e in loaded.episodes
    ]
    store.close()


def test_levels_of_difficulty_have_numbers_of_their_own() -> None:
    made = []
    for number, level in enumerate((1, 1, 2, 10, None)):
        params = {"switch": 0} if level is None else {"level": level}
        task = make_task(number).model_copy(update={"params": params})
        trajectory, _ = make_episode(task, number == 0)
        made.append(episode_result(trajectory))
    levels = split_result(made).levels
    assert list(levels) == ["1", "2", "10"]
    assert [(found.successes, found.episodes) for found in levels.values()] == [(1, 2), (0, 1), (0, 1)]
    assert split_result(made[-1:]).levels == {}


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match="exists already"):
        EvaluationDirectory(tmp_path, SPEC)
    with pytest.raises(RunDirectoryError, match="no evaluation to resume"):
        EvaluationDirectory(tmp_path, SPEC, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_resuming_keeps_whole_lines_and_forgets_a_torn_one(tmp_path: Path) -> None:
    directory = EvaluationDirectory(tmp_path / "e", SPEC)
    add(directory, 0)
    directory.close()
    with (tmp_path / "e" / EPISODES_FILE).open("a") as file:
        file.write('{"task_id": "fake/tog')

    resumed = EvaluationDirectory(tmp_path / "e", SPEC, resume=True)
    assert resumed.is_done(make_task(0))
    assert not resumed.is_done(make_task(1))
    add(resumed, 1)
    resumed.close()
    assert len(read_episodes(tmp_path / "e" / EPISODES_FILE)) == 2


def test_lines_may_hold_signs_that_split_text_and_be_torn_inside_a_letter(tmp_path: Path) -> None:
    directory = EvaluationDirectory(tmp_path / "e", SPEC)
    trajectory, images = make_episode(make_task(0), True, fault=Fault.ENV)
    odd = episode_result(trajectory).model_copy(update={"fault_detail": "one\u2028two\x85three\u2029é"})
    directory.add(odd, trajectory, images)
    directory.close()
    with (tmp_path / "e" / EPISODES_FILE).open("ab") as file:
        file.write('{"task_id": "é'.encode()[:-1])
    assert read_episodes(tmp_path / "e" / EPISODES_FILE) == [odd]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.5}, r"its temperature is 0.0, not 0.5"),
        ({"tasks": "cd"}, r"the tasks of fake, .* have changed since"),
    ],
)
def test_resuming_another_evaluation_says_what_differs(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    EvaluationDirectory(tmp_path / "e", SPEC).close()
    with pytest.raises(RunDirectoryError, match=message):
        EvaluationDirectory(tmp_path / "e", SPEC.model_copy(update=change), resume=True)


def test_servers_may_move_between_sessions(tmp_path: Path) -> None:
    def served(name: str) -> EvaluationSpec:
        return SPEC.model_copy(update={"subject": Subject(kind="served", name=name)})

    EvaluationDirectory(tmp_path / "e", served("tcp://127.0.0.1:1000")).close()
    EvaluationDirectory(tmp_path / "e", served("tcp://127.0.0.1:2000"), resume=True).close()
    with pytest.raises(RunDirectoryError, match="its subject is"):
        EvaluationDirectory(tmp_path / "e", SPEC, resume=True)


def test_two_do_not_write_one_directory(tmp_path: Path) -> None:
    first = EvaluationDirectory(tmp_path / "e", SPEC)
    add(first, 0)
    with pytest.raises(RunDirectoryError, match=rf"Another evaluation \(process {os.getpid()}\)") as caught:
        EvaluationDirectory(tmp_path / "e", SPEC, resume=True)
    assert "--output" in str(caught.value.remedy)
    add(first, 1)
    first.close()
    assert len(read_episodes(tmp_path / "e" / EPISODES_FILE)) == 2
    EvaluationDirectory(tmp_path / "e", SPEC, resume=True).close()


def test_a_damaged_directory_is_given_free(tmp_path: Path) -> None:
    EvaluationDirectory(tmp_path / "e", SPEC).close()
    (tmp_path / "e" / EPISODES_FILE).write_text("{}\n{}\n")
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match="line 1 of"):
            EvaluationDirectory(tmp_path / "e", SPEC, resume=True)


def test_an_unfinished_evaluation_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / LOCK_FILE).touch()  # of a process that died before its first file
    EvaluationDirectory(tmp_path / "e", SPEC).close()
    with pytest.raises(RunDirectoryError, match="no complete evaluation"):
        load_evaluation(tmp_path / "e")


def test_a_task_counts_once_and_faults_stay_apart(tmp_path: Path) -> None:
    directory = EvaluationDirectory(tmp_path / "e", SPEC)
    add(directory, 0, fault=Fault.ENV)
    add(directory, 0, success=True)
    add(directory, 1, fault=Fault.DEVICE)
    add(directory, 1, fault=Fault.INFERENCE)
    directory.close()
    assert not directory.is_done(make_task(1))
    assert [e.fault for e in last_per_task(directory.episodes)] == [Fault.NONE, Fault.INFERENCE]
    result = split_result(directory.episodes)
    assert (result.overall.successes, result.overall.episodes) == (1, 1)
    assert [e.task_id for e in result.faulted] == [make_task(1).id]


@pytest.mark.parametrize("name", [SPEC_FILE, RESULTS_FILE])
def test_a_file_of_other_bytes_is_told_as_damaged(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"{\xff}")
    read = {SPEC_FILE: read_spec, RESULTS_FILE: load_evaluation}[name]
    with pytest.raises(RunDirectoryError, match=rf"{name} is damaged.*Evaluate again"):
        read(tmp_path)


def test_an_evaluation_moves_with_its_run(tmp_path: Path) -> None:
    run = tmp_path / "old"
    (run / "checkpoints" / "step_0").mkdir(parents=True)
    whole = Subject(kind="checkpoint", name=str(run / "checkpoints" / "step_0"))
    recorded = whole.seen_from(run / "evaluations" / "step_0")
    there = tmp_path / "new" / "checkpoints" / "step_0"
    there.mkdir(parents=True)
    output = tmp_path / "new" / "evaluations" / "step_0"
    assert recorded.may_be(Subject(kind="checkpoint", name=str(there)).seen_from(output))
    other = Subject(kind="checkpoint", name=str(there.with_name("step_9"))).seen_from(output)
    assert not recorded.may_be(other)
    elsewhere = tmp_path / "elsewhere"
    assert whole.seen_from(elsewhere) == whole


TASK = Task(id="s/0", suite="s", template="t", split="test", goal="Do it.", params={"a": 1, "b": [1, 2]})


@pytest.mark.parametrize(
    "change", [{"id": "s/1"}, {"goal": "Do."}, {"params": {"a": 2}}, {"seed": 1}, {"max_steps": 9}]
)
def test_what_a_result_depends_on_is_told_apart(change: dict[str, object]) -> None:
    other = TASK.model_copy(update=change)
    assert task_digest(other) != task_digest(TASK)
    assert tasks_digest([other]) != tasks_digest([TASK])


def test_order_does_not_matter() -> None:
    other = TASK.model_copy(update={"id": "s/1"})
    assert tasks_digest([TASK, other]) == tasks_digest([other, TASK])
    turned = TASK.model_copy(update={"params": {"b": [1, 2], "a": 1}, "template": "another"})
    assert task_digest(turned) == task_digest(TASK)
