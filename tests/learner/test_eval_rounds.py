"""What a validation round measures: the episodes of its own leases that somebody judged."""

from __future__ import annotations

import pytest

from distrl.learner.validation import EvalRound, EvalRounds


def start(toy, leases: str, min_version: int = -1) -> tuple[EvalRounds, EvalRound]:
    """A round all of whose episodes are leased, each under a letter of `leases`."""
    rounds = EvalRounds([toy.task(i, "val") for i in range(len(leases))], seed=0, episodes=len(leases))
    rounds.start(7, min_version)
    current = rounds.current
    assert current is not None
    current.leases.update(zip(leases, current.waiting, strict=True))
    current.waiting.clear()
    return rounds, current


def episode(toy, lease: str, version: int = 0, **reward: float):
    """An episode of one step under a lease."""
    return toy.trajectory(lease, [toy.step(0, (1,), (-0.1,), version=version, **reward)], lease_id=lease)


def test_the_mean_of_each_part_is_over_the_scored_episodes_of_the_round(toy) -> None:
    rounds, _ = start(toy, "abcd")
    rounds.account(episode(toy, "a", outcome=1.0, repetition=-0.1), 1.0)
    rounds.account(episode(toy, "b", repetition=-0.3, invalid=-0.2), 0.0)
    rounds.account(episode(toy, "c", repetition=-9.0), None)  # nobody judged it
    rounds.account(episode(toy, "other", outcome=9.0), 1.0)
    rounds.give_up("d")
    (done,) = rounds.take_ended()
    assert done.success == 0.5
    assert done.mean_rewards == pytest.approx(
        {"outcome": 0.5, "repetition": -0.2, "invalid": -0.1, "shaping": 0.0}
    )


def test_an_episode_of_older_weights_than_the_round_measures_is_run_again(toy) -> None:
    rounds, current = start(toy, "ab", min_version=3)
    rounds.account(episode(toy, "a", version=2, outcome=1.0), 1.0)
    rounds.account(episode(toy, "b", version=3), 0.0)
    assert not rounds.take_ended()
    assert len(current.waiting) == 1
    current.leases["c"] = current.waiting.popleft()
    rounds.account(episode(toy, "c", version=4, outcome=1.0), 1.0)
    (done,) = rounds.take_ended()
    assert done.success == 0.5
    assert done.mean_rewards["outcome"] == 0.5


def test_a_round_in_which_nothing_finished_has_no_means(toy) -> None:
    rounds, _ = start(toy, "a")
    rounds.give_up("a")
    (done,) = rounds.take_ended()
    assert done.success is None
    assert done.mean_rewards == {}


def test_a_round_of_the_same_updates_as_the_one_under_way_takes_its_place(toy) -> None:
    rounds, first = start(toy, "ab")
    rounds.account(episode(toy, "a", version=1), 1.0)
    rounds.start(first.updates, min_version=2)
    assert not rounds.take_ended()
    assert rounds.current is not None
    assert (rounds.current.scores, len(rounds.current.waiting)) == ([], 2)
    rounds.start(first.updates + 1)
    (ended,) = rounds.take_ended()
    assert (ended.updates, ended.min_version) == (first.updates, 2)
