"""Models that refuse `max_tokens` or a temperature, as OpenAI's do, are asked as they take it."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from episode_factory import make_episode
from judge_endpoint import JudgeEndpoint, Reply, status

from distrl.configs.agents import PromptedConfig
from distrl.configs.judge import VlmConfig
from distrl.configs.schema import Config, EvaluateConfig
from distrl.core.errors import JudgeError
from distrl.core.types import ChatMessage, Sampling, TextPart
from distrl.evaluator.judges.vlm.endpoints import Gemini, OpenAI
from distrl.evaluator.judges.vlm.judge import VlmJudge
from distrl.evaluator.prompted import PromptedPolicy, prompted_policies


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
    assert "takes no temperature" in caplog.text


def test_an_endpoint_that_refuses_its_own_words_is_not_asked_for_ever() -> None:
    with JudgeEndpoint([LENGTH]) as endpoint:
        with pytest.raises(JudgeError, match="max_completion_tokens"):
            vlm(endpoint).judge(*make_episode())
        assert len(endpoint.requests) == 2


def test_a_prompted_model_that_reasons() -> None:
    with JudgeEndpoint([LENGTH, TEMPERATURE, status(True)]) as endpoint:
        policy = PromptedPolicy(PromptedConfig(url=endpoint.url, model="m"), lambda seconds: False, {})
        asked = [ChatMessage(role="user", parts=(TextPart(text="Goal: tap"),))]
        for _ in range(2):
            policy.act(asked, {}, Sampling(temperature=0.0, max_new_tokens=9))
        assert policy.take_spent().calls == 4
        assert settings(endpoint)[2:] == [{"max_completion_tokens": 9}] * 2


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
    assert caplog.text.count("takes no temperature") == 1


def test_a_refusal_of_what_was_sent_before_another_thread_adapted_is_understood() -> None:
    endpoint = OpenAI("http://127.0.0.1/v1")
    before = endpoint.sampling(0.0, 7)
    for reply in (LENGTH, TEMPERATURE, LENGTH, TEMPERATURE):
        assert endpoint.adapt(reply.body, before)
        assert not endpoint.adapt("too many pictures", before)
    now = endpoint.sampling(0.0, 7)
    assert now == {"max_completion_tokens": 7}
    assert not endpoint.adapt(LENGTH.body, now)
    assert not Gemini("http://127.0.0.1").adapt(LENGTH.body, before)
