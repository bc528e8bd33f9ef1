"""An evaluation on disk: its specification, each episode as it ends, and the numbers at the end.

DIR/evaluation.json   the specification (written first; a resumed evaluation must have the same)
DIR/episodes.jsonl    one EpisodeResult per line, appended after its trajectory is in the store
DIR/store.sqlite3     the trajectories with their screenshots
DIR/results.json      the numbers, written last by rename: if it exists, the evaluation is complete
DIR/.evaluation.lock  held by the process that measures

An evaluation repeated with several seeds has results.json over all of them, and such a directory for each:
DIR/seed-0, DIR/seed-1, …
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from distrl.core.actions import ActionKind
from distrl.core.errors import RunDirectoryError
from distrl.core.files import read_records, remove_files, write_atomically, writing
from distrl.core.rundir import is_free, lock_directory
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Number, Outcome, Record, Spent, Task, Trajectory, Verdict
from distrl.evaluator.failure_modes import expert_steps, failure_mode
from distrl.evaluator.judges.ground_truth import GroundTruthJudge
from distrl.evaluator.statistics import (
    EpisodeResult,
    Repeats,
    Summary,
    count_repeats,
    grouped,
    over_repeats,
    summarise,
)

SPEC_FILE = "evaluation.json"
EPISODES_FILE = "episodes.jsonl"
STORE_FILE = "store.sqlite3"
RESULTS_FILE = "results.json"
LOCK_FILE = ".evaluation.lock"
_FILES = (SPEC_FILE, EPISODES_FILE, STORE_FILE, LOCK_FILE)
_Model = TypeVar("_Model", bound=Record)


class Subject(Record):
    """What is measured; "model" is the policy before training.

    `name` is the checkpoint directory (see `seen_from`), the endpoints, or the untrained or prompted model.
    """

    kind: Literal["checkpoint", "served", "model", "prompted", "expert", "random"]
    name: str = ""

    @property
    def label(self) -> str:
        """A short name, e.g. "step_400", "served" or "expert"."""
        return Path(self.name).name if self.kind == "checkpoint" else self.kind

    def seen_from(self, output: Path) -> Subject:
        """As recorded in `output`: a checkpoint's path is relative to its run if `output` is in that run.

        The run can then be moved or copied.
        """
        if self.kind != "checkpoint":
            return self
        checkpoint = Path(self.name).resolve()
        run = checkpoint.parent.parent
        if checkpoint.parent.name != "checkpoints" or run not in output.resolve().parents:
            return self
        return self.model_copy(update={"name": str(checkpoint.relative_to(run))})

    def may_be(self, other: Subject) -> bool:
        """Whether both are the same. Servers may have another address after a restart."""
        return self == other or self.kind == other.kind == "served"


class EvaluationSpec(Record):
    """The specification of an evaluation; `tasks` is the `tasks_digest`, `episodes` the limit per split.

    `simulator` has the versions that results depend on, if the environment names them.
    """

    suite: str
    splits: tuple[str, ...]
    subject: Subject
    temperature: Number = 0.0
    max_new_tokens: int = 32
    episodes: int | None = None
    seed: int = 0
    env: dict[str, Any] = {}
    agent: dict[str, Any] = {}
    rewards: dict[str, Any] = {}
    simulator: str = ""
    tasks: str = ""


class SplitResult(Record):
    """The numbers of one split, over all episodes that count, of all repetitions.

    Attributes:
        faulted: The last episode of each task that faulted in every try.
        num_retries: Faulted episodes whose task was tried again.
        spent: The cost of a model behind an endpoint, over all tries, also faulted ones.
    """

    overall: Summary
    templates: dict[str, Summary]
    levels: dict[str, Summary] = {}
    faulted: tuple[EpisodeResult, ...] = ()
    num_retries: int = 0
    num_unjudged: int = 0
    spent: Spent = Spent()
    repeats: Repeats | None = None


class Evaluation(Record):
    """The numbers of an evaluation: `results.json`.

    Attributes:
        weight_versions: The oldest and the newest weight version that acted; (-1, -1) without a policy.
        started_at: Unix time of the last session.
        duration_s: Seconds that it took; 0 if it was resumed, because earlier sessions are not timed.
    """

    spec: EvaluationSpec
    splits: dict[str, SplitResult]
    weight_versions: tuple[int, int] = (-1, -1)
    started_at: Number = 0.0
    duration_s: Number = 0.0
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class LoadedEvaluation:
    """A complete evaluation read back from its directory, with one episode per task and repetition."""

    directory: Path
    evaluation: Evaluation
    episodes: list[EpisodeResult]


def check_output(path: Path, spec: EvaluationSpec, resume: bool) -> None:
    """Raises RunDirectoryError unless an evaluation may write to `path`. Changes nothing."""
    if is_free(path, resume, LOCK_FILE):
        return
    if not (path / SPEC_FILE).is_file():
        raise RunDirectoryError(
            f"{path} contains no evaluation to resume ({SPEC_FILE} is missing).",
            "Name another directory with --output.",
        )
    _check_same(read_spec(path), spec, path)


class EvaluationDirectory:
    """The directory of a running evaluation, locked against other processes. Used by one thread at a time.

    Attributes:
        is_new: Whether the evaluation begins here, rather than to continue an earlier session's.
        episodes: Those so far, all tries included.
        store: Their records.
    """

    def __init__(self, path: Path, spec: EvaluationSpec, resume: bool = False) -> None:
        """Raises RunDirectoryError if `path` holds something else, or another process uses it."""
        self.path = path
        check_output(path, spec, resume)
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            held.enter_context(
                lock_directory(path / LOCK_FILE, "evaluation", "name another directory with --output")
            )
            self._is_void = self.is_new = not (path / SPEC_FILE).exists()
            held.callback(lambda: remove_files(path, _FILES) if self._is_void else None)
            (path / RESULTS_FILE).unlink(missing_ok=True)
            write_atomically(path / SPEC_FILE, spec.model_dump_json(indent=2))
            self.episodes: list[EpisodeResult] = read_episodes(path / EPISODES_FILE)
            lines = [episode.model_dump_json() + "\n" for episode in self.episodes]
            write_atomically(path / EPISODES_FILE, "".join(lines))  # without a torn line
            self.store = TrajectoryStore(path / STORE_FILE)
            held.callback(self.store.close)
            self._log = held.enter_context((path / EPISODES_FILE).open("a", encoding="utf-8"))
            self._held, self._is_void = held.pop_all(), False

    def is_done(self, task: Task) -> bool:
        """Whether `task` has an episode without a fault."""
        return any(e.task_id == task.id and e.fault is Fault.NONE for e in self.episodes)

    def add(self, result: EpisodeResult, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Stores an episode: first the trajectory (durably), then its line."""
        self.store.add(trajectory, images)
        with writing(self.path / EPISODES_FILE):
            self._log.write(result.model_dump_json() + "\n")
            self._log.flush()
        self.episodes.append(result)

    def finish(self, evaluation: Evaluation) -> None:
        """Writes the numbers: the evaluation is complete."""
        write_atomically(self.path / RESULTS_FILE, evaluation.model_dump_json(indent=2))

    def close(self) -> None:
        """Closes the files and unlocks the directory. A new one without an episode or numbers is removed."""
        has_numbers = (self.path / RESULTS_FILE).exists()
        self._is_void = self.is_new and not has_numbers and self.store.count() == 0
        self._held.close()


def verdict_on(trajectory: Trajectory) -> Verdict:
    """The judge's verdict, else ground truth; undecided without either."""
    return trajectory.verdict or GroundTruthJudge().judge(trajectory, {})


def episode_result(
    trajectory: Trajectory, attempt: int = 0, seed: int = 0, spent: Spent | None = None, digest: str = ""
) -> EpisodeResult:
    """The line of `episodes.jsonl` for a trajectory; `digest` is the `task_digest` of the suite's task."""
    verdict = verdict_on(trajectory)
    spent = spent or Spent()
    is_judged = verdict.success or trajectory.outcome is not Outcome.UNJUDGED
    is_failure = trajectory.fault is Fault.NONE and is_judged and not verdict.success
    level = trajectory.task.params.get("level")
    timings = [step.timing for step in trajectory.steps]
    completions = [chat.completion for step in trajectory.steps for chat in step.chats]
    versions = [version for one in completions for version in one.weight_versions]
    return EpisodeResult(
        task_id=trajectory.task.id,
        template=trajectory.task.template,
        split=trajectory.task.split,
        goal=trajectory.task.goal,
        trajectory_id=trajectory.id,
        attempt=attempt,
        success=verdict.success,
        score=verdict.score,
        outcome=trajectory.outcome,
        fault=trajectory.fault,
        fault_detail=trajectory.fault_detail,
        num_steps=len(trajectory.steps),
        num_invalid=sum(step.action.kind == ActionKind.INVALID.value for step in trajectory.steps),
        num_repeats=count_repeats(trajectory.steps),
        reward=trajectory.total_reward,
        duration_s=trajectory.duration_s,
        oldest_version=min(versions, default=-1),
        newest_version=max(versions, default=-1),
        seed=seed,
        digest=digest,
        level=level if isinstance(level, int) else None,
        mode=failure_mode(trajectory) if is_failure else None,
        expert_steps=expert_steps(trajectory),
        tokens_in=sum(len(one.prompt_token_ids) for one in completions) + spent.input_tokens,
        tokens_out=sum(len(one.token_ids) for one in completions) + spent.output_tokens,
        calls=spent.calls,
        cost=spent.cost,
        think_s=math.fsum(timing.think_s for timing in timings),
        device_s=math.fsum(timing.observe_s + timing.act_s + timing.settle_s for timing in timings),
    )


def last_per_task(episodes: Iterable[EpisodeResult]) -> list[EpisodeResult]:
    """One episode per task and repetition: the last without a fault, else the last fault."""
    best: dict[tuple[str, int], EpisodeResult] = {}
    for episode in episodes:
        key = episode.task_id, episode.seed
        known = best.get(key)
        if known is None or known.fault is not Fault.NONE or episode.fault is Fault.NONE:
            best[key] = episode
    return list(best.values())


def split_result(episodes: Iterable[EpisodeResult]) -> SplitResult:
    """The numbers of one split from all its episodes, retries and repetitions included."""
    tried = list(episodes)
    final = last_per_task(tried)
    counted = [episode for episode in final if episode.counts]
    faulted = tuple(episode for episode in final if episode.fault is not Fault.NONE)
    return SplitResult(
        num_unjudged=sum(episode.fault is Fault.NONE and not episode.is_judged for episode in final),
        overall=summarise(counted),
        templates=grouped(counted, lambda one: one.template),
        levels=grouped(counted, lambda one: one.level),
        faulted=faulted,
        spent=Spent.total(episode.spent for episode in tried),
        num_retries=sum(episode.fault is not Fault.NONE for episode in tried) - len(faulted),
        repeats=over_repeats(counted),
    )


def evaluation_of(
    spec: EvaluationSpec,
    tried: Sequence[EpisodeResult],
    started_at: float,
    duration_s: float,
    seeds: Sequence[int] = (),
) -> Evaluation:
    """The numbers over all episodes of an evaluation, retries and repetitions included."""
    acted = [episode for episode in last_per_task(tried) if episode.newest_version >= 0]
    return Evaluation(
        spec=spec,
        splits={name: split_result(e for e in tried if e.split == name) for name in spec.splits},
        weight_versions=(
            min((episode.oldest_version for episode in acted), default=-1),
            max((episode.newest_version for episode in acted), default=-1),
        ),
        started_at=started_at,
        duration_s=duration_s,
        seeds=tuple(seeds),
    )


def load_evaluation(directory: Path) -> LoadedEvaluation:
    """Reads a complete evaluation; raises RunDirectoryError without one."""
    if not (directory / RESULTS_FILE).is_file():
        raise RunDirectoryError(
            f"{directory} contains no complete evaluation ({RESULTS_FILE} is missing).",
            "Pass a directory that `distrl evaluate` wrote.",
        )
    evaluation = _read_model(directory / RESULTS_FILE, Evaluation)
    places = [directory / f"seed-{seed}" for seed in evaluation.seeds] or [directory]
    episodes = [episode for place in places for episode in read_episodes(place / EPISODES_FILE)]
    return LoadedEvaluation(directory, evaluation, last_per_task(episodes))


def read_spec(directory: Path) -> EvaluationSpec:
    """The specification of the evaluation in `directory`; raises RunDirectoryError if it is damaged."""
    return _read_model(directory / SPEC_FILE, EvaluationSpec)


def read_episodes(file: Path) -> list[EpisodeResult]:
    """The episodes of `episodes.jsonl`; a last line that a crash cut off is left out."""
    return read_records(file, EpisodeResult, "Evaluate again.")


def _read_model(file: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise RunDirectoryError(
            f"{file} is damaged or was written by another version.", "Evaluate again."
        ) from error


def _check_same(found: EvaluationSpec, asked: EvaluationSpec, path: Path) -> None:
    theirs, ours = (spec.model_dump(mode="json") for spec in (found, asked))
    for key, value in ours.items():
        if theirs[key] == value or (key == "subject" and found.subject.may_be(asked.subject)):
            continue
        what = f"its {key} is {json.dumps(theirs[key])}, not {json.dumps(value)}"
        if key == "tasks":
            what = f"the tasks of {asked.suite}, or their goals, parameters or seeds, have changed since"
        raise RunDirectoryError(
            f"{path} holds another evaluation: {what}.",
            "Use the same settings and tasks, or name another directory with --output.",
        )


def task_digest(task: Task) -> str:
    """A digest of the fields that a result depends on, 16 hex digits: id, goal, params, seed, max_steps."""
    fields = task.model_dump(mode="json", include={"id", "goal", "params", "seed", "max_steps"})
    return _digest(json.dumps(fields, sort_keys=True))


def tasks_digest(tasks: Iterable[Task]) -> str:
    """The digest of all `tasks`, independent of their order."""
    return _digest("".join(sorted(task_digest(task) for task in tasks)))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
