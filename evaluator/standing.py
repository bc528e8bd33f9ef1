"""How the environments of an evaluation's slots stand: who rests for how long, and when there is no hope.

A slot whose environment breaks at once would take one task after another from the slots that work. So it
rests after each failure, longer from one to the next.
"""

from __future__ import annotations

import threading
from enum import Enum

from distrl.workers.worker import BACKOFF_S


class State(Enum):
    """What became of a slot's environment last."""

    WORKS = "works"
    BROKE = "broke in an episode"
    NO_START = "did not start"


class Standing:
    """The state of each slot's environment, by the slot's number; slots share it, a lock guards it.

    Args:
        num_slots: How many there are. Each is taken to work until it fails.
    """

    def __init__(self, num_slots: int) -> None:
        self._lock = threading.Lock()
        self._states = [State.WORKS] * num_slots
        self._failures = [0] * num_slots

    def starts(self, index: int) -> None:
        """The environment is there; how it fares is still to be seen."""
        with self._lock:
            self._states[index] = State.WORKS

    def works(self, index: int) -> None:
        """An episode ended, and the environment did not break."""
        with self._lock:
            self._states[index], self._failures[index] = State.WORKS, 0

    def broke(self, index: int) -> float:
        """The environment broke in an episode. Returns how many seconds the slot should rest."""
        with self._lock:
            return self._fail(index, State.BROKE)

    def no_start(self, index: int) -> tuple[float, bool]:
        """The environment did not start.

        Returns:
            How many seconds the slot should rest, and whether those of all slots have failed to start since
            this was last so: then no slot is left that could do the work.
        """
        with self._lock:
            rest_s = self._fail(index, State.NO_START)
            is_hopeless = all(state is State.NO_START for state in self._states)
            if is_hopeless:
                self._states = [State.BROKE] * len(self._states)
            return rest_s, is_hopeless

    def _fail(self, index: int, state: State) -> float:
        """A rest gives the task to a slot that works; where there is none it is short."""
        self._states[index] = state
        self._failures[index] += 1
        if State.WORKS not in self._states:
            return BACKOFF_S[0]
        return BACKOFF_S[min(self._failures[index], len(BACKOFF_S)) - 1]
