"""Several votes: a verdict as soon as none to come can change it."""

from __future__ import annotations

import itertools

import pytest

from distrl.evaluator.judges.vlm.votes import decide, is_lost


@pytest.mark.parametrize("total", [1, 2, 3, 5])
@pytest.mark.parametrize("agreement", [0.5, 0.6, 0.8, 1.0])
def test_a_verdict_is_there_as_soon_as_no_vote_can_change_it(total: int, agreement: float) -> None:
    for votes in itertools.product([True, False], repeat=total):
        final = decide(votes, total, agreement)
        for count in range(total + 1):
            early = decide(votes[:count], total, agreement)
            assert early is None or early is final
            if is_lost(votes[:count], total, agreement):
                assert final is None
    assert decide([True] * total, total, agreement) is True
