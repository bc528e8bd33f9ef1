"""Greedy episodes: one for each seed, as many at a time as there are environments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from distrl.core.messages import EpisodeReturn
from distrl.workers.envs.gym import GymGroup

Actor = Callable[[NDArray[np.floating]], NDArray[np.floating]]
"""Actions [n, a] at raw observations [n, d]."""


def run_episodes(
    group: GymGroup,
    actor: Actor,
    seeds: Sequence[int],
    is_stopping: Callable[[], bool] = lambda: False,
    ended: Callable[[int], None] = lambda num: None,
) -> list[EpisodeReturn] | None:
    """Returns and lengths in the order of `seeds`; None if `is_stopping` said so meanwhile.

    The episode of a seed does not depend on the others, if the environment follows its seed.

    Args:
        group: Where; its environments start anew.
        actor: Who acts.
        seeds: Of the episodes.
        is_stopping: Ends it early.
        ended: Called with the number of episodes that have ended, whenever it changes.

    Raises:
        EnvError: An environment failed.
    """
    waiting = deque(enumerate(seeds))
    found: dict[int, EpisodeReturn] = {}
    running: dict[int, int] = {}  # environment → the place of its episode
    now: dict[int, NDArray[np.floating]] = {}
    totals, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), int)

    def begin(index: int) -> None:
        if waiting:
            place, seed = waiting.popleft()
            now[index] = group.reset(index, int(seed))
            running[index] = place

    for index in range(min(len(group), len(seeds))):
        begin(index)
    while running:
        if is_stopping():
            return None
        indices = list(running)
        steps = group.step(actor(np.stack([now[index] for index in indices])), indices)
        done = steps.terminated | steps.truncated
        for row, index in enumerate(indices):
            place = running[index]
            totals[place] += steps.rewards[row]
            lengths[place] += 1
            now[index] = steps.observations[row]
            if done[row]:
                found[place] = EpisodeReturn(total=float(totals[place]), length=int(lengths[place]))
                del running[index]
                begin(index)
                ended(len(found))
    return [found[place] for place in range(len(seeds))]
