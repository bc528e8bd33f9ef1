"""The judge that asks an endpoint, with pauses that are told and not waited for."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

from judge_endpoint import JudgeEndpoint

from distrl.configs.judge import VlmConfig
from distrl.evaluator.judges.vlm.judge import VlmJudge

KEY = "sk-not-to-be-seen"


class Slept(list[float]):
    """The pauses that were made, none of them waited for."""

    def __call__(self, seconds: float) -> bool:
        self.append(seconds)
        return False


def make(endpoint: JudgeEndpoint, slept: Slept | None = None, **fields: Any) -> VlmJudge:
    with patch.dict(os.environ, DISTRL_JUDGE_KEY=KEY):
        judge = VlmJudge(VlmConfig(**{"model": "m", "url": endpoint.url, "timeout_s": 20.0, **fields}))
    judge.wait_by(Slept() if slept is None else slept)
    return judge
