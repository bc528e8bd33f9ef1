"""An evaluation on disk: what survives a crash, what may be resumed, what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    episode_result,
    evaluation_of,
    load_evaluation,
    read_episodes,
    read_spec,
    task_digest,
    tasks_digest,
)

SPEC = EvaluationSpec(suite="fake", splits=("test",), subject=Subject(kind="checkpoint", name="step_4"))
SERVED = SPEC.model_copy(update={"subject": Subject(kind="served", name="tcp://127.0.0.1:1000")})


@contextmanager
def opened(folder: Path, spec: EvaluationSpec = SPEC, resume: bool = False) -> Iterator[EvaluationDirectory]:
    directory = EvaluationDirectory(folder / "e", spec, resume)
    yield directory
    directory.close()


def add(directory: EvaluationDirectory, number: int, success: bool = True, fault: Fault = Fault.NONE) -> None:
    trajectory, images = make_episode(make_task(number), success, fault=fault)
    directory.add(episode_result(trajectory), trajectory, images)


def test_a_complete_evaluation_reads_back(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        add(directory, 0)
        add(directory, 1, success=False)
        with pytest.raises(RunDirectoryError, match="no complete evaluation"):
            load_evaluation(directory.path)
        evaluation = evaluation_of(SPEC, directory.episodes, 1.0, 3.0)
        directory.finish(evaluation)
    loaded = load_evaluation(tmp_path / "e")
    assert loaded.evaluation == evaluation
    assert loaded.evaluation.splits["test"].overall.success_rate == 0.5
    store = TrajectoryStore(tmp_path / "e" / "store.sqlite3")
    assert [store.get(e.trajectory_id).task.id for e in loaded.episodes] == [
        make_task(n).id for n in range(2)
    ]
    store.close()


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for resume, message in ((False, "exists already"), (True, "no evaluation to resume")):
        with pytest.raises(RunDirectoryError, match=message):
            EvaluationDirectory(tmp_path, SPEC, resume)
    for resume in (False, True):
        with opened(tmp_path, resume=resume):
            assert (tmp_path / "e" / SPEC_FILE).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"], "without an episode nothing stays"


def test_resuming_keeps_whole_lines_and_forgets_a_torn_one(tmp_path: Path) -> None:
    file, (trajectory, images) = tmp_path / "e" / EPISODES_FILE, make_episode(make_task(0), fault=Fault.ENV)
    odd = episode_result(trajectory).model_copy(update={"fault_detail": "one\u2028two\x85three\u2029é"})
    with opened(tmp_path) as directory:
        directory.add(odd, trajectory, images)
        add(directory, 0)
    with file.open("ab") as log:
        log.write('{"task_id": "é'.encode()[:-1])
    with opened(tmp_path, resume=True) as resumed:
        assert resumed.is_done(make_task(0))
        assert not resumed.is_done(make_task(1))
        add(resumed, 1)
    assert [episode.task_id for episode in read_episodes(file)] == [make_task(n).id for n in (0, 0, 1)]
    assert read_episodes(file)[0] == odd


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.5}, r"its temperature is 0.0, not 0.5"),
        ({"tasks": "cd"}, r"the tasks of fake, .* have changed since"),
        ({"subject": SERVED.subject}, "its subject is"),
    ],
)
def test_resuming_another_evaluation_says_what_differs(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with opened(tmp_path) as directory:
        add(directory, 0)
    with pytest.raises(RunDirectoryError, match=message):
        EvaluationDirectory(tmp_path / "e", SPEC.model_copy(update=change), resume=True)


def test_servers_may_move_between_sessions(tmp_path: Path) -> None:
    moved = SERVED.model_copy(update={"subject": Subject(kind="served", name="tcp://127.0.0.1:2000")})
    with opened(tmp_path, SERVED) as directory:
        add(directory, 0)
    with opened(tmp_path, moved, resume=True):
        pass


def test_two_do_not_write_one_directory(tmp_path: Path) -> None:
    tmp_path.joinpath("e").mkdir()
    (tmp_path / "e" / LOCK_FILE).touch()  # of a process that died before its first file
    other = rf"Another evaluation \(process {os.getpid()}\).*--output"
    with opened(tmp_path) as first:
        add(first, 0)
        with pytest.raises(RunDirectoryError, match=other):
            EvaluationDirectory(tmp_path / "e", SPEC, resume=True)


def test_damaged_files_are_named_and_the_directory_is_free_again(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        add(directory, 0)
    (directory.path / EPISODES_FILE).write_text("{}\n{}\n")
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match="line 1 of"):
            EvaluationDirectory(directory.path, SPEC, resume=True)
    for name, read in ((SPEC_FILE, read_spec), (RESULTS_FILE, load_evaluation)):
        (directory.path / name).write_bytes(b"{\xff}")
        with pytest.raises(RunDirectoryError, match=rf"{name} is damaged.*Evaluate again"):
            read(directory.path)


def test_an_evaluation_moves_with_its_run(tmp_path: Path) -> None:
    def recorded(run: str, step: str, output: str = "evaluations/step_0") -> Subject:
        checkpoint = tmp_path / run / "checkpoints" / step
        checkpoint.mkdir(parents=True, exist_ok=True)
        subject = Subject(kind="checkpoint", name=str(checkpoint))
        return subject.seen_from(tmp_path / run / output)

    assert recorded("old", "step_0") == recorded("new", "step_0") != recorded("new", "step_9")
    assert recorded("old", "step_0", "../elsewhere").name == str(tmp_path / "old" / "checkpoints" / "step_0")


TASK = Task(id="s/0", suite="s", template="t", split="test", goal="Do it.", params={"a": 1, "b": [1, 2]})


@pytest.mark.parametrize(
    "change", [{"id": "s/1"}, {"goal": "Do."}, {"params": {"a": 2}}, {"seed": 1}, {"max_steps": 9}]
)
def test_digests_depend_on_what_a_result_depends_on(change: dict[str, object]) -> None:
    other = TASK.model_copy(update=change)
    assert task_digest(other) != task_digest(TASK)
    assert tasks_digest([other]) != tasks_digest([TASK])
    assert tasks_digest([TASK, other]) == tasks_digest([other, TASK])
    turned = TASK.model_copy(update={"params": {"b": [1, 2], "a": 1}, "template": "another"})
    assert task_digest(turned) == task_digest(TASK)
