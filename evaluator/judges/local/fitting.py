"""From stores to a judge in a directory: read, split, fit, calibrate, measure, write."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distrl.configs.judge import LocalJudgeConfig
from distrl.core.errors import PolicyError
from distrl.evaluator.agreement import AgreementReport, Judged, compare
from distrl.evaluator.judges.local.data import (
    Example,
    HoldOut,
    Split,
    check_episodes,
    choose_episodes,
    read_examples,
    split,
)
from distrl.evaluator.judges.local.features import Reader
from distrl.evaluator.judges.local.files import JudgeCard, read_judge, write_judge
from distrl.evaluator.judges.local.judge import LocalJudge
from distrl.evaluator.judges.local.model import JudgeModel, ModelSize
from distrl.evaluator.judges.local.ocr import OcrModel, OcrSize, TextReader
from distrl.evaluator.judges.local.ocr_fitting import OcrRecipe, fit_reader
from distrl.evaluator.judges.local.training import Recipe, calibrate, fit, logits_of

TELL_EVERY = 500


@dataclass(frozen=True)
class Plan:
    """What a judge is fitted to, and how.

    Attributes:
        episodes: The most to read.
        held_out: The share of the tasks or episodes to measure on.
        hold_out: Which of the two.
        recipe: How it is fitted.
        size: Its network's.
        reading: How its reader is fitted.
        reader: A judge whose reader is taken instead.
    """

    episodes: int = 5000
    held_out: float = 0.2
    hold_out: HoldOut = HoldOut.TASK
    recipe: Recipe = field(default_factory=Recipe)
    size: ModelSize = field(default_factory=ModelSize)
    reading: OcrRecipe = field(default_factory=OcrRecipe)
    reader: Path | None = None


@dataclass(frozen=True)
class Fitted:
    """A judge's verdicts on the held-out examples, and the numbers."""

    report: AgreementReport
    judged: list[Judged]
    examples: list[Example]


def fit_judge(sources: Sequence[Path], output: Path, plan: Plan, tell: Callable[[str], None]) -> Fitted:
    """Fits a judge to stored episodes, writes it to `output`, and measures it.

    What is wrong with the sources is told before the reader is fitted, which takes minutes.

    Args:
        sources: Runs, evaluations or stores.
        output: Its directory.
        plan: What it is fitted to, and how.
        tell: Told how far it is, a line at a time.

    Raises:
        StoreError: A source has no store.
        JudgeError: There are too few episodes of both kinds, or the reader cannot be taken.
    """
    seed = plan.recipe.seed
    rng = random.Random(f"read/{seed}")
    chosen = choose_episodes(sources, plan.episodes, rng)
    check_episodes(chosen, copy.copy(rng), plan.held_out, plan.hold_out, seed)
    reader, reading = _reader(plan, tell)
    examples, num_broken = _read(chosen, plan, reader, rng, tell)
    parts = split(examples, plan.held_out, plan.hold_out, seed)
    tell(_describe(parts))
    epochs = plan.recipe.epochs
    model = fit(
        parts.fitted, plan.size, plan.recipe, lambda epoch, loss: tell(_progress(epoch, epochs, loss))
    )
    temperature, threshold = calibrate(
        logits_of(model, parts.calibration), [example.truth for example in parts.calibration]
    )
    card = JudgeCard(
        size=plan.size,
        reading=reading,
        temperature=temperature,
        threshold=threshold,
        seed=seed,
        sources=tuple(map(str, sources)),
        num_fitted=len(parts.fitted),
        num_calibration=len(parts.calibration),
        num_held_out=len(parts.held_out),
        hold_out=plan.hold_out,
        num_broken=num_broken,
        agreement=0.0,
    )
    write_judge(output, model, reader, card)
    fitted = _measure(model, parts.held_out, output)
    write_judge(output, model, reader, card.model_copy(update={"agreement": fitted.report.overall.rate}))
    return fitted


def _reader(plan: Plan, tell: Callable[[str], None]) -> tuple[OcrModel, OcrSize]:
    """A reader that was fitted before, or a new one."""
    if plan.reader is not None:
        _, reader, card = read_judge(plan.reader)
        return reader, card.reading
    size = OcrSize()
    return fit_reader(plan.reading, size, tell), size


def _read(
    chosen: Sequence[tuple[Path, str]],
    plan: Plan,
    letters: OcrModel,
    rng: random.Random,
    tell: Callable[[str], None],
) -> tuple[list[Example], int]:
    """The examples, and how many episodes are left out for a broken screenshot."""
    reader = Reader((plan.size.width, plan.size.height), TextReader(letters))
    found: list[Example] = []
    broken: list[str] = []

    def leave_out(name: str, error: PolicyError) -> None:
        broken.append(f"{name}: {error}")

    for example in read_examples(chosen, reader, rng, leave_out):
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
