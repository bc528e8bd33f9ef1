"""From stores to a judge: fitted to some tasks, calibrated on others, measured on yet others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from distrl.configs.judge import LocalJudgeConfig
from distrl.core.errors import PolicyError
from distrl.evaluator.agreement import AgreementReport, Judged, compare
from distrl.evaluator.judges.local.data import (
    Example,
    HoldOut,
    choose_episodes,
    find_parts,
    read_features,
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
from distrl.evaluator.judges.local.ocr import TextReader, fit_reader

WARM_UP = 100
MAX_GRADIENT = 1.0
SMALLEST_RATE = 0.02
WEIGHT_DECAY = 0.05
FORGET = 0.1
"""The share of the goal's words that are unknown in an update, so that the network has to compare."""
MEASURE_BATCH = 64
TELL_EVERY = 500


@dataclass(frozen=True)
class Plan:
    """What a judge is fitted to, and how.

    Attributes:
        episodes: The most to read.
        held_out: The share of the tasks or episodes to measure on.
        hold_out: Which of the two.
        epochs, batch_size: Passes over the examples, and episodes in an update.
        learning_rate: Of AdamW; it rises for the first hundred updates and falls linearly after.
        averaged: How much of the averaged weights, which are the result, an update leaves in place.
        seed: Of weights, order and split.
        size: The network's.
        reader_updates: Updates of the text reader.
        reader: A judge whose reader is taken instead.
    """

    episodes: int = 5000
    held_out: float = 0.2
    hold_out: HoldOut = "task"
    epochs: int = 12
    batch_size: int = 32
    learning_rate: float = 2e-3
    averaged: float = 0.99
    seed: int = 0
    size: ModelSize = field(default_factory=ModelSize)
    reader_updates: int = 1000
    reader: Path | None = None


def fit(examples: Sequence[Example], plan: Plan, report: Callable[[int, float], None]) -> JudgeModel:
    """A network fitted to `examples` by binary cross-entropy; its weights are averaged over the last updates.

    `report` is called after each epoch with its number and its mean loss.
    """
    rng = random.Random(f"fit/{plan.seed}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        model = JudgeModel(plan.size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=WEIGHT_DECAY)
        total = plan.epochs * -(-len(examples) // plan.batch_size)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda n: min(1.0, (n + 1) / WARM_UP) * max(SMALLEST_RATE, 1.0 - n / total)
        )
        averaged = deepcopy(model).eval()
        order = list(examples)
        for epoch in range(plan.epochs):
            rng.shuffle(order)
            losses = []
            for start in range(0, len(order), plan.batch_size):
                loss = _loss(model, order[start : start + plan.batch_size], rng)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
                optimizer.step()
                schedule.step()
                kept = min(plan.averaged, 1.0 - 1.0 / (schedule.last_epoch + 1))
                with torch.no_grad():
                    for old, new in zip(averaged.parameters(), model.parameters(), strict=True):
                        old.lerp_(new, 1.0 - kept)
                losses.append(loss.item())
            report(epoch + 1, sum(losses) / len(losses))
    return averaged


def _loss(model: JudgeModel, batch: Sequence[Example], rng: random.Random) -> Tensor:
    """Mean cross-entropy of the verdicts."""
    features = collate([_changed(example.features, rng) for example in batch])
    truths = torch.tensor([float(example.truth) for example in batch])
    return nn.functional.binary_cross_entropy_with_logits(model(features), truths)


def _changed(features: Features, rng: random.Random) -> Features:
    """The same episode, half of the time light for dark, so that no theme gives a task away, and with some
    words unknown."""
    screen, crops, words = features.screen, features.crops, features.words
    if rng.random() < 0.5:
        screen, crops = 255 - screen, 255 - crops
    unknown = [row for row in range(len(words)) if words[row, 0] and rng.random() < FORGET]
    if unknown:
        words = words.clone()
        words[unknown] = UNKNOWN
    return replace(features, screen=screen, crops=crops, words=words)


@torch.inference_mode()
def logits_of(model: JudgeModel, examples: Sequence[Example]) -> list[float]:
    """The network's output for each example."""
    found: list[float] = []
    for start in range(0, len(examples), MEASURE_BATCH):
        batch = [example.features for example in examples[start : start + MEASURE_BATCH]]
        found += model(collate(batch)).tolist()
    return found


def calibrate(logits: Sequence[float], truths: Sequence[bool]) -> tuple[float, float]:
    """Temperature and threshold that suit examples which were not fitted to.

    The temperature is the one of the largest likelihood, so that probabilities are calibrated (Guo et al.
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


def fit_judge(
    sources: Sequence[Path], output: Path, plan: Plan, report: Callable[[str], None]
) -> tuple[AgreementReport, list[Judged], list[Example]]:
    """Fits a judge to stored episodes, writes it to `output`, and measures it.

    Errors in the sources are raised before the reader is fitted, which takes minutes.

    Args:
        sources: Runs, evaluations or stores.
        output: Its directory.
        plan: What it is fitted to, and how.
        report: Receives lines of progress.

    Returns:
        The numbers, the verdicts on the held-out examples, and these.

    Raises:
        StoreError: A source has no store.
        JudgeError: There are too few episodes of both kinds, or the reader cannot be taken.
    """
    rng = random.Random(f"read/{plan.seed}")
    found = find_parts(choose_episodes(sources, plan.episodes, rng), rng)
    split(found, plan.held_out, plan.hold_out, plan.seed)
    if plan.reader is not None:
        letters = read_judge(plan.reader)[1]
    else:
        letters = fit_reader(plan.seed, report, plan.reader_updates)
    reader = Reader((plan.size.width, plan.size.height), TextReader(letters))
    broken: list[str] = []

    def leave_out(name: str, error: PolicyError) -> None:
        broken.append(f"{name}: {error}")

    examples: list[Example] = []
    for example in read_features(found, reader, leave_out):
        examples.append(example)
        if len(examples) % TELL_EVERY == 0:
            report(f"read {len(examples)} examples")
    if broken:
        report(f"left out {len(broken)} episodes with a broken screenshot, such as {broken[0]}")
    fitted, calibration, held_out = split(examples, plan.held_out, plan.hold_out, plan.seed)
    for name, part in (("fitted to", fitted), ("calibrated on", calibration), ("held out", held_out)):
        tasks, solved = len({one.kin for one in part}), sum(one.truth for one in part) / len(part)
        report(f"{name} {len(part)} examples of {tasks} tasks, {100 * solved:.0f}% solved")
    model = fit(fitted, plan, lambda epoch, loss: report(f"epoch {epoch} of {plan.epochs}: loss {loss:.3f}"))
    temperature, threshold = calibrate(logits_of(model, calibration), [one.truth for one in calibration])
    card = JudgeCard(
        size=plan.size,
        temperature=temperature,
        threshold=threshold,
        seed=plan.seed,
        sources=tuple(map(str, sources)),
        num_fitted=len(fitted),
        num_calibration=len(calibration),
        num_held_out=len(held_out),
        hold_out=plan.hold_out,
        num_broken=len(broken),
        agreement=0.0,
    )
    write_judge(output, model, letters, card)
    judge = LocalJudge(LocalJudgeConfig(path=str(output)))  # as it was written
    judged = [
        Judged.of(one.trajectory_id, one.task, one.truth, judge.verdict(logit, one.num_steps))
        for one, logit in zip(held_out, logits_of(model, held_out), strict=True)
    ]
    numbers = compare(judged, judge.name, ", ".join(dict.fromkeys(str(one.source) for one in held_out)))
    write_judge(output, model, letters, card.model_copy(update={"agreement": numbers.overall.rate}))
    return numbers, judged, held_out
