"""Comparing evaluations: success by split, level and template, failure modes, and the episodes to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.results import LoadedEvaluation
from distrl.evaluator.statistics import (
    EpisodeResult,
    Interval,
    Paired,
    Repeats,
    Summary,
    compare_pairs,
    instance_of,
    is_same,
    newcombe,
)


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

    `paired` is set if both measured the same instances: then the interval of the gain is its. Else
    `num_common` says how many are the same.
    """

    name: str
    arms: tuple[Arm, ...]
    gain: float | None = None
    gain_interval: Interval | None = None
    paired: Paired | None = None
    num_common: int = 0

    @property
    def unlike(self) -> str:
        """A remark on a gain that is not over the same tasks; "" if it is."""
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
    """The splits in the order of the newest evaluation. `loaded`: by label, oldest first."""
    names = [name for one in loaded.values() for name in one.evaluation.splits]
    newest = list(list(loaded.values())[-1].evaluation.splits) if loaded else []
    ordered = [*newest, *(name for name in dict.fromkeys(names) if name not in newest)]
    return [_block(name, loaded) for name in ordered]


def _block(split: str, loaded: Mapping[str, LoadedEvaluation]) -> SplitBlock:
    found = {label: one for label, one in loaded.items() if split in one.evaluation.splits}
    results = {label: one.evaluation.splits[split] for label, one in found.items()}
    episodes = {label: [e for e in one.episodes if e.split == split] for label, one in found.items()}
    levels = _parts({label: one.levels for label, one in results.items()}, episodes, lambda e: str(e.level))
    overall = [
        Arm(label, result.overall, result.repeats, result.num_retries, result.num_unjudged)
        for label, result in results.items()
    ]
    return SplitBlock(
        overall=_row(split, overall, episodes),
        levels=tuple(replace(row, name=f"level {row.name}") for row in levels),
        templates=_parts(
            {label: one.templates for label, one in results.items()}, episodes, lambda e: e.template
        ),
    )


def _parts(
    summaries: Mapping[str, Mapping[str, Summary]],
    episodes: Mapping[str, Sequence[EpisodeResult]],
    part_of: Callable[[EpisodeResult], str],
) -> tuple[Row, ...]:
    """A row for each part of a split, from each evaluation's summaries by the part's name."""
    rows = []
    for part in dict.fromkeys(part for found in summaries.values() for part in found):
        arms = [Arm(label, found[part]) for label, found in summaries.items() if part in found]
        of_part = {label: [e for e in these if part_of(e) == part] for label, these in episodes.items()}
        rows.append(_row(part, arms, of_part))
    return tuple(rows)


def _row(name: str, arms: Sequence[Arm], episodes: Mapping[str, Sequence[EpisodeResult]]) -> Row:
    counted = [arm for arm in arms if arm.summary.episodes]
    if len(counted) < 2:
        return Row(name, tuple(arms))
    first, last = counted[0], counted[-1]
    paired = compare_pairs(episodes[first.label], episodes[last.label])
    if paired is not None and not paired.unpaired:
        return Row(name, tuple(arms), paired.gain, paired.interval, paired)
    gain = last.summary.success_rate - first.summary.success_rate
    common = paired.n if paired is not None else 0
    return Row(name, tuple(arms), gain, newcombe(first.summary, last.summary), num_common=common)


def headline(blocks: Sequence[SplitBlock]) -> SplitBlock | None:
    """The split at the top of the page: "test", else the first."""
    for block in blocks:
        if block.overall.name == "test":
            return block
    return blocks[0] if blocks else None


MAX_LINKS = 3
EXAMPLES = 6  # tasks that a report shows step by step


@dataclass(frozen=True)
class ModeCell:
    """A mode in an evaluation: the number of episodes, their share, and anchors of some on the page."""

    mode: FailureMode
    count: int
    share: float
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModeBar:
    """An evaluation's failures, with a cell for every mode."""

    label: str
    episodes: int
    failures: int
    cells: tuple[ModeCell, ...]


def failure_tables(
    loaded: Mapping[str, LoadedEvaluation], anchors: Mapping[str, str]
) -> dict[str, list[ModeBar]]:
    """The failures of each split that has any, by evaluation. `anchors`: of trajectories, by id."""
    tables = {}
    for split in dict.fromkeys(split for one in loaded.values() for split in one.evaluation.splits):
        bars = [
            _bar(label, [e for e in one.episodes if e.split == split and e.counts], anchors)
            for label, one in loaded.items()
            if split in one.evaluation.splits
        ]
        if any(bar.failures for bar in bars):
            tables[split] = bars
    return tables


def _bar(label: str, episodes: Sequence[EpisodeResult], anchors: Mapping[str, str]) -> ModeBar:
    failed = [episode for episode in episodes if not episode.success]
    cells = []
    for mode in FailureMode:
        found = [episode.trajectory_id for episode in failed if episode.mode is mode]
        links = tuple(anchors[one] for one in found if one in anchors)[:MAX_LINKS]
        cells.append(ModeCell(mode, len(found), len(found) / max(1, len(episodes)), links))
    return ModeBar(label, len(episodes), len(failed), tuple(cells))


KINDS = ("learned", "still failing", "lost", "solved all along", "solved", "failed")
"""What happened to a task between the first and the last evaluation; the last two when there is only one."""


@dataclass(frozen=True)
class Choice:
    """A task to show, and its episode in each evaluation, by label."""

    kind: str
    episodes: tuple[tuple[str, EpisodeResult], ...]


def choose_examples(evaluations: Mapping[str, Sequence[EpisodeResult]], limit: int) -> list[Choice]:
    """At most `limit` tasks of the newest evaluation: two thirds of the first kind, the rest of others."""
    if not evaluations:
        return []
    newest = list(evaluations)[-1]
    shown = [choice for choice in _by_instance(evaluations).values() if choice.episodes[-1][0] == newest]
    pools = [_over_templates([one for one in shown if one.kind == kind]) for kind in KINDS]
    pools = [pool for pool in pools if pool]
    if not pools:
        return []
    first, *others = pools
    # Two thirds from the first kind, then one of each other kind in turn, then what is left of the first.
    most = (2 * limit + 2) // 3 if others else limit
    rest = [choice for turn in zip_longest(*others) for choice in turn if choice is not None]
    chosen = [*first[:most], *rest, *first[most:]][:limit]
    return sorted(chosen, key=lambda choice: KINDS.index(choice.kind))


def _by_instance(evaluations: Mapping[str, Sequence[EpisodeResult]]) -> dict[tuple[str, int], Choice]:
    """Every instance that counts, the newest evaluation's first, each with its episodes of one task."""
    found: dict[tuple[str, int], dict[str, EpisodeResult]] = {}
    for label in reversed(list(evaluations)):
        for episode in evaluations[label]:
            if not episode.counts:
                continue
            by_label = found.setdefault(instance_of(episode), {})
            if all(is_same(episode, newer) for newer in by_label.values()):
                by_label[label] = episode
    choices = {}
    for key, by_label in found.items():
        episodes = tuple(reversed(by_label.items()))
        choices[key] = Choice(_kind([episode for _, episode in episodes]), episodes)
    return choices


def _kind(episodes: Sequence[EpisodeResult]) -> str:
    before, after = episodes[0].success, episodes[-1].success
    if len(episodes) == 1:
        return "solved" if after else "failed"
    if after:
        return "solved all along" if before else "learned"
    return "lost" if before else "still failing"


def _over_templates(choices: Sequence[Choice]) -> list[Choice]:
    """The same choices, one of each (split, template) in turn."""
    groups: dict[tuple[str, str], list[Choice]] = {}
    for choice in choices:
        episode = choice.episodes[-1][1]
        groups.setdefault((episode.split, episode.template), []).append(choice)
    return [choice for turn in zip_longest(*groups.values()) for choice in turn if choice is not None]
