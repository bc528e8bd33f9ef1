"""What a validation round measures: the episodes of its own leases that somebody judged."""

from __future__ import annotations

import pytest

from distrl.core.types import RewardParts
from distrl.learner.eval_rounds import EvalRounds


def test_the_mean_of_each_part_is_over_the_scored_episodes_of_the_round(toy) -> None:
    rounds = EvalRounds([toy.task(i, "val") for i in range(4)], seed=0, episodes=4)
    rounds.start(7)
    current = rounds.current
    assert current is not None
    current.waiting.clear()
    current.leases |= {"a", "b", "c", "d"}
    rounds.account("a", 1.0, RewardParts(outcome=1.0, repetition=-0.1))
    rounds.account("b", 0.0, RewardParts(repetition=-0.3, invalid=-0.2))
    rounds.account("c", None, RewardParts(repetition=-9.0))  # nobody judged it
    rounds.account("other", 1.0, RewardParts(outcome=9.0))
    rounds.give_up("d")
    (done,) = rounds.take_ended()
    assert done.mean_rewards == pytest.approx(
        {"outcome": 0.5, "repetition": -0.2, "invalid": -0.1, "shaping": 0.0}
    )


def test_a_round_in_which_nothing_finished_has_no_means(toy) -> None:
    rounds = EvalRounds([toy.task(0, "val")], seed=0, episodes=1)
    rounds.start(0)
    assert rounds.current is not None
    rounds.current.waiting.clear()
    rounds.current.leases.add("a")
    rounds.give_up("a")
    (done,) = rounds.take_ended()
    assert done.mean_rewards == {}
