"""The ground-truth judge repeats the environment's score; only full credit is a success."""

from __future__ import annotations

import pytest
from episode_factory import make_episode

from distrl.core.importing import choose
from distrl.core.types import Outcome, Verdict
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.judges.ground_truth import GroundTruthJudge

judge = GroundTruthJudge()


@pytest.mark.parametrize(("score", "success"), [(1.0, True), (0.999, False), (0.0, False)])
def test_only_full_credit_is_success(score: float, success: bool) -> None:
    trajectory, images = make_episode()
    verdict = judge.judge(trajectory.model_copy(update={"success": score}), images)
    assert (verdict.success, verdict.score) == (success, score)
    assert not judge.judge(trajectory.model_copy(update={"outcome": Outcome.UNJUDGED}), images).is_decided


def test_what_another_judge_said_is_not_the_truth() -> None:
    trajectory, images = make_episode(success=True)
    said = Verdict(success=True, score=1.0, reason="It seems so.")
    assert not judge.judge(trajectory.model_copy(update={"verdict": said}), images).is_decided
    verdict = judge.judge(trajectory.model_copy(update={"verdict": said, "truth": 0.0}), images)
    assert verdict.is_decided
    assert not verdict.success


def test_every_judge_has_its_configured_name() -> None:
    for kind in JUDGES:
        assert choose(JUDGES, kind).name == kind


def test_what_the_environment_found_lacking_is_the_reason() -> None:
    harm = "The task is fulfilled, but something else was changed."
    for outcome, said in (
        (Outcome.FAILURE, harm),
        (Outcome.STEP_LIMIT, f"The step limit was reached. {harm}"),
        (Outcome.IMPOSSIBLE_CLAIMED, "The agent said that the task is impossible."),
    ):
        trajectory = make_episode(success=False)[0].model_copy(update={"outcome": outcome, "shortfall": harm})
        assert judge.judge(trajectory, {}).reason == said
