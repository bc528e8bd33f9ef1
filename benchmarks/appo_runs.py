"""The runs of `appo.py`: what is asked of each, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import RunDirectoryError
from distrl.core.rundir import RunDir
from distrl.evaluator.report.metrics import LEARNER_CLOCK, RunMetrics
from distrl.evaluator.results import RESULTS_FILE, write_atomically

SOLVED_S, SOLVED_STEPS = "solved/elapsed_s", "solved/env_steps"
TRAIN_RETURN, ENV_STEPS = "train/return", "env_steps"
EVAL_RETURN, EVAL_CONFIRMATION = "eval/return", "eval/confirmation"
EVAL_CLOCK, EVAL_STEPS = "eval/elapsed_s", "eval/env_steps"


@dataclass(frozen=True)
class Settings:
    """What a run is to do; kept with its result, so that unlike runs are never mixed.

    Attributes:
        env: Gymnasium's id of the environment.
        seed: Of environments, parameters and sampling.
        minutes: Of training, evaluation included; then the run ends.
        stop_at: The mean return over 100 greedy episodes at which it ends before; None for never.
        eval_every: Environment steps between validations; 0 for none.
        eval_episodes: Greedy episodes of a validation.
        cores: That the run may use.
    """

    env: str
    seed: int
    minutes: float
    stop_at: float | None
    eval_every: int
    eval_episodes: int
    cores: int


@dataclass(frozen=True)
class Point:
    """A point of a curve: seconds since training began, environment steps, mean return."""

    elapsed_s: float
    env_steps: float
    mean_return: float


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        started_at: Unix time at which training began.
        elapsed_s, env_steps: Where it ended.
        solved_s: From there to the weights that were then found to be a solution; None if there were none.
        solved_steps: Environment steps made then.
        final_return: Mean over 100 greedy episodes after the end, on seeds that decided nothing.
        training: The mean return of the last 100 training episodes.
        validation: The mean return of greedy episodes, confirmations included, at the weights measured.
        versions: Of the packages that made it.
    """

    started_at: float
    elapsed_s: float
    env_steps: float
    solved_s: float | None
    solved_steps: float | None
    final_return: float
    training: tuple[Point, ...]
    validation: tuple[Point, ...]
    versions: Mapping[str, str]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """What `dataclasses.asdict` made of an outcome."""
        curves = {name: tuple(Point(**point) for point in data[name]) for name in ("training", "validation")}
        return cls(**{**data, **curves})


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        arm: Its name in the table.
        launched_at: Unix time at which its process was started.
    """

    arm: str
    settings: Settings
    launched_at: float
    outcome: Outcome

    @property
    def startup_s(self) -> float:
        """From the start of the process to the start of training."""
        return self.outcome.started_at - self.launched_at

    @property
    def solved_from_launch_s(self) -> float | None:
        """From the start of the process to the solution."""
        return None if self.outcome.solved_s is None else self.startup_s + self.outcome.solved_s

    def save(self, file: Path) -> None:
        """Writes the run; `load_run` reads it."""
        write_atomically(file, json.dumps(asdict(self)) + "\n")


def load_run(file: Path, settings: Settings) -> Run | None:
    """The finished run in `file`; None if there is none.

    Raises:
        RunDirectoryError: If it is there with other settings.
    """
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    found = Settings(**data["settings"])
    if found != settings:
        keys = [key for key, value in asdict(settings).items() if asdict(found)[key] != value]
        raise RunDirectoryError(
            f"{file} was made with another {', '.join(keys)}.", "Choose another place with --runs-dir."
        )
    return Run(data["arm"], found, data["launched_at"], Outcome.from_json(data["outcome"]))


def read_distrl(directory: Path, versions: Mapping[str, str]) -> Outcome:
    """What a finished `distrl train` came to, from its metrics.jsonl and its last evaluation.

    Raises:
        RunDirectoryError: If it has no learner's clock or no evaluation.
    """
    run = RunDir(directory)
    metrics = RunMetrics.read(run.metrics)
    clock = next((row for row in metrics.rows if LEARNER_CLOCK in row and "time" in row), None)
    evaluations = sorted(run.evaluations.glob(f"*/{RESULTS_FILE}"), key=lambda file: file.stat().st_mtime)
    if clock is None or not evaluations:
        missing = f"{run.metrics} has no {LEARNER_CLOCK}" if clock is None else "no checkpoint was evaluated"
        raise RunDirectoryError(f"{directory} is no finished run: {missing}.", "Read the log beside it.")
    final = json.loads(evaluations[-1].read_text(encoding="utf-8"))
    return Outcome(
        started_at=clock["time"] - clock[LEARNER_CLOCK],
        elapsed_s=metrics.last(LEARNER_CLOCK) or 0.0,
        env_steps=metrics.last(ENV_STEPS) or 0.0,
        solved_s=metrics.last(SOLVED_S),
        solved_steps=metrics.last(SOLVED_STEPS),
        final_return=float(final["mean"]),
        training=_curve(metrics, LEARNER_CLOCK, ENV_STEPS, [TRAIN_RETURN]),
        validation=_curve(metrics, EVAL_CLOCK, EVAL_STEPS, [EVAL_RETURN, EVAL_CONFIRMATION]),
        versions=versions,
    )


def _curve(metrics: RunMetrics, clock: str, steps: str, names: Sequence[str]) -> tuple[Point, ...]:
    """The rows that have one of `names`, each with the row's own clock and steps."""
    return tuple(
        Point(row[clock], row[steps], row[name])
        for row in metrics.rows
        for name in names
        if {clock, steps, name} <= row.keys()
    )
