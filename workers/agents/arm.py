"""The agent of a robot arm: a picture, a sentence and what the arm measures; motions as numbers of bins.

    Task: Open the drawer
    State: 0.0046 0.6015 0.1952 1.0000

An answer has the rows of a chunk and a whole number for each axis: bin 0 is −1, the last bin is 1, and the
others lie evenly between. `;` stands between rows, and may be left out of an answer.

    10 17 3 0; 10 20 4 0
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from distrl.core.actions import MAX_AXES, MAX_ROWS, Action, ActionKind
from distrl.core.errors import ConfigError
from distrl.core.types import Chat, ChatMessage, ImagePart, Observation, TextPart, TimeStep
from distrl.workers.agents.base import Prompt
from distrl.workers.agents.notation import NoAction, read_action


class ArmAgent:
    """Stateless agent that writes motions.

    Args:
        chunk: Rows of a motion: how many of the arm's steps one answer decides.
        axes: Numbers in a row.
        bins: Values that a number can have.
        state: Whether prompts have the arm's measurements (proprioception).
        picture: Whether prompts show the picture.
    """

    def __init__(
        self, chunk: int = 8, axes: int = 4, bins: int = 21, state: bool = True, picture: bool = True
    ) -> None:
        for name, value, low, high in (
            ("chunk", chunk, 1, MAX_ROWS),
            ("axes", axes, 1, MAX_AXES),
            ("bins", bins, 2, 1024),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must be a number from {low} to {high}, not {value!r}")
        self.chunk, self.axes, self.bins = chunk, axes, bins
        self.state, self.picture = state, picture

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[TimeStep], said: Sequence[Chat] = ()
    ) -> Prompt:
        """One user message: the picture, if it is shown, then the text."""
        text = f"Task: {' '.join(goal.split())}"
        if self.state and screen.state:
            text += f"\nState: {' '.join(f'{number:.4f}' for number in screen.state)}"
        shown = (ImagePart(digest=screen.shown),) if self.picture else ()
        return Prompt((ChatMessage(role="user", parts=(*shown, TextPart(text=text))),))

    def parse(self, text: str, screen: Observation) -> Action:
        """The motion that `text` means; INVALID, with the reason, for everything else."""
        return read_action(self._read, text, kept_chars=200)

    def _read(self, text: str) -> Action:
        words = text.replace(";", " ").split()
        if len(words) != self.chunk * self.axes:
            raise NoAction(f"{text[:40]!r} has not {self.chunk} rows of {self.axes} numbers")
        for word in words:
            if not (word.isascii() and word.isdecimal() and len(word) <= 4 and int(word) < self.bins):
                raise NoAction(f"{word[:20]!r} is not a whole number from 0 to {self.bins - 1}")
        numbers = [2 * int(word) / (self.bins - 1) - 1 for word in words]
        return Action.move(numbers[start : start + self.axes] for start in range(0, len(numbers), self.axes))

    def format(self, action: Action, screen: Observation) -> str:
        """The first rows of a motion in the nearest bins; an INVALID action's own text is given back.

        Raises:
            ConfigError: It is not a motion, or it has too few rows or other axes.
        """
        if action.kind is ActionKind.INVALID:
            return action.text
        if action.kind is not ActionKind.MOTION:
            raise ConfigError(
                f"The agent 'arm' has no action {action.kind.value!r}.", "Choose another agent, agent.kind."
            )
        if len(action.motion) < self.chunk or len(action.motion[0]) != self.axes:
            raise ConfigError(
                f"A motion of {len(action.motion)} rows of {len(action.motion[0])} numbers does not fill "
                f"{self.chunk} rows of {self.axes}.",
                "Set agent.options.chunk to env.options.chunk or less, and agent.options.axes to the arm's.",
            )
        rows = [
            " ".join(str(round((number + 1) / 2 * (self.bins - 1))) for number in row)
            for row in action.motion[: self.chunk]
        ]
        return "; ".join(rows)

    def random_action(self, rng: random.Random) -> Action:
        """One row at random, held for the whole chunk."""
        row = [rng.uniform(-1.0, 1.0) for _ in range(self.axes)]
        return Action.move([row] * self.chunk)
