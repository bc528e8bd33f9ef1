"""The judge that asks an endpoint, with pauses that are told and not waited for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from judge_endpoint import JudgeEndpoint, Reply

from distrl.configs.judge import VlmConfig
from distrl.evaluator.judges.vlm.client import Budget, Client, make_endpoint
from distrl.evaluator.judges.vlm.judge import VlmJudge

KEY = "sk-not-to-be-seen"


class Slept(list[float]):
    """The pauses that were made, none of them waited for."""

    def __call__(self, seconds: float) -> bool:
        self.append(seconds)
        return False


def make(endpoint: JudgeEndpoint, slept: Slept | None = None, **fields: Any) -> VlmJudge:
    config = VlmConfig.model_validate({"model": "m", "url": endpoint.url, "timeout_s": 20.0, **fields})
    judge = VlmJudge(config, Client(make_endpoint(config), config, KEY, Budget(config)))
    judge.wait_by(Slept() if slept is None else slept)
    return judge


def serve(*replies: Reply) -> AbstractContextManager[JudgeEndpoint]:
    return JudgeEndpoint(replies)
