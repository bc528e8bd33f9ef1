"""From stores to a judge in a directory: read, split, fit, calibrate, measure, write."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.configs.judge import LocalJudgeConfig
from distrl.core.errors import PolicyError
from distrl.evaluator.agreement import AgreementReport, Judged, compare
from distrl.evaluator.judges.local.data import (
    Example,
    Split,
    choose_episodes,
    read_examples,
    split_by_task,
)
from distrl.evaluator.judges.local.features import Reader
from distrl.evaluator.judges.local.files import JudgeCard, write_judge
from distrl.evaluator.judges.local.judge import LocalJudge
from distrl.evaluator.judges.local.model import JudgeModel, ModelSize
from distrl.evaluator.judges.local.training import Recipe, calibrate, fit, logits_of

TELL_EVERY = 500


@dataclass(frozen=True)
class Fitted:
    """A judge's verdicts on the held-out examples, and the numbers."""

    report: AgreementReport
    judged: list[Judged]
    examples: list[Example]


def fit_judge(
    sources: Sequence[Path],
    output: Path,
    episodes: int,
    held_out: float,
    recipe: Recipe,
    tell: Callable[[str], None],
    size: ModelSize | None = None,
) -> Fitted:
    """Fits a judge to at most `episodes` stored episodes, writes it to `output`, and measures it.

    Args:
        sources: Runs, evaluations or stores.
        output: Its directory.
        episodes: The most to read.
        held_out: The share of the tasks to measure on.
        recipe: How it is fitted.
        tell: Told how far it is, a line at a time.
        size: The network's; None: the default.

    Raises:
        StoreError: A source has no store.
        JudgeError: There are too few episodes of both kinds.
    """
    size = size or ModelSize()
    examples, num_broken = _read(sources, episodes, size, recipe.seed, tell)
    split = split_by_task(examples, held_out, recipe.seed)
    tell(_describe(split))
    model = fit(split.fitted, size, recipe, lambda epoch, loss: tell(_progress(epoch, recipe.epochs, loss)))
    temperature, threshold = calibrate(
        logits_of(model, split.calibration), [example.truth for example in split.calibration]
    )
    card = JudgeCard(
        size=size,
        temperature=temperature,
        threshold=threshold,
        seed=recipe.seed,
        sources=tuple(map(str, sources)),
        num_fitted=len(split.fitted),
        num_calibration=len(split.calibration),
        num_held_out=len(split.held_out),
        num_broken=num_broken,
        agreement=0.0,
    )
    write_judge(output, model, card)
    fitted = _measure(model, split.held_out, output)
    write_judge(output, model, card.model_copy(update={"agreement": fitted.report.overall.rate}))
    return fitted


def _read(
    sources: Sequence[Path], episodes: int, size: ModelSize, seed: int, tell: Callable[[str], None]
) -> tuple[list[Example], int]:
    """The examples, and how many episodes are left out for a broken screenshot."""
    rng = random.Random(f"read/{seed}")
    chosen = choose_episodes(sources, episodes, rng)
    found: list[Example] = []
    broken: list[str] = []

    def leave_out(name: str, error: PolicyError) -> None:
        broken.append(f"{name}: {error}")

    for example in read_examples(chosen, Reader((size.width, size.height)), rng, leave_out):
        found.append(example)
        if len(found) % TELL_EVERY == 0:
            tell(f"read {len(found)} examples")
    if broken:
        tell(f"left out {len(broken)} episodes with a broken screenshot, such as {broken[0]}")
    return found, len(broken)


def _describe(split: Split) -> str:
    parts = (("fitted to", split.fitted), ("calibrated on", split.calibration), ("held out", split.held_out))
    told = []
    for name, examples in parts:
        tasks = len({example.kin for example in examples})
        solved = sum(example.truth for example in examples) / len(examples)
        told.append(f"{name} {len(examples)} examples of {tasks} tasks, {100 * solved:.0f}% solved")
    return "; ".join(told)


def _progress(epoch: int, epochs: int, loss: float) -> str:
    return f"epoch {epoch} of {epochs}: loss {loss:.3f}"


def _measure(model: JudgeModel, examples: list[Example], output: Path) -> Fitted:
    """The verdicts of the judge as it was written."""
    judge = LocalJudge(LocalJudgeConfig(path=str(output)))
    judged = [
        Judged.of(example.trajectory_id, example.task, example.truth, judge.verdict(logit, example.num_steps))
        for example, logit in zip(examples, logits_of(model, examples), strict=True)
    ]
    sources = ", ".join(dict.fromkeys(str(example.source) for example in examples))
    return Fitted(compare(judged, judge.name, sources), judged, examples)
