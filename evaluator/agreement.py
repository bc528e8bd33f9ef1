"""A judge's verdicts: its success rate, its agreement with ground truth, and where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from distrl.core.logs import one_line
from distrl.core.types import Number, Record, Spent, Task, Verdict
from distrl.evaluator.statistics import Interval, wilson_by_task

MAX_REASONS, MAX_REASON = 10, 300
"""Reasons for missing verdicts to show, and characters of one."""


class Judged(Record):
    """An episode with ground truth and a judge's verdict: one line of `verdicts/JUDGE.jsonl`.

    Attributes:
        truth: Whether the environment gave full credit, of a judge that goes through the steps at the step
            where it decided; None if there is no score.
    """

    trajectory_id: str
    task_id: str
    template: str
    split: str
    goal: str
    truth: bool | None
    verdict: Verdict

    @classmethod
    def of(cls, trajectory_id: str, task: Task, truth: bool | None, verdict: Verdict) -> Judged:
        """The line of an episode of `task`."""
        return cls(
            trajectory_id=trajectory_id,
            task_id=task.id,
            template=task.template,
            split=task.split,
            goal=task.goal,
            truth=truth,
            verdict=verdict,
        )

    @property
    def is_compared(self) -> bool:
        """Whether there is both a verdict and ground truth."""
        return self.truth is not None and self.verdict.is_decided

    @property
    def distance(self) -> float:
        """How far the judge's score is from the truth, in [0, 1]."""
        return abs(self.verdict.score - float(bool(self.truth)))


class Agreement(Record):
    """A judge against ground truth.

    Attributes:
        both, judge_only, truth_only, neither: The confusion matrix: which of the two is a success.
        undecided: Episodes with ground truth but without a verdict; they are in no other number.
        rate, interval: Share of the verdicts that are right, and Wilson's 95% interval. Episodes of a task
            are not independent, so the interval uses `effective_trials`.
        kappa: Cohen's κ; None where it is not defined: the judge or the truth always says the same.
        precision: Share of the judge's successes that are successes; None without any.
        recall: Share of the successes that the judge finds; None without any.
    """

    both: int
    judge_only: int
    truth_only: int
    neither: int
    undecided: int
    rate: Number
    interval: Interval
    kappa: Number | None
    precision: Number | None
    recall: Number | None

    @property
    def total(self) -> int:
        """How many verdicts were compared."""
        return self.both + self.judge_only + self.truth_only + self.neither


class Solved(Record):
    """A success rate according to a judge, with Wilson's 95% interval."""

    successes: int
    episodes: int
    rate: Number
    interval: Interval

    def describe(self) -> str:
        """The rate with its interval and counts, in one line."""
        if not self.episodes:
            return "nothing decided"
        low, high = 100 * self.interval.low, 100 * self.interval.high
        counts = f"{self.successes} of {self.episodes}"
        return f"{100 * self.rate:.1f}% solved ({low:.1f} to {high:.1f}), {counts}"


def solved(ends: Iterable[tuple[str, bool]]) -> Solved:
    """The numbers over episodes: the task's id of each, and whether it was a success."""
    tasks: dict[str, list[float]] = {}
    for task_id, success in ends:
        tasks.setdefault(task_id, []).append(float(success))
    n, k = sum(map(len, tasks.values())), int(sum(map(sum, tasks.values())))
    return Solved(successes=k, episodes=n, rate=k / n if n else 0.0, interval=wilson_by_task(tasks.values()))


class Drift(Record):
    """How wrong a model's states are after `step` imagined steps, over `episodes` that have so many.

    `missed` is the sum of their squared errors, relative to that of a model in which nothing changes: 0 is
    perfect, 1 is no better than standing still.
    """

    step: int
    episodes: int
    missed: Number


class AgreementReport(Record):
    """A judge on a set of episodes, and against their ground truth: `agreement-JUDGE.json`.

    Attributes:
        source: The store.
        solved: The judge's own success rate over the episodes that it decided, with or without ground truth,
            and those that fail in any case; None for verdicts on parts of episodes.
        num_failed: How many of these episodes fail in any case, so that the judge was not called.
        unknown: Episodes without ground truth.
        unjudged: The most frequent reasons for missing verdicts, with their numbers.
        spent: The cost over all sessions.
        origins: Of imagined episodes: the real episodes that they leave, as these ended.
        drift: Of imagined episodes whose states are numbers.
    """

    judge: str
    model: str
    source: str
    overall: Agreement
    templates: dict[str, Agreement]
    solved: Solved | None = None
    solved_templates: dict[str, Solved] = {}
    num_failed: int = 0
    unknown: int = 0
    unjudged: dict[str, int] = {}
    spent: Spent = Spent()
    origins: Solved | None = None
    drift: tuple[Drift, ...] = ()


def cohen_kappa(both: int, judge_only: int, truth_only: int, neither: int) -> float | None:
    """Cohen's κ = (p_o − p_e) / (1 − p_e) of a confusion matrix (Cohen 1960), agreement beyond chance.

    p_o is the share of equal pairs, and p_e = Σ p_i. p_.i its expectation from the row and column sums.

    Returns:
        None if there is nothing, or one of the two always says the same: then p_o = p_e whatever the other
        says, and κ says nothing about agreement.
    """
    n = both + judge_only + truth_only + neither
    said, true = both + judge_only, both + truth_only
    if not 0 < said < n or not 0 < true < n:
        return None
    expected = (said * true + (n - said) * (n - true)) / n**2
    return ((both + neither) / n - expected) / (1.0 - expected)


def agreement(judged: Iterable[Judged]) -> Agreement:
    """The numbers over episodes with ground truth; others are ignored."""
    known = [one for one in judged if one.truth is not None]
    tasks: dict[str, list[tuple[bool, bool]]] = {}
    for one in known:
        if one.is_compared:
            tasks.setdefault(one.task_id, []).append((one.verdict.success, bool(one.truth)))
    pairs = [pair for task in tasks.values() for pair in task]
    both, judge_only = pairs.count((True, True)), pairs.count((True, False))
    truth_only, neither = pairs.count((False, True)), pairs.count((False, False))
    right, n = both + neither, len(pairs)
    return Agreement(
        both=both,
        judge_only=judge_only,
        truth_only=truth_only,
        neither=neither,
        undecided=len(known) - n,
        rate=right / n if n else 0.0,
        interval=wilson_by_task([float(said is truth) for said, truth in task] for task in tasks.values()),
        kappa=cohen_kappa(both, judge_only, truth_only, neither),
        precision=both / (both + judge_only) if both + judge_only else None,
        recall=both / (both + truth_only) if both + truth_only else None,
    )


def compare(
    judged: Sequence[Judged], judge: str, source: str, failed: Sequence[Task] | None = None
) -> AgreementReport:
    """The report on a judge's verdicts.

    Args:
        failed: The tasks of further episodes, which fail in any case. None if parts of episodes were judged,
            so that there is no success rate.
    """
    templates = sorted({one.template for one in judged})
    texts = [" ".join(one.verdict.reason.split()) for one in judged if not one.verdict.is_decided]
    reasons = Counter(one_line(text)[:MAX_REASON] for text in texts)
    return AgreementReport(
        judge=judge,
        model=next((one.verdict.model for one in judged if one.verdict.model), ""),
        source=source,
        overall=agreement(judged),
        templates={name: agreement(one for one in judged if one.template == name) for name in templates},
        **({} if failed is None else _solved(judged, failed)),
        unknown=sum(one.truth is None for one in judged),
        unjudged=dict(reasons.most_common(MAX_REASONS)),
        spent=Spent.total(one.verdict.spent for one in judged),
    )


def _solved(judged: Sequence[Judged], failed: Sequence[Task]) -> dict[str, Any]:
    """A report's fields about the judge's success rate."""
    ends = [(one.template, one.task_id, one.verdict.success) for one in judged if one.verdict.is_decided]
    ends += [(task.template, task.id, False) for task in failed]
    return {
        "solved": solved((task_id, success) for _, task_id, success in ends),
        "solved_templates": {
            name: solved((task_id, success) for template, task_id, success in ends if template == name)
            for name in sorted({template for template, _, _ in ends})
        },
        "num_failed": len(failed),
    }


def disagreements(judged: Iterable[Judged]) -> list[Judged]:
    """The judge's errors, the most confident first."""
    wrong = [one for one in judged if one.is_compared and one.verdict.success is not one.truth]
    return sorted(wrong, key=lambda one: (-one.distance, one.task_id))


def lines(report: AgreementReport) -> list[str]:
    """The report in a few lines of text."""
    text = []
    if report.solved is not None:
        text.append(f"by {report.judge}: {report.solved.describe()}")
        if len(report.solved_templates) > 1:
            text += [f"  {name:<22}  {one.describe()}" for name, one in report.solved_templates.items()]
        if report.num_failed:
            text.append(f"  {report.num_failed} of these fail in any case: the judge was not called")
    if report.origins is not None:
        text.append(f"  the real episodes that they leave: {report.origins.describe()}")
    text.append(f"{report.judge} against ground truth: {describe(report.overall)}")
    if len(report.templates) > 1:
        text += [f"  {name:<22}  {describe(found)}" for name, found in report.templates.items()]
    table = report.overall
    text += [
        f"  {'':<22}  truth: success  truth: failure",
        f"  {f'{report.judge}: success':<22}  {table.both:>14}  {table.judge_only:>14}",
        f"  {f'{report.judge}: failure':<22}  {table.truth_only:>14}  {table.neither:>14}",
    ]
    if table.undecided or report.unknown:
        text.append(f"  {table.undecided} unjudged; {report.unknown} without ground truth")
    text += [f"  {count} unjudged: {reason}" for reason, count in report.unjudged.items()]
    if report.spent.calls:
        text.append(f"  {report.spent.describe()}")
    text += [
        f"  after step {one.step}: {one.missed:.0%} of the change is missed, n = {one.episodes}"
        for one in report.drift
    ]
    return text


def describe(found: Agreement) -> str:
    """Agreement with its interval and κ, in one line."""
    if not found.total:
        return "nothing to compare"
    low, high = 100 * found.interval.low, 100 * found.interval.high
    kappa = "κ not defined" if found.kappa is None else f"κ = {found.kappa:.2f}"
    return f"{100 * found.rate:.1f}% agree ({low:.1f} to {high:.1f}), n = {found.total}, {kappa}"
