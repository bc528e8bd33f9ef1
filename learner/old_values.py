"""Values as they were when an episode came in, for `learner.value_recompute: false`.

An episode carries its own: H + 1 numbers. They are taken before the first update after it came in, which is
the first time that anybody could ask, many episodes at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from distrl.learner.batching import Batcher
from distrl.learner.engine import Engine
from distrl.learner.episodes import Episode

Saved = dict[str, list[float]]


def note(episodes: dict[str, Episode], engine: Engine, batcher: Batcher, batch_size: int) -> int:
    """Gives the episodes that have no values yet those of the present critic. Returns how many.

    Args:
        episodes: By id, as they came in; replaced in place. Those without values are the last ones, so
            that this takes no time for what has some.
        batch_size: How many trajectories are evaluated at a time.
    """
    missing = list(takewhile(lambda episode: not episode.values, reversed(episodes.values())))[::-1]
    for start in range(0, len(missing), batch_size):
        some = missing[start : start + batch_size]
        batch = batcher.trajectories(some)
        values = engine.values(batch)
        flat, bootstrap = values.baseline.tolist(), values.bootstrap.tolist()
        for episode, first, last, after in zip(
            some, batch.first.tolist(), batch.last.tolist(), bootstrap, strict=True
        ):
            episodes[episode.id] = replace(episode, values=(*flat[first : last + 1], after))
    return len(missing)


def saved(episodes: Mapping[str, Episode]) -> Saved:
    """What a checkpoint keeps: the values of each episode that has some."""
    return {name: list(episode.values) for name, episode in episodes.items() if episode.values}


def restore(episodes: dict[str, Episode], values: Mapping[str, list[float]]) -> None:
    """Gives the episodes back what `saved` kept; those that are new get theirs from `note`."""
    for name in episodes.keys() & values.keys():
        episodes[name] = replace(episodes[name], values=tuple(values[name]))
