"""What becomes of an episode that ended: its verdict, and another attempt if it faulted."""

from __future__ import annotations

from distrl.core.types import Fault
from distrl.evaluator.judges.base import Judge, Verdict
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.slots import Finished, SlotPool
from distrl.evaluator.statistics import EpisodeResult


def verdict_on(finished: Finished, judge: Judge) -> Verdict:
    """The judge's; of an episode that faulted nobody is asked."""
    if finished.trajectory.fault is not Fault.NONE:
        return Verdict(success=False, score=0.0, reason="Faulted.")
    return judge.judge(finished.trajectory, finished.images)


def is_over(
    finished: Finished, result: EpisodeResult, pool: SlotPool, progress: EvaluationProgress, retries: int
) -> bool:
    """Tells of the episode; one that faulted is tried again.

    Args:
        finished, result: The episode.
        pool: Takes another attempt.
        progress: Is told.
        retries: How often an episode is tried again.

    Returns:
        Whether there is no other attempt.
    """
    trajectory, attempt = finished.trajectory, finished.attempt
    is_final = trajectory.fault is Fault.NONE or attempt.number >= retries
    progress.add(result, is_final)
    if not is_final:
        progress.say(f"{attempt.task.id} faulted ({trajectory.fault_detail}); trying again")
        pool.submit(attempt.again())
    return is_final
