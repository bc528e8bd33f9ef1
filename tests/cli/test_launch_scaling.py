"""How many workers a launched run is given."""

from __future__ import annotations

import pytest

from distrl.cli.backends.ray import WAIT, WITHHELD, num_wanted


def wanted(now: int, wait: float, withheld: float, before: float = 10.0) -> int:
    return num_wanted(now, 2, 20, {WITHHELD: before}, {WAIT: wait, WITHHELD: withheld})


def test_workers_are_added_while_the_learner_waits() -> None:
    assert wanted(4, wait=0.5, withheld=10.0) == 5
    assert wanted(16, wait=0.5, withheld=10.0) == 20


def test_workers_are_removed_while_staleness_holds_leases_back() -> None:
    assert wanted(4, wait=0.0, withheld=11.0) == 3


def test_workers_that_would_idle_are_not_added() -> None:
    assert wanted(4, wait=0.5, withheld=11.0) == 4


def test_nothing_changes_without_need() -> None:
    assert wanted(4, wait=0.0, withheld=10.0) == 4
    assert num_wanted(4, 2, 20, {}, {}) == 4, "before the first update nothing is known"
    first = {WAIT: 0.0, WITHHELD: 99.0}
    assert num_wanted(4, 2, 20, {}, first) == 4, "the first look has nothing to compare"


@pytest.mark.parametrize(("now", "wait", "withheld"), [(20, 0.9, 10.0), (2, 0.0, 11.0)])
def test_the_bounds_hold(now: int, wait: float, withheld: float) -> None:
    assert wanted(now, wait, withheld) == now
