"""Fitting the trained judge: to some tasks, calibrated on others, measured on yet others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from distrl.core.types import Record
from distrl.evaluator.judges.local.data import Example
from distrl.evaluator.judges.local.features import UNKNOWN, Features
from distrl.evaluator.judges.local.judge import probability
from distrl.evaluator.judges.local.model import JudgeModel, ModelSize, collate

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
