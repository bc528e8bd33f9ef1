"""From stores to a judge: fitted to some tasks, calibrated on others, measured on yet others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from distrl.configs.judge import LocalJudgeConfig
from distrl.configs.policy import ChatPolicy, TinyConfig
from distrl.evaluator.agreement import AgreementReport, Judged, compare
from distrl.evaluator.judges.local.data import Example, HoldOut, choose_episodes, read_examples, split
from distrl.evaluator.judges.local.judge import LocalJudge, probability
from distrl.evaluator.judges.local.model import JudgeCard, JudgeModel, write_judge
from distrl.evaluator.judges.local.prompt import Vocabulary

WARM_UP = 100
MAX_GRADIENT = 1.0
SMALLEST_RATE = 0.02
WEIGHT_DECAY = 0.05
MEASURE_BATCH = 64
LEAST_TASKS = 10
"""A word that fewer tasks have is not in the vocabulary."""
MAX_WORDS = 400


def small_encoder() -> ChatPolicy:
    """The embedded policy, in the size that a judge needs."""
    return TinyConfig(d_model=64, num_layers=2, num_decoder_layers=1, d_ff=128, max_prompt_tokens=1024)


@dataclass(frozen=True)
class Plan:
    """What a judge is fitted to, and how.

    Attributes:
        episodes: The most to read.
        held_out: The share of the tasks or episodes to measure on.
        hold_out: Which of the two.
        epochs, batch_size: Passes over the examples, and episodes in an update.
        learning_rate: Of AdamW; it rises for at most a hundred updates and then falls linearly.
        averaged: How much of the averaged weights, which are the result, an update leaves in place.
        seed: Of weights, order and split.
        policy: The encoder.
    """

    episodes: int = 5000
    held_out: float = 0.2
    hold_out: HoldOut = "task"
    epochs: int = 6
    batch_size: int = 32
    learning_rate: float = 2e-3
    averaged: float = 0.99
    seed: int = 0
    policy: ChatPolicy = field(default_factory=small_encoder)


def fit(examples: Sequence[Example], plan: Plan, report: Callable[[int, float], None]) -> JudgeModel:
    """A network fitted to `examples` by binary cross-entropy; its weights are averaged over the last updates.

    `report` is called after each epoch with its number and its mean loss.
    """
    rng = random.Random(f"fit/{plan.seed}")
    vocabulary = Vocabulary.of(((one.kin, one.words) for one in examples), LEAST_TASKS, MAX_WORDS)
    model = JudgeModel(plan.policy, vocabulary, plan.seed, cached=len(examples))
    trained = [one for one in model.parameters() if one.requires_grad]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        optimizer = torch.optim.AdamW(trained, lr=plan.learning_rate, weight_decay=WEIGHT_DECAY)
        total = plan.epochs * -(-len(examples) // plan.batch_size)
        warm_up = max(1, min(WARM_UP, total // 5))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda n: min(1.0, (n + 1) / warm_up) * max(SMALLEST_RATE, 1.0 - n / total)
        )
        averaged = deepcopy(model).eval()
        order = list(examples)
        for epoch in range(plan.epochs):
            rng.shuffle(order)
            losses = []
            for start in range(0, len(order), plan.batch_size):
                loss = _loss(model, order[start : start + plan.batch_size])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(trained, MAX_GRADIENT)
                optimizer.step()
                schedule.step()
                kept = min(plan.averaged, 1.0 - 1.0 / (schedule.last_epoch + 1))
                with torch.no_grad():
                    for old, new in zip(averaged.parameters(), model.parameters(), strict=True):
                        old.lerp_(new, 1.0 - kept)
                losses.append(loss.item())
            report(epoch + 1, sum(losses) / len(losses))
    return averaged


def _loss(model: JudgeModel, batch: Sequence[Example]) -> Tensor:
    """Mean cross-entropy of the verdicts."""
    logits = model(batch)
    truths = torch.tensor([float(example.truth) for example in batch], device=logits.device)
    return nn.functional.binary_cross_entropy_with_logits(logits, truths)


@torch.inference_mode()
def logits_of(model: JudgeModel, examples: Sequence[Example]) -> list[float]:
    """The network's output for each example."""
    found: list[float] = []
    for start in range(0, len(examples), MEASURE_BATCH):
        found += model(examples[start : start + MEASURE_BATCH]).tolist()
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

    Args:
        sources: Runs, evaluations or stores.
        output: Its directory.
        plan: What it is fitted to, and how.
        report: Receives lines of progress.

    Returns:
        The numbers, the verdicts on the held-out examples, and these.

    Raises:
        StoreError: A source has no store.
        JudgeError: There are too few episodes of both kinds, or elements of screens were not recorded.
    """
    rng = random.Random(f"read/{plan.seed}")
    examples = read_examples(choose_episodes(sources, plan.episodes, rng), rng)
    fitted, calibration, held_out = split(examples, plan.held_out, plan.hold_out, plan.seed)
    for name, part in (("fitted to", fitted), ("calibrated on", calibration), ("held out", held_out)):
        tasks, solved = len({one.kin for one in part}), sum(one.truth for one in part) / len(part)
        report(f"{name} {len(part)} examples of {tasks} tasks, {100 * solved:.0f}% solved")
    model = fit(fitted, plan, lambda epoch, loss: report(f"epoch {epoch} of {plan.epochs}: loss {loss:.3f}"))
    temperature, threshold = calibrate(logits_of(model, calibration), [one.truth for one in calibration])
    card = JudgeCard(
        policy=plan.policy.model_dump(mode="json"),
        words=model.vocabulary.words,
        temperature=temperature,
        threshold=threshold,
        seed=plan.seed,
        sources=tuple(map(str, sources)),
        num_fitted=len(fitted),
        num_calibration=len(calibration),
        num_held_out=len(held_out),
        hold_out=plan.hold_out,
        agreement=0.0,
    )
    write_judge(output, model, card)
    judge = LocalJudge(LocalJudgeConfig(path=str(output)))  # as it was written
    judged = [
        Judged.of(one.trajectory_id, one.task, one.truth, judge.verdict(logit, one.num_steps))
        for one, logit in zip(held_out, logits_of(model, held_out), strict=True)
    ]
    numbers = compare(judged, judge.name, ", ".join(dict.fromkeys(str(one.source) for one in held_out)))
    write_judge(output, model, card.model_copy(update={"agreement": numbers.overall.rate}))
    return numbers, judged, held_out
