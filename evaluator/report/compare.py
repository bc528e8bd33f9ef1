"""Before and after, side by side: success with intervals for each split, level and template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from distrl.evaluator.paired import Paired, compare_pairs
from distrl.evaluator.results import LoadedEvaluation
from distrl.evaluator.statistics import EpisodeResult, Interval, Repeats, Summary, newcombe
from distrl.evaluator.suites import SUITES, promises


@dataclass(frozen=True)
class Arm:
    """One evaluation's summary in a row; `label` such as "before". `repeats` where it was repeated."""

    label: str
    summary: Summary
    repeats: Repeats | None = None
    num_retries: int = 0
    num_unjudged: int = 0


@dataclass(frozen=True)
class Row:
    """A line of a comparison. `gain` is the last arm minus the first, None with fewer than two arms.

    `paired` is set if both measured the very same instances: then the interval of the gain is its. Else
    `num_common` says how many are the same.
    """

    name: str
    note: str
    arms: tuple[Arm, ...]
    gain: float | None = None
    gain_interval: Interval | None = None
    paired: Paired | None = None
    num_common: int = 0

    @property
    def unlike(self) -> str:
        """What is to be said of a gain that is not over the same tasks; "" where it is."""
        if self.gain is None or self.paired is not None:
            return ""
        return f"not on the same tasks and seeds: {self.num_common or 'none'} in common"

    @property
    def last(self) -> Summary:
        """The summary of the newest evaluation in this row."""
        return self.arms[-1].summary


@dataclass(frozen=True)
class SplitBlock:
    """A split: its row in all, and one row per level of difficulty, if it has any, and per template."""

    overall: Row
    levels: tuple[Row, ...]
    templates: tuple[Row, ...]


def compare(loaded: Mapping[str, LoadedEvaluation]) -> list[SplitBlock]:
    """The splits in the order of the newest evaluation, each with its templates.

    Args:
        loaded: Evaluations by label, oldest first.
    """
    names = [name for one in loaded.values() for name in one.evaluation.splits]
    newest = list(list(loaded.values())[-1].evaluation.splits) if loaded else []
    ordered = [*newest, *(name for name in dict.fromkeys(names) if name not in newest)]
    return [_block(name, loaded) for name in ordered]


def split_note(suite: str, split: str) -> str:
    """How a split differs from `train`, as a suite of this package promises it; "" where none does.

    A user's file may share tasks with what was trained on. Of that itself an evaluation knows nothing.
    """
    if suite not in SUITES or split == "train":
        return ""
    promised = promises(suite)
    if "tasks" not in promised.rules:
        return ""
    place = f" of {promised.trained_on}" if promised.trained_on else ""
    layout = ", nor is their screen layout" if split == "unseen_layout" else ""
    worded = ", and none is worded as one there" if "phrasings" in promised.rules else ""
    return f"None of these tasks is in the split train{place}{layout}{worded}."


def _block(split: str, loaded: Mapping[str, LoadedEvaluation]) -> SplitBlock:
    found = {label: one for label, one in loaded.items() if split in one.evaluation.splits}
    results = {label: one.evaluation.splits[split] for label, one in found.items()}
    episodes = {label: [e for e in one.episodes if e.split == split] for label, one in found.items()}
    by_level = _parts({label: one.levels for label, one in results.items()}, episodes, lambda e: str(e.level))
    levels = tuple(replace(row, name=f"level {row.name}") for row in by_level)
    templates = _parts(
        {label: one.templates for label, one in results.items()}, episodes, lambda e: e.template
    )
    overall = [
        Arm(label, result.overall, result.repeats, result.num_retries, result.num_unjudged)
        for label, result in results.items()
    ]
    suites = {one.evaluation.spec.suite for one in found.values()}
    note = split_note(suites.pop(), split) if len(suites) == 1 else ""
    return SplitBlock(_row(split, note, overall, episodes), levels, templates)


def _parts(
    summaries: Mapping[str, Mapping[str, Summary]],
    episodes: Mapping[str, Sequence[EpisodeResult]],
    part_of: Callable[[EpisodeResult], str],
) -> tuple[Row, ...]:
    """A row for each part of a split.

    Args:
        summaries: Of each evaluation, by the part's name.
        episodes: Of each evaluation.
        part_of: The part that an episode belongs to.
    """
    rows = []
    for part in sorted({part for found in summaries.values() for part in found}):
        arms = [Arm(label, found[part]) for label, found in summaries.items() if part in found]
        of_part = {label: [e for e in these if part_of(e) == part] for label, these in episodes.items()}
        rows.append(_row(part, "", arms, of_part))
    return tuple(rows)


def _row(name: str, note: str, arms: Sequence[Arm], episodes: Mapping[str, Sequence[EpisodeResult]]) -> Row:
    counted = [arm for arm in arms if arm.summary.episodes]
    if len(counted) < 2:
        return Row(name, note, tuple(arms))
    first, last = counted[0], counted[-1]
    paired = compare_pairs(episodes[first.label], episodes[last.label])
    if paired is not None and not paired.unpaired:
        return Row(name, note, tuple(arms), paired.gain, paired.interval, paired)
    gain = last.summary.success_rate - first.summary.success_rate
    common = paired.n if paired is not None else 0
    return Row(name, note, tuple(arms), gain, newcombe(first.summary, last.summary), num_common=common)


def headline(blocks: Sequence[SplitBlock]) -> SplitBlock | None:
    """The split that stands at the top: "test", else the first."""
    for block in blocks:
        if block.overall.name == "test":
            return block
    return blocks[0] if blocks else None
