"""Evaluations of any size, quickly made: many episodes over a few screens."""

from __future__ import annotations

import random
from pathlib import Path

from episode_factory import make_episode, make_task

from distrl.core.types import Fault, Trajectory
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.judges.ground_truth import GroundTruthJudge
from distrl.evaluator.results import (
    EPISODES_FILE,
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    episode_result,
    split_result,
)

TEMPLATES = ("toggle", "alarm", "contact", "search")
IMAGES_AT_ONCE = 500


def write_evaluation(directory: Path, count: int, solved: float, seed: int = 0) -> Path:
    """An evaluation of `count` episodes of which about the share `solved` is solved; the last one faulted."""
    rng = random.Random(seed)
    spec = EvaluationSpec(suite="fake", splits=("test",), subject=Subject(kind="checkpoint", name="step_9"))
    written = EvaluationDirectory(directory, spec)
    patterns = {success: make_episode(success=success, num_steps=5) for success in (True, False)}
    results, items = [], []
    for number in range(count):
        task = make_task(number, TEMPLATES[number % len(TEMPLATES)])
        trajectory, images = patterns[rng.random() < solved]
        made: Trajectory = trajectory.model_copy(update={"id": f"{rng.getrandbits(128):032x}", "task": task})
        if number == count - 1:
            made = made.model_copy(update={"fault": Fault.DEVICE, "fault_detail": "unplugged"})
        result = episode_result(made, GroundTruthJudge().judge(made, {}), 0)
        if result.mode is not None:
            result = result.model_copy(update={"mode": rng.choice(list(FailureMode))})
        results.append(result)
        items.append((made, images))
        if len(items) == IMAGES_AT_ONCE or number == count - 1:
            written.store.add_many(items)
            items = []
    (directory / EPISODES_FILE).write_text("".join(one.model_dump_json() + "\n" for one in results))
    written.finish(Evaluation(spec=spec, splits={"test": split_result(results)}, duration_s=9.0))
    written.close()
    return directory
