"""The pace at which a judge may call its endpoint, on a clock of the test's own."""

from __future__ import annotations

import pytest

from distrl.configs.judge import VlmConfig
from distrl.core.errors import JudgeUnavailable
from distrl.evaluator.judges.vlm.budget import Budget


def test_the_pace_is_kept() -> None:
    now = [0.0]
    config = VlmConfig(calls_per_minute=2)
    budget = Budget(config, lambda: now[0])
    budget.take()
    now[0] = 10.0
    budget.take()
    with pytest.raises(JudgeUnavailable) as caught:
        budget.take()
    assert caught.value.retry_after_s == pytest.approx(50.0)
    now[0] = 60.0
    budget.take()


def test_less_than_one_call_a_minute() -> None:
    now = [0.0]
    budget = Budget(VlmConfig(calls_per_minute=0.5), lambda: now[0])
    budget.take()
    now[0] = 119.0
    with pytest.raises(JudgeUnavailable):
        budget.take()
    now[0] = 120.0
    budget.take()


def test_a_cost_that_cannot_be_known_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    priced = VlmConfig(model="m", max_cost=1.0, price_input=2.0)
    budget = Budget(priced)
    budget.pay(5, 0)
    assert caplog.messages == []
    for _ in range(3):
        budget.pay(0, 0)
    Budget(VlmConfig(model="m")).pay(0, 0)
    (said,) = caplog.messages
    assert "judge.vlm.max_cost=1 cannot be kept" in said
