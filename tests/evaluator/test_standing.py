"""Who rests for how long after a failure, and when no slot is left that could work."""

from __future__ import annotations

import pytest

from distrl.evaluator import standing
from distrl.evaluator.standing import Standing


@pytest.fixture(autouse=True)
def rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "BACKOFF_S", (1.0, 2.0, 4.0))


def test_rests_grow_from_failure_to_failure_and_begin_anew_after_an_episode() -> None:
    slots = Standing(2)
    assert [slots.broke(0), slots.no_start(0)[0], slots.broke(0), slots.broke(0)] == [1.0, 2.0, 4.0, 4.0]
    slots.starts(0)
    assert slots.broke(0) == 4.0, "a start alone mends nothing"
    slots.works(0)
    assert slots.broke(0) == 1.0


def test_rests_are_short_where_no_other_slot_works() -> None:
    slots = Standing(2)
    assert [slots.broke(1), slots.broke(1)] == [1.0, 2.0]
    assert [slots.no_start(0)[0], slots.no_start(0)[0], slots.broke(1)] == [1.0, 1.0, 1.0]
    slots.starts(0)
    assert slots.broke(1) == 4.0


def test_there_is_no_hope_once_no_slot_starts_round_by_round() -> None:
    slots = Standing(3)
    assert [slots.no_start(index)[1] for index in (0, 0, 1, 0, 2)] == [False, False, False, False, True]
    assert [slots.no_start(index)[1] for index in (2, 0, 1)] == [False, False, True]
    slots.no_start(0)
    slots.no_start(1)
    slots.starts(0)
    assert not slots.no_start(2)[1]
