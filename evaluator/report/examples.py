"""Which episodes a report shows: the same task before and after, what was learned first, failures too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.paired import instance_of, is_same
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
    choices = _by_instance(evaluations)
    pools: dict[str, list[Choice]] = {kind: [] for kind in KINDS}
    for choice in choices.values():
        if choice.episodes[-1][0] == labels[-1]:
            pools[choice.kind].append(choice)
    ordered = [_over_templates(pools[kind]) for kind in KINDS if pools[kind]]
    return _share(ordered, limit)


def choose_failures(
    evaluations: Mapping[str, Sequence[EpisodeResult]], chosen: Sequence[Choice], per_mode: int
) -> list[Choice]:
    """Further tasks, so that `per_mode` episodes of each failure mode of each evaluation are shown.

    Args:
        evaluations: Episodes by label, oldest evaluation first.
        chosen: Tasks that are shown anyway.
        per_mode: How many.
    """
    choices = _by_instance(evaluations)
    shown = {instance_of(choice.episodes[-1][1]) for choice in chosen}
    seen: Counter[tuple[str, FailureMode]] = Counter()
    for choice in chosen:
        seen.update((label, e.mode) for label, e in choice.episodes if e.mode is not None)
    further = []
    for label in reversed(list(evaluations)):
        for choice in _over_templates(list(choices.values())):
            of_label = dict(choice.episodes).get(label)
            if of_label is None or of_label.mode is None or instance_of(of_label) in shown:
                continue
            if seen[label, of_label.mode] < per_mode:
                further.append(choice)
                shown.add(instance_of(of_label))
                seen.update((one, e.mode) for one, e in choice.episodes if e.mode is not None)
    return further


def _by_instance(evaluations: Mapping[str, Sequence[EpisodeResult]]) -> dict[tuple[str, int], Choice]:
    """Every instance that counts, the newest evaluation's first, each with its episodes of one task."""
    found: dict[tuple[str, int], dict[str, EpisodeResult]] = {}
    for label in reversed(list(evaluations)):
        for episode in evaluations[label]:
            if episode.counts:
                by_label = found.setdefault(instance_of(episode), {})
                if all(is_same(episode, newer) for newer in by_label.values()):
                    by_label[label] = episode
    choices = {}
    for key, by_label in found.items():
        episodes = tuple((label, by_label[label]) for label in evaluations if label in by_label)
        choices[key] = Choice(_kind([episode for _, episode in episodes]), episodes)
    return choices


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
