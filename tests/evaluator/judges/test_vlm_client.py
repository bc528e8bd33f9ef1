"""What the `vlm` judge spends: votes, answers that are kept, budgets."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from asking_judge import KEY, make, serve
from episode_factory import make_episode, make_task
from judge_endpoint import JudgeEndpoint, Reply, says, status

from distrl.configs.agents import PromptedConfig
from distrl.configs.judge import VlmConfig
from distrl.configs.schema import Config, EvaluateConfig
from distrl.core.errors import JudgeError, JudgeUnavailable
from distrl.core.types import ChatMessage, Sampling, TextPart
from distrl.evaluator.judges.vlm.client import Budget, Client, Endpoint, make_endpoint
from distrl.evaluator.judges.vlm.judge import VlmJudge
from distrl.evaluator.prompted import prompted_policies


def votes(*said: bool) -> list[Reply]:
    return [status(one) for one in said]


@pytest.mark.parametrize(
    ("said", "agreement", "decided", "success", "calls"),
    [
        ((True, True, False), 0.5, True, True, 2),
        ((True, False, True), 0.5, True, True, 3),
        ((False, True, False), 0.5, True, False, 3),
        ((True, False, True), 1.0, False, False, 2),
        ((True, False, True), 0.9, False, False, 2),
    ],
)
def test_votes(said: tuple[bool, ...], agreement: float, decided: bool, success: bool, calls: int) -> None:
    with serve(*votes(*said)) as endpoint:
        verdict = make(endpoint, votes=3, temperature=0.7, agreement=agreement).judge(*make_episode())
        assert len(endpoint.requests) == calls
    assert (verdict.is_decided, verdict.success) == (decided, success)
    if not decided:
        assert "disagree" in verdict.reason


class Passing(threading.Event):
    """A stop that never comes, and a clock that goes on while it is waited for."""

    now = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.is_set()


def test_who_is_patient_waits_for_each_vote_and_asks_none_twice() -> None:
    stop = Passing()
    with serve(*votes(True, False, True)) as endpoint:
        fields = {"model": "m", "url": endpoint.url, "votes": 3, "temperature": 0.7, "calls_per_minute": 0.5}
        config = VlmConfig.model_validate({**fields, "examples": None})
        client = Client(make_endpoint(config), config, KEY, Budget(config, lambda: stop.now))
        judge = VlmJudge(config, client)
        judge.wait_by(stop.wait)
        verdict = judge.judge(*make_episode())
        assert len(endpoint.requests) == 3
        assert (verdict.is_decided, verdict.success, verdict.calls) == (True, True, 3)
        assert stop.now == pytest.approx(240.0)
        stop.set()
        with pytest.raises(JudgeUnavailable, match="calls_per_minute"):
            judge.judge(*make_episode())
        assert len(endpoint.requests) == 3


def test_a_cached_answer_costs_nothing(tmp_path: Path) -> None:
    episode = make_episode()
    with serve(*votes(True, True)) as endpoint:
        judge = make(endpoint, votes=3, temperature=0.7, cache=str(tmp_path))
        first, second = judge.judge(*episode), judge.judge(*episode)
        assert len(endpoint.requests) == 2
    assert (first.is_cached, second.is_cached) == (False, True)
    assert second.answers == first.answers
    assert (first.calls, second.calls, second.input_tokens, second.cost) == (2, 0, 0, 0.0)


def test_the_cache_is_by_content_and_apart_for_each_task(tmp_path: Path) -> None:
    one, other = make_episode(make_task(1)), make_episode(make_task(2))
    with serve(status(True)) as endpoint:
        make(endpoint, cache=str(tmp_path)).judge(*one)
        make(endpoint, cache=str(tmp_path)).judge(*other)
        assert len(endpoint.requests) == 2
        make(endpoint, cache=str(tmp_path), model="n").judge(*one)
        assert len(endpoint.requests) == 3
    assert len(list(tmp_path.iterdir())) == 2
    assert KEY not in "".join(file.read_text() for file in tmp_path.rglob("*.txt"))


def test_a_cache_that_cannot_be_written_is_told_once_and_the_verdicts_stand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    with serve(status(True)) as endpoint:
        judge = make(endpoint, cache=str(folder))
        verdicts = [judge.judge(*make_episode()) for _ in range(2)]
    assert [(one.is_decided, one.success) for one in verdicts] == [(True, True)] * 2
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"judge.cache {folder} is not writable" in told


def test_garbage_is_not_cached_and_damage_is_asked_about_again(tmp_path: Path) -> None:
    episode = make_episode()
    with serve(says("hm"), says("hm"), status(True)) as endpoint:
        judge = make(endpoint, cache=str(tmp_path), attempts=2)
        assert not judge.judge(*episode).is_decided
        assert judge.judge(*episode).success
        (file,) = tmp_path.rglob("*.txt")
        file.write_text("Status")
        assert judge.judge(*episode).success
        assert len(endpoint.requests) == 4


@pytest.mark.parametrize("limit", [{"max_calls": 1}, {"max_cost": 0.001, "price_input": 1.0}])
def test_a_spent_budget_is_undecided(limit: dict[str, Any]) -> None:
    with serve(status(True)) as endpoint:
        judge = make(endpoint, **limit)
        assert judge.judge(*make_episode()).is_decided
        verdict = judge.judge(*make_episode())
        assert len(endpoint.requests) == 1
    assert not verdict.is_decided
    assert next(iter(limit)) in verdict.reason


def refusal(message: str, param: str, code: str) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply(400, json.dumps({"error": error}, indent=2))


LENGTH = refusal(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
    "instead.",
    "max_tokens",
    "unsupported_parameter",
)
TEMPERATURE = refusal(
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is "
    "supported.",
    "temperature",
    "unsupported_value",
)
SETTINGS = ("max_tokens", "max_completion_tokens", "temperature")


def settings(endpoint: JudgeEndpoint) -> list[dict[str, object]]:
    return [{key: body[key] for key in SETTINGS if key in body} for _, _, body in endpoint.requests]


def vlm(endpoint: JudgeEndpoint) -> VlmJudge:
    return VlmJudge(
        VlmConfig(model="m", url=endpoint.url, key_env="", attempts=1, max_tokens=7, timeout_s=20.0)
    )


def test_a_judge_that_reasons_is_asked_as_it_takes_it(caplog: pytest.LogCaptureFixture) -> None:
    with JudgeEndpoint([LENGTH, TEMPERATURE, status(True)]) as endpoint, caplog.at_level(logging.WARNING):
        judge = vlm(endpoint)
        verdict = judge.judge(*make_episode())
        assert verdict.is_decided
        assert verdict.success
        assert verdict.spent.calls == 3, "what was refused was sent too"
        judge.judge(*make_episode())
        assert settings(endpoint) == [
            {"max_tokens": 7, "temperature": 0.0},
            {"max_completion_tokens": 7, "temperature": 0.0},
            {"max_completion_tokens": 7},
            {"max_completion_tokens": 7},
        ]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert "accepts no temperature" in caplog.text


def test_an_endpoint_that_refuses_its_own_words_is_not_asked_for_ever() -> None:
    with JudgeEndpoint([LENGTH]) as endpoint:
        with pytest.raises(JudgeError, match="max_completion_tokens"):
            vlm(endpoint).judge(*make_episode())
        assert len(endpoint.requests) == 2


def test_the_slots_of_a_prompted_model_learn_together_how_it_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with JudgeEndpoint([LENGTH, TEMPERATURE, status(True)]) as endpoint, caplog.at_level(logging.WARNING):
        prompted = PromptedConfig(url=endpoint.url, model="m")
        config = Config(evaluate=EvaluateConfig(prompted=prompted))
        policy_of = prompted_policies(config, threading.Event())
        asked = [ChatMessage(role="user", parts=(TextPart(text="Goal: tap"),))]
        for slot in range(3):
            policy_of(slot).act(asked, {}, Sampling(temperature=0.0, max_new_tokens=9))
        assert settings(endpoint)[2:] == [{"max_completion_tokens": 9}] * 3
    assert caplog.text.count("accepts no temperature") == 1


def test_a_refusal_of_what_was_sent_before_another_thread_adapted_is_understood() -> None:
    endpoint = Endpoint("http://127.0.0.1/v1")
    before = endpoint.sampling(0.0, 7)
    for reply in (LENGTH, TEMPERATURE, LENGTH, TEMPERATURE):
        assert endpoint.adapt(reply.body, before)
        assert not endpoint.adapt("too many pictures", before)
    now = endpoint.sampling(0.0, 7)
    assert now == {"max_completion_tokens": 7}
    assert not endpoint.adapt(LENGTH.body, now)


@pytest.mark.parametrize(("rate", "window_s"), [(2, 60.0), (0.5, 120.0)])
def test_the_pace_is_kept(rate: float, window_s: float) -> None:
    now = [0.0]
    budget = Budget(VlmConfig(calls_per_minute=rate), lambda: now[0])
    budget.take()
    now[0] = 10.0
    if rate > 1:
        assert budget.take() == 0.0
    assert budget.take() == pytest.approx(window_s - 10.0)
    now[0] = window_s
    assert budget.take() == 0.0


def test_a_cost_that_cannot_be_known_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    priced = VlmConfig(model="m", max_cost=1.0, price_input=2.0)
    budget = Budget(priced)
    budget.pay(5, 0)
    assert caplog.messages == []
    for _ in range(3):
        budget.pay(0, 0)
    Budget(VlmConfig(model="m")).pay(0, 0)
    (said,) = caplog.messages
    assert "judge.max_cost=1 does not limit" in said
