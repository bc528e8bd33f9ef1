"""Round robin: whose turn is next, so that every task is run equally often, exactly, also after a restart.

What counts over a restart are episodes that are over (taken by training, or given up), not draws: a task
whose lease was lost with the process is next again. What comes in without a draw of this process (replayed
from the store, or brought late by a worker that outlived the learner) counts as a turn too.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


class Turns:
    """The name with the fewest turns is next; among equals, in the order given.

    Args:
        names: In the order of their turns.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._names = list(names)
        self._over: dict[str, int] = {}
        self._given = [0] * len(self._names)
        self._heap = [(0, place) for place in range(len(self._names))]  # sorted, so a heap

    def next(self, count: int = 1) -> str:
        """Whose turn it is; it takes `count` turns at once."""
        given, place = self._heap[0]
        while given != self._given[place]:  # its turns have been changed since
            heapq.heappop(self._heap)
            given, place = self._heap[0]
        self.take(self._names[place], count)
        return self._names[place]

    def take(self, name: str, count: int = 1) -> None:
        """`name` has had turns, without being asked for."""
        place = self._places.get(name)
        if place is not None:
            self._given[place] += count
            heapq.heappush(self._heap, (self._given[place], place))

    def end(self, name: str) -> None:
        """A turn of `name` is over. One that nobody gave it (run twice, and both came in) counts as given."""
        self._over[name] = self._over.get(name, 0) + 1
        place = self._places.get(name)
        if place is not None and self._over[name] > self._given[place]:
            self.take(name)

    def state_dict(self) -> dict[str, int]:
        """How many turns of each name are over."""
        return dict(self._over)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restores `state_dict`: turns that were not over are taken again."""
        self._over = {name: int(count) for name, count in state.items()}
        self._given = [self._over.get(name, 0) for name in self._names]
        self._heap = sorted((given, place) for place, given in enumerate(self._given))
