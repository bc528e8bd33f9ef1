"""Words of demonstrations that others stand in for: `learner.demonstrations.rename`.

A policy that is trained from scratch knows nothing of a word that no training goal has. It sees such words
here: with a given probability each word of a goal is another one, the same in prompt and answer. Names must
then be copied, and no single word tells what to do (word dropout, Iyyer et al. 2015, for what is not copied).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distrl.core.errors import ConfigError
from distrl.learner.episodes import StepData


class Renaming:
    """Puts words in the places of others.

    Args:
        word_ids: The tokens that may be replaced, and that replace them.
        share: The probability for each word of a prompt.
        rng: Draws them.

    Raises:
        ConfigError: There are no such tokens.
    """

    def __init__(self, word_ids: Sequence[int], share: float, rng: np.random.Generator) -> None:
        if share and not word_ids:
            raise ConfigError(
                f"learner.demonstrations.rename={share:g} needs a policy with a token for each word.",
                "Use policy.kind 'tiny', or leave the key out.",
            )
        self._ids, self._words = list(word_ids), frozenset(word_ids)
        self._share, self._rng = share, rng

    def __call__(self, step: StepData) -> StepData:
        """The step with other words, or itself."""
        if not self._share:
            return step
        words = sorted(self._words.intersection(step.prompt))
        drawn = self._rng.random(len(words)) < self._share
        other = {
            word: self._ids[self._rng.integers(len(self._ids))]
            for word, is_drawn in zip(words, drawn, strict=True)
            if is_drawn
        }
        return replace(
            step,
            prompt=tuple(other.get(token, token) for token in step.prompt),
            tokens=tuple(other.get(token, token) for token in step.tokens),
        )
