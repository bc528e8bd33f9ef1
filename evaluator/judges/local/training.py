"""Fitting the trained judge: to some tasks, calibrated on others, measured on yet others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from distrl.core.types import Record
from distrl.evaluator.judges.local.data import Example
from distrl.evaluator.judges.local.features import Features, goal_words, word_buckets
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
        telling: Weight of what solved episodes are said to have done, in their goals' words.
        recolour: Whether colours are changed at random, so that no theme gives a task away.
        seed: Of weights and order.
    """

    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    telling: float = 1.0
    recolour: bool = True
    seed: int = 0


def fit(
    examples: Sequence[Example], size: ModelSize, recipe: Recipe, tell: Callable[[int, float], None]
) -> JudgeModel:
    """A network fitted to `examples` by binary cross-entropy: of its verdicts, and of what it says was done.

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
        words = _Words(examples)
        order = list(examples)
        for epoch in range(recipe.epochs):
            rng.shuffle(order)
            losses = []
            for start in range(0, len(order), recipe.batch_size):
                batch = order[start : start + recipe.batch_size]
                loss = _loss(model, batch, words, recipe, rng)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
            tell(epoch + 1, sum(losses) / len(losses))
    return model.eval()


def _rate(update: int, total: int) -> float:
    """The learning rate of an update, as a share of the highest."""
    return min(1.0, (update + 1) / WARM_UP) * max(SMALLEST_RATE, 1.0 - update / total)


class _Words:
    """The words of all goals, as a vocabulary."""

    def __init__(self, examples: Sequence[Example]) -> None:
        names = sorted({word for example in examples for word in goal_words(example.task.goal)})
        self._places = {word: place for place, word in enumerate(names)}
        self.buckets = torch.stack([word_buckets(word) for word in names])

    def told(self, examples: Sequence[Example]) -> Tensor:
        """[B, V] which words are in each goal."""
        found = torch.zeros(len(examples), len(self._places))
        for row, example in enumerate(examples):
            found[row, [self._places[word] for word in goal_words(example.task.goal)]] = 1.0
        return found


def _loss(
    model: JudgeModel, batch: Sequence[Example], words: _Words, recipe: Recipe, rng: random.Random
) -> Tensor:
    """Mean cross-entropy of the verdicts, and of each word that tells what the solved episodes have done."""
    features = collate(
        [_recoloured(example.features, rng) if recipe.recolour else example.features for example in batch]
    )
    logits, telling = model(features, words.buckets)
    truths = torch.tensor([float(example.truth) for example in batch])
    cross_entropy = nn.functional.binary_cross_entropy_with_logits
    loss = cross_entropy(logits, truths)
    told = words.told(batch)
    missed = cross_entropy(telling, told, reduction="none").sum(1) / told.sum(1)
    return loss + recipe.telling * (missed * truths).sum() / truths.sum().clamp(min=1.0)


def _recoloured(features: Features, rng: random.Random) -> Features:
    """The same episode in other colours: channels exchanged, and half of the time light for dark."""
    order = rng.sample(range(3), 3)
    screen, crops = features.screen[order], features.crops[:, [*order, *(3 + place for place in order)]]
    if rng.random() < 0.5:
        screen, crops = 255 - screen, 255 - crops
    return replace(features, screen=screen, crops=crops)


@torch.inference_mode()
def logits_of(model: JudgeModel, examples: Sequence[Example]) -> list[float]:
    """What the network says of each example."""
    found: list[float] = []
    for start in range(0, len(examples), MEASURE_BATCH):
        batch = [example.features for example in examples[start : start + MEASURE_BATCH]]
        found += model(collate(batch))[0].tolist()
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
