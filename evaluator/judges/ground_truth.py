"""The ground-truth judge: the score that the environment computed from its own state."""

from __future__ import annotations

from collections.abc import Mapping

from distrl.core.types import Outcome, Trajectory, Verdict

_FULL_CREDIT = 1.0 - 1e-9


class GroundTruthJudge:
    """Judges by state, not by pixels.

    When an episode ends, the worker calls `Env.evaluate()`, a programmatic check of the state behind the
    screen, and records the score (0 where the agent must say that it is done and did not; see
    `distrl.workers.rewards.needs_evaluation`). This judge returns that score, `Trajectory.ground_truth`. A
    task counts as solved only with full credit.
    """

    name = "ground_truth"

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The recorded score; undecided without one. `images` are unused."""
        truth = trajectory.ground_truth
        if truth is None:
            return Verdict.none(self.name, "The environment gave no score.")
        score = min(1.0, max(0.0, truth))
        reason = _reason(score, trajectory.outcome, trajectory.shortfall)
        return Verdict(success=score >= _FULL_CREDIT, score=score, reason=reason, judge=self.name)


def _reason(score: float, outcome: Outcome, shortfall: str) -> str:
    if score >= _FULL_CREDIT:
        return "The final state fulfils the task."
    if outcome is Outcome.STEP_LIMIT:
        lack = f". {shortfall}" if shortfall else " before the task was done."
        return f"The step limit was reached{lack}"
    if outcome is Outcome.IMPOSSIBLE_CLAIMED:
        return "The agent said that the task is impossible."
    if shortfall:
        return shortfall
    if score > 0.0:
        return f"The final state fulfils the task in part ({score:.2f})."
    return "The final state does not fulfil the task."
