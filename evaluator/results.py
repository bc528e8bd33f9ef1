"""An evaluation on disk: what was measured, each episode as it ends, and the numbers at the end.

DIR/evaluation.json   what is measured (written first; a resumed evaluation must ask for the same)
DIR/episodes.jsonl    one EpisodeResult per line, appended after its trajectory is in the store
DIR/store.sqlite3     the trajectories with their screenshots
DIR/results.json      the numbers, written last by rename: its presence says that the evaluation is complete
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from distrl.core.errors import RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Number, Record, Task, Trajectory
from distrl.evaluator.judges.base import Verdict
from distrl.evaluator.statistics import (
    EpisodeResult,
    Summary,
    by_template,
    count_invalid,
    count_repeats,
    summarise,
)

SPEC_FILE = "evaluation.json"
EPISODES_FILE = "episodes.jsonl"
STORE_FILE = "store.sqlite3"
RESULTS_FILE = "results.json"
_Model = TypeVar("_Model", bound=Record)


class Subject(Record):
    """Who is measured.

    Attributes:
        kind: "checkpoint", "served" (inference servers that run already), "prompted", "expert" or "random".
        name: The checkpoint directory, the endpoints, or the model that is prompted.
    """

    kind: Literal["checkpoint", "served", "prompted", "expert", "random"]
    name: str = ""


class EvaluationSpec(Record):
    """What is measured, on what, and how. `episodes` is the limit per split (None: all tasks)."""

    suite: str
    splits: tuple[str, ...]
    subject: Subject
    judge: str = "ground_truth"
    temperature: Number = 0.0
    max_new_tokens: int = 32
    episodes: int | None = None


class SplitResult(Record):
    """The numbers of one split. Tasks that only ever faulted are listed apart and counted nowhere."""

    overall: Summary
    templates: dict[str, Summary]
    faulted: tuple[EpisodeResult, ...] = ()


class Evaluation(Record):
    """The numbers of an evaluation: `results.json`.

    Attributes:
        spec: What was measured.
        splits: The numbers of each split, in the order asked for.
        weight_versions: The oldest and the newest weight version that acted; (-1, -1) without a policy.
        started_at, duration_s: Unix time and seconds of the last session (a resumed evaluation has several).
    """

    spec: EvaluationSpec
    splits: dict[str, SplitResult]
    weight_versions: tuple[int, int] = (-1, -1)
    started_at: Number = 0.0
    duration_s: Number = 0.0


class LoadedEvaluation:
    """A complete evaluation read back from its directory."""

    def __init__(self, directory: Path, evaluation: Evaluation, episodes: list[EpisodeResult]) -> None:
        self.directory = directory
        self.evaluation = evaluation
        self.episodes = episodes

    def open_store(self) -> TrajectoryStore:
        """The trajectories. The caller closes it."""
        return TrajectoryStore(self.directory / STORE_FILE)


def check_output(path: Path, spec: EvaluationSpec, resume: bool) -> None:
    """Checks that an evaluation may write to `path`. Changes nothing.

    Raises:
        RunDirectoryError: If `path` holds something and `resume` is off, or holds another evaluation.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not resume:
        raise RunDirectoryError(
            f"The output directory {path} exists already.",
            "Name another with --output, or go on with it by --resume.",
        )
    if not (path / SPEC_FILE).is_file():
        raise RunDirectoryError(
            f"{path} holds no evaluation to resume ({SPEC_FILE} is missing).",
            "Name another directory with --output.",
        )
    _check_same(read_spec(path), spec, path)


class EvaluationDirectory:
    """The directory of an evaluation under way. Used by one thread."""

    def __init__(self, path: Path, spec: EvaluationSpec, resume: bool = False) -> None:
        """Starts an evaluation in `path`, or goes on with the one that is there.

        Raises:
            RunDirectoryError: If `path` holds something and `resume` is off, or holds another evaluation.
        """
        self.path = path
        check_output(path, spec, resume)
        path.mkdir(parents=True, exist_ok=True)
        (path / RESULTS_FILE).unlink(missing_ok=True)
        write_atomically(path / SPEC_FILE, spec.model_dump_json(indent=2))
        self.episodes: list[EpisodeResult] = read_episodes(path / EPISODES_FILE)
        self._rewrite_without_torn_line()
        self.store = TrajectoryStore(path / STORE_FILE)
        self._log = (path / EPISODES_FILE).open("a", encoding="utf-8")

    def _rewrite_without_torn_line(self) -> None:
        lines = [episode.model_dump_json() + "\n" for episode in self.episodes]
        write_atomically(self.path / EPISODES_FILE, "".join(lines))

    def is_done(self, task: Task) -> bool:
        """Whether `task` has an episode that counts."""
        return any(e.task_id == task.id and e.fault is Fault.NONE for e in self.episodes)

    def add(self, result: EpisodeResult, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Keeps an episode: first the trajectory (durably), then its line."""
        self.store.add(trajectory, images)
        self._log.write(result.model_dump_json() + "\n")
        self._log.flush()
        self.episodes.append(result)

    def finish(self, evaluation: Evaluation) -> None:
        """Writes the numbers: the evaluation is complete."""
        write_atomically(self.path / RESULTS_FILE, evaluation.model_dump_json(indent=2))

    def close(self) -> None:
        """Closes the files. May be called twice."""
        self._log.close()
        self.store.close()


def episode_result(trajectory: Trajectory, verdict: Verdict, attempt: int) -> EpisodeResult:
    """The line of `episodes.jsonl` for a judged trajectory."""
    versions = [
        v for step in trajectory.steps for chat in step.chats for v in chat.completion.weight_versions
    ]
    return EpisodeResult(
        task_id=trajectory.task.id,
        template=trajectory.task.template,
        split=trajectory.task.split,
        trajectory_id=trajectory.id,
        attempt=attempt,
        success=verdict.success,
        score=verdict.score,
        outcome=trajectory.outcome,
        fault=trajectory.fault,
        fault_detail=trajectory.fault_detail,
        num_steps=len(trajectory.steps),
        num_invalid=count_invalid(trajectory.steps),
        num_repeats=count_repeats(trajectory.steps),
        reward=trajectory.total_reward,
        duration_s=trajectory.duration_s,
        oldest_version=min(versions, default=-1),
        newest_version=max(versions, default=-1),
    )


def last_per_task(episodes: Iterable[EpisodeResult]) -> list[EpisodeResult]:
    """One episode per task: the last that counts, else the last fault."""
    best: dict[str, EpisodeResult] = {}
    for episode in episodes:
        known = best.get(episode.task_id)
        if known is None or known.fault is not Fault.NONE or episode.fault is Fault.NONE:
            best[episode.task_id] = episode
    return list(best.values())


def split_result(episodes: Iterable[EpisodeResult]) -> SplitResult:
    """The numbers of one split from all its episodes, retries included."""
    final = last_per_task(episodes)
    counted = [episode for episode in final if episode.fault is Fault.NONE]
    faulted = tuple(episode for episode in final if episode.fault is not Fault.NONE)
    return SplitResult(overall=summarise(counted), templates=by_template(counted), faulted=faulted)


def load_evaluation(directory: Path) -> LoadedEvaluation:
    """Reads a complete evaluation.

    Raises:
        RunDirectoryError: If `directory` holds none.
    """
    if not (directory / RESULTS_FILE).is_file():
        raise RunDirectoryError(
            f"{directory} holds no complete evaluation ({RESULTS_FILE} is missing).",
            "Name a directory that `distrl evaluate` wrote.",
        )
    evaluation = _read_model(directory / RESULTS_FILE, Evaluation)
    return LoadedEvaluation(directory, evaluation, last_per_task(read_episodes(directory / EPISODES_FILE)))


def read_spec(directory: Path) -> EvaluationSpec:
    """What the evaluation in `directory` measures.

    Raises:
        RunDirectoryError: If its file is damaged.
    """
    return _read_model(directory / SPEC_FILE, EvaluationSpec)


def read_episodes(file: Path) -> list[EpisodeResult]:
    """The episodes of `episodes.jsonl`; a last line that a crash tore off is left out.

    Raises:
        RunDirectoryError: If another line is damaged.
    """
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    episodes = []
    for number, line in enumerate(lines, start=1):
        try:
            episodes.append(EpisodeResult.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            raise RunDirectoryError(f"line {number} of {file} is damaged.", "Evaluate again.") from error
    return episodes


def _read_model(file: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(file.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise RunDirectoryError(
            f"{file} is damaged or was written by another version.", "Evaluate again."
        ) from error


def _check_same(found: EvaluationSpec, asked: EvaluationSpec, path: Path) -> None:
    theirs, ours = found.model_dump(mode="json"), asked.model_dump(mode="json")
    if found.subject.kind == asked.subject.kind == "served":
        # Servers may listen elsewhere after a restart; what they serve is recorded with every episode.
        theirs["subject"] = ours["subject"]
    for key, value in ours.items():
        if theirs[key] != value:
            raise RunDirectoryError(
                f"{path} holds another evaluation: its {key} is {json.dumps(theirs[key])}, "
                f"not {json.dumps(value)}.",
                "Ask for the same again, or name another directory with --output.",
            )
