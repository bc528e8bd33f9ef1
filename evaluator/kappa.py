"""Cohen's κ: agreement beyond chance, with an interval that knows which pairs belong to one task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable

from distrl.core.types import Number, Record
from distrl.evaluator.clusters import effective_trials
from distrl.evaluator.statistics import Z_95, Interval

_NO_ERROR = 1e-6
"""A standard error below it is rounding."""


class Kappa(Record):
    """Cohen's κ.

    Attributes:
        value: κ.
        error: Its standard error.
    """

    value: Number
    error: Number

    @property
    def interval(self) -> Interval | None:
        """The 95% interval; None where the error is 0, as it is if the two never differ: no estimate then."""
        if self.error <= _NO_ERROR:
            return None
        half = Z_95 * self.error
        return Interval(low=max(-1.0, self.value - half), high=min(1.0, self.value + half))


def cohen_kappa(tasks: Iterable[Collection[tuple[bool, bool]]]) -> Kappa | None:
    """Cohen's κ of what two say of the same episodes.

    With p_ij the share of pairs (i, j), row and column sums p_i. and p_.i, and N trials:

        κ     = (p_o − p_e) / (1 − p_e),  p_o = Σ p_ii,  p_e = Σ p_i. p_.i
        a_ij  = 1[i = j] − (1 − κ) (p_.i + p_j.)
        error = sqrt( (Σ p_ij a_ij² − (Σ p_ij a_ij)²) / N ) / (1 − p_e)

    (Cohen 1960; Fleiss, Cohen & Everitt 1969, equation 13, in which a is what one pair adds to κ.) N is the
    number of pairs if no task has two of them, and else what its pairs' a are worth (`effective_trials`).

    Where one of the two always says the same, p_o = p_e whatever the other says: κ is then 0 with no error,
    or 0 / 0, and tells nothing about how far they agree. That counts as not defined.

    Args:
        tasks: The pairs of each task: what the first says, and what the second says; none is empty.

    Returns:
        κ; None if there is nothing, or one of the two always says the same.
    """
    by_task = [list(task) for task in tasks]
    pairs = [pair for task in by_task for pair in task]
    n = len(pairs)
    first, second = (Counter(said) for said in zip(*pairs, strict=True)) if pairs else (Counter(), Counter())
    if len(first) < 2 or len(second) < 2:
        return None
    observed = sum(i is j for i, j in pairs) / n
    expected = sum(first[i] * second[i] for i in first) / n**2
    kappa = (observed - expected) / (1.0 - expected)

    def added(i: bool, j: bool) -> float:
        return float(i is j) - (1.0 - kappa) * (second[i] + first[j]) / n

    values = [[added(*pair) for pair in task] for task in by_task]
    mean = math.fsum(map(math.fsum, values)) / n
    variance = math.fsum((value - mean) ** 2 for task in values for value in task) / n
    return Kappa(value=kappa, error=math.sqrt(variance / effective_trials(values)) / (1.0 - expected))
