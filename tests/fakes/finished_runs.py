"""Run directories as finished and interrupted runs leave them, made by hand."""

from __future__ import annotations

import json

from distrl.core.checkpoints import point
from distrl.core.rundir import RunDir
from distrl.core.types import Outcome
from distrl.evaluator.experiments import PlannedRun
from distrl.evaluator.results import (
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    split_result,
)
from distrl.evaluator.statistics import EpisodeResult

START = 1_700_000_000.0


def episodes(successes: int, of: int = 10) -> list[EpisodeResult]:
    return [
        EpisodeResult(
            task_id=f"t/{i}",
            template="t",
            split="test",
            trajectory_id=f"{i}",
            success=i < successes,
            score=float(i < successes),
            outcome=Outcome.SUCCESS if i < successes else Outcome.FAILURE,
            num_steps=2,
            num_invalid=0,
            num_repeats=0,
            reward=0.0,
            duration_s=1.0,
        )
        for i in range(of)
    ]


def evaluate(run: RunDir, name: str, successes: int) -> None:
    spec = EvaluationSpec(suite="s", splits=("test",), subject=Subject(kind="checkpoint", name=name))
    directory = EvaluationDirectory(run.evaluations / name, spec)
    directory.finish(Evaluation(spec=spec, splits={"test": split_result(episodes(successes))}))
    directory.close()


def make_run(planned: PlannedRun, before: int, after: int | None, validation: list[float]) -> RunDir:
    """A run of 100 s between rounds; `after` None: interrupted."""
    run = RunDir.create(planned.config)
    rows: list[dict[str, float]] = []
    for number, success in enumerate(validation):
        now = {"step": float(number), "time": START + 100 * number}
        rows.append(
            now | {"time/elapsed_s": 100.0 * number, "episodes": 50.0 * number, "loss/policy": success}
        )
        rows.append(now | {"eval/val/success": success, "eval/val/updates": float(number)})
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run.checkpoints / "step_0").mkdir()
    if after is not None:
        evaluate(run, "step_0", before)
        (run.checkpoints / "step_9").mkdir()
        point(run.checkpoints, "final", "step_9")
        evaluate(run, "step_9", after)
    return run
