"""Before and after, side by side: success with intervals for each split and each template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distrl.evaluator.results import Evaluation
from distrl.evaluator.statistics import Interval, Summary, newcombe

SPLIT_NOTES = {
    "train": "Tasks that training used.",
    "val": "Held-out tasks that training watched.",
    "test": "Held-out tasks: parameters, or combinations, that neither demonstrations nor training saw.",
    "unseen_layout": "A screen layout that training never showed.",
    "test_drift": "Held-out tasks on the layout that training drifts to, if it does.",
}


@dataclass(frozen=True)
class Arm:
    """One evaluation's summary in a row; `label` such as "before"."""

    label: str
    summary: Summary


@dataclass(frozen=True)
class Row:
    """A line of a comparison. `gain` is the last arm minus the first, None with fewer than two arms."""

    name: str
    note: str
    arms: tuple[Arm, ...]
    gain: float | None = None
    gain_interval: Interval | None = None

    @property
    def last(self) -> Summary:
        """The summary of the newest evaluation in this row."""
        return self.arms[-1].summary


@dataclass(frozen=True)
class SplitBlock:
    """A split: its row in all, and one row per template."""

    overall: Row
    templates: tuple[Row, ...]


def compare(evaluations: Mapping[str, Evaluation]) -> list[SplitBlock]:
    """The splits in the order of the newest evaluation, each with its templates.

    Args:
        evaluations: By label, oldest first.
    """
    names = [name for evaluation in evaluations.values() for name in evaluation.splits]
    newest = list(list(evaluations.values())[-1].splits) if evaluations else []
    ordered = [*newest, *(name for name in dict.fromkeys(names) if name not in newest)]
    return [_block(name, evaluations) for name in ordered]


def _block(split: str, evaluations: Mapping[str, Evaluation]) -> SplitBlock:
    found = {label: e.splits[split] for label, e in evaluations.items() if split in e.splits}
    templates = sorted({template for result in found.values() for template in result.templates})
    rows = []
    for template in templates:
        arms = [
            Arm(label, result.templates[template])
            for label, result in found.items()
            if template in result.templates
        ]
        rows.append(_row(template, "", arms))
    overall = [Arm(label, result.overall) for label, result in found.items()]
    return SplitBlock(_row(split, SPLIT_NOTES.get(split, ""), overall), tuple(rows))


def _row(name: str, note: str, arms: Sequence[Arm]) -> Row:
    counted = [arm for arm in arms if arm.summary.episodes]
    if len(counted) < 2:
        return Row(name, note, tuple(arms))
    first, last = counted[0].summary, counted[-1].summary
    return Row(name, note, tuple(arms), last.success_rate - first.success_rate, newcombe(first, last))


def headline(blocks: Sequence[SplitBlock]) -> SplitBlock | None:
    """The split that stands at the top: "test", else the first."""
    for block in blocks:
        if block.overall.name == "test":
            return block
    return blocks[0] if blocks else None
