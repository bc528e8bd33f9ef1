"""Which episodes a report shows: the same task before and after, what was learned first, failures too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distrl.core.types import Fault
from distrl.evaluator.statistics import EpisodeResult

KINDS = ("learned", "still failing", "lost", "solved all along", "solved", "failed")
"""What happened to a task between the first and the last evaluation; the last two when there is only one."""


@dataclass(frozen=True)
class Choice:
    """A task to show, and its episode in each evaluation, by label."""

    kind: str
    episodes: tuple[tuple[str, EpisodeResult], ...]


def choose_examples(evaluations: Mapping[str, Sequence[EpisodeResult]], limit: int) -> list[Choice]:
    """At most `limit` tasks: about two thirds of the foremost kind, the rest of others, over all templates.

    Args:
        evaluations: Episodes by label, oldest evaluation first. Tasks of the last one are shown.
        limit: How many tasks.
    """
    if not evaluations:
        return []
    labels = list(evaluations)
    by_task = {label: {e.task_id: e for e in evaluations[label] if e.fault is Fault.NONE} for label in labels}
    pools: dict[str, list[Choice]] = {kind: [] for kind in KINDS}
    for task_id in by_task[labels[-1]]:
        episodes = tuple((label, by_task[label][task_id]) for label in labels if task_id in by_task[label])
        kind = _kind([episode for _, episode in episodes])
        pools[kind].append(Choice(kind, episodes))
    ordered = [_over_templates(pools[kind]) for kind in KINDS if pools[kind]]
    return _share(ordered, limit)


def _kind(episodes: Sequence[EpisodeResult]) -> str:
    if len(episodes) == 1:
        return "solved" if episodes[0].success else "failed"
    before, after = episodes[0].success, episodes[-1].success
    if after:
        return "solved all along" if before else "learned"
    return "lost" if before else "still failing"


def _over_templates(choices: Sequence[Choice]) -> list[Choice]:
    """The same choices, one of each (split, template) in turn."""
    groups: dict[tuple[str, str], list[Choice]] = {}
    for choice in choices:
        episode = choice.episodes[-1][1]
        groups.setdefault((episode.split, episode.template), []).append(choice)
    turns = [
        (turn, place, choice)
        for place, group in enumerate(groups.values())
        for turn, choice in enumerate(group)
    ]
    return [choice for _, _, choice in sorted(turns, key=lambda item: item[:2])]


def _share(pools: Sequence[list[Choice]], limit: int) -> list[Choice]:
    """Two thirds from the first pool, then one of each other pool in turn, then whatever is left."""
    if not pools or limit < 1:
        return []
    first = max(1, (2 * limit + 2) // 3) if len(pools) > 1 else limit
    counts = [min(first, len(pools[0]))] + [0] * (len(pools) - 1)
    while sum(counts) < limit:
        open_pools = [i for i in range(len(pools)) if counts[i] < len(pools[i])]
        if not open_pools:
            break
        others = [i for i in open_pools if i > 0] or open_pools
        counts[min(others, key=lambda i: counts[i])] += 1
    return [choice for pool, count in zip(pools, counts, strict=True) for choice in pool[:count]]
