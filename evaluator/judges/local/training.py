"""Fitting the trained judge: to some tasks, calibrated on others, measured on yet others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from distrl.core.types import Record
from distrl.evaluator.judges.local.data import Example
from distrl.evaluator.judges.local.judge import probability
from distrl.evaluator.judges.local.model import JudgeModel, ModelSize, collate

CONTRAST_WEIGHT = 0.5
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
        contrast: Other goals of its template that a solved episode is asked for, too; it has done none of
            them. That no task is done before it begins makes this true.
        seed: Of weights and order.
    """

    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    contrast: int = 6
    seed: int = 0


def fit(
    examples: Sequence[Example], size: ModelSize, recipe: Recipe, tell: Callable[[int, float], None]
) -> JudgeModel:
    """A network fitted to `examples` by binary cross-entropy.

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
        goals = _goals(examples)
        order = list(examples)
        for epoch in range(recipe.epochs):
            rng.shuffle(order)
            losses = []
            for start in range(0, len(order), recipe.batch_size):
                batch = order[start : start + recipe.batch_size]
                loss = _loss(model, batch, goals, recipe.contrast, rng)
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


def _goals(examples: Sequence[Example]) -> dict[str, dict[str, Tensor]]:
    """The words of every goal, by template and goal."""
    found: dict[str, dict[str, Tensor]] = {}
    for example in examples:
        found.setdefault(example.task.template, {})[example.task.goal] = example.features.words
    return found


def _loss(
    model: JudgeModel,
    batch: Sequence[Example],
    goals: dict[str, dict[str, Tensor]],
    contrast: int,
    rng: random.Random,
) -> Tensor:
    """Mean cross-entropy over what each episode is asked for: its own goal, and others if it is solved."""
    words, owner, truths, weights = [], [], [], []
    for place, example in enumerate(batch):
        known = goals[example.task.template]
        others = [found for goal, found in known.items() if goal != example.task.goal and example.truth]
        chosen = rng.sample(others, min(contrast, len(others)))
        words += [example.features.words, *chosen]
        owner += [place] * (1 + len(chosen))
        truths += [float(example.truth), *[0.0] * len(chosen)]
        weights += [1.0, *[CONTRAST_WEIGHT] * len(chosen)]
    features = collate([example.features for example in batch])
    logits = model(features, torch.stack(words), torch.tensor(owner))
    losses = nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor(truths), torch.tensor(weights), reduction="sum"
    )
    return losses / sum(weights)


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
