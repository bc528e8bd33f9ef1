"""From stores to a judge: fitted to some tasks, calibrated on others, measured on yet others."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from distrl.configs.judge import LocalJudgeConfig
from distrl.core.errors import PolicyError
from distrl.core.types import Record
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
from distrl.evaluator.judges.local.features import UNKNOWN, Features, Reader
from distrl.evaluator.judges.local.judge import LocalJudge, probability
from distrl.evaluator.judges.local.model import (
    JudgeCard,
    JudgeModel,
    ModelSize,
    collate,
    read_judge,
    write_judge,
)
from distrl.evaluator.judges.local.ocr import OcrModel, OcrRecipe, OcrSize, TextReader, fit_reader

WARM_UP = 100
MAX_GRADIENT = 1.0
SMALLEST_RATE = 0.02
MEASURE_BATCH = 64


class Recipe(Record):
    """How a judge is fitted.

    Attributes:
        epochs: Passes over the examples.
        batch_size: Episodes in an update.
        learning_rate: Of AdamW; it rises for the first hundred updates and falls linearly after.
        weight_decay: AdamW's.
        recolour: Whether brightness is changed at random, so that no theme gives a task away.
        forget: The share of the goal's words that are not known in an update, so that it has to compare.
        averaged: How much of the averaged weights, which are what one gets, an update leaves in place.
        seed: Of weights and order.
    """

    epochs: int = 12
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    recolour: bool = True
    forget: float = 0.1
    averaged: float = 0.99
    seed: int = 0


def fit(
    examples: Sequence[Example], size: ModelSize, recipe: Recipe, tell: Callable[[int, float], None]
) -> JudgeModel:
    """A network fitted to `examples` by binary cross-entropy; its weights are averaged over the last updates.

    Args:
        examples: What to fit to.
        size: The network's.
        recipe: How.
        tell: Called after each epoch with its number and its mean loss.
    """
    rng = random.Random(f"fit/{recipe.seed}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = JudgeModel(size)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        total = recipe.epochs * -(-len(examples) // recipe.batch_size)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: _rate(n, total))
        averaged = deepcopy(model).eval()
        order = list(examples)
        for epoch in range(recipe.epochs):
            rng.shuffle(order)
            losses = []
            for start in range(0, len(order), recipe.batch_size):
                batch = order[start : start + recipe.batch_size]
                loss = _loss(model, batch, recipe, rng)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
                optimizer.step()
                schedule.step()
                _average(averaged, model, min(recipe.averaged, 1.0 - 1.0 / (schedule.last_epoch + 1)))
                losses.append(loss.item())
            tell(epoch + 1, sum(losses) / len(losses))
    return averaged


def _rate(update: int, total: int) -> float:
    """The learning rate of an update, as a share of the highest."""
    return min(1.0, (update + 1) / WARM_UP) * max(SMALLEST_RATE, 1.0 - update / total)


@torch.no_grad()
def _average(averaged: JudgeModel, model: JudgeModel, kept: float) -> None:
    for old, new in zip(averaged.parameters(), model.parameters(), strict=True):
        old.lerp_(new, 1.0 - kept)


def _loss(model: JudgeModel, batch: Sequence[Example], recipe: Recipe, rng: random.Random) -> Tensor:
    """Mean cross-entropy of the verdicts."""
    features = collate([_changed(example.features, recipe, rng) for example in batch])
    truths = torch.tensor([float(example.truth) for example in batch])
    return nn.functional.binary_cross_entropy_with_logits(model(features), truths)


def _changed(features: Features, recipe: Recipe, rng: random.Random) -> Features:
    """The same episode in other brightness, half of the time light for dark, and with some words unknown."""
    screen, crops, words = features.screen, features.crops, features.words
    if recipe.recolour and rng.random() < 0.5:
        screen, crops = 255 - screen, 255 - crops
    unknown = [row for row in range(len(words)) if words[row, 0] and rng.random() < recipe.forget]
    if unknown:
        words = words.clone()
        words[unknown] = UNKNOWN
    return replace(features, screen=screen, crops=crops, words=words)


@torch.inference_mode()
def logits_of(model: JudgeModel, examples: Sequence[Example]) -> list[float]:
    """What the network says of each example."""
    found: list[float] = []
    for start in range(0, len(examples), MEASURE_BATCH):
        batch = [example.features for example in examples[start : start + MEASURE_BATCH]]
        found += model(collate(batch)).tolist()
    return found


def calibrate(logits: Sequence[float], truths: Sequence[bool]) -> tuple[float, float]:
    """Temperature and threshold that suit examples which were not fitted to.

    The temperature is the one of the largest likelihood, so that probabilities mean what they say (Guo et al.
    2017). The threshold is the one that is right most often; of several the one in the middle.

    Returns:
        Temperature, and threshold as a probability in (0, 1).
    """
    outputs, labels = torch.tensor(logits), torch.tensor(truths, dtype=torch.float32)
    temperatures = [0.25 * 1.1**step for step in range(40)]  # 0.25 to 10
    entropy = nn.functional.binary_cross_entropy_with_logits
    temperature = min(temperatures, key=lambda t: float(entropy(outputs / t, labels)))
    scores = [probability(logit, temperature) for logit in logits]
    cuts = [step / 100 for step in range(5, 96)]
    right = [
        sum((score >= cut) == truth for score, truth in zip(scores, truths, strict=True)) for cut in cuts
    ]
    best = [cut for cut, count in zip(cuts, right, strict=True) if count == max(right)]
    return temperature, best[len(best) // 2]


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

    Errors in the sources are raised before the reader is fitted, which takes minutes.

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
