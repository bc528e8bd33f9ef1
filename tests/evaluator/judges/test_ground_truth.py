"""The ground-truth judge repeats the environment's score; only full credit is a success."""

from __future__ import annotations

import pytest
from episode_factory import make_episode

from distrl.core.importing import choose
from distrl.core.types import Outcome
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.judges.base import Judge


@pytest.fixture
def judge() -> Judge:
    made: Judge = choose(JUDGES, "ground_truth")()
    return made


@pytest.mark.parametrize(("score", "success"), [(1.0, True), (0.999, False), (0.5, False), (0.0, False)])
def test_only_full_credit_is_success(judge: Judge, score: float, success: bool) -> None:
    trajectory, images = make_episode()
    verdict = judge.judge(trajectory.model_copy(update={"success": score}), images)
    assert (verdict.success, verdict.score) == (success, score)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_reason(judge: Judge, outcome: Outcome) -> None:
    trajectory, images = make_episode(success=False)
    assert judge.judge(trajectory.model_copy(update={"outcome": outcome}), images).reason.endswith(".")


def test_every_registered_judge_can_be_made() -> None:
    for kind in JUDGES:
        assert hasattr(choose(JUDGES, kind)(), "judge")
