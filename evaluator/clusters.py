"""Repeated trials of one task are not independent: how many independent trials they are worth."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable


def effective_trials(tasks: Iterable[Collection[float]]) -> float:
    """As many independent trials would tell as much of the mean (Rao & Scott 1992, Biometrics 48: 577).

    With x_ij the trials of task i, n_i of them, S_i = Σ_j x_ij, n = Σ n_i and x̄ = Σ S_i / n, over m tasks:

        v_tasks  = m / (m − 1) · Σ_i (S_i − n_i x̄)² / n²      the variance of x̄ over tasks
        v_trials = Σ_ij (x_ij − x̄)² / n²                      the same if all trials were independent
        trials   = n · v_trials / v_tasks, but at least m and at most n

    Counts times trials / n are then what an interval for independent trials takes. m, "each task once", where
    the trials of a task are all alike, and where nothing varies, so that nothing can be estimated.

    Args:
        tasks: The values of each task's trials: 0 or 1, or differences of such; none is empty.
    """
    trials = [list(task) for task in tasks]
    m, n = len(trials), sum(map(len, trials))
    if m < 2 or m == n:
        return float(m)
    mean = math.fsum(map(math.fsum, trials)) / n
    over_tasks = math.fsum((math.fsum(task) - len(task) * mean) ** 2 for task in trials) * m / (m - 1)
    over_trials = math.fsum((x - mean) ** 2 for task in trials for x in task)
    if not over_trials:
        return float(m)
    return n * over_trials / min(max(over_tasks, over_trials), over_trials * n / m)
