"""The judge `vlm`: asks, votes, remembers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError
from distrl.core.types import Trajectory, Verdict
from distrl.evaluator.judges.vlm.budget import Budget, BudgetSpent
from distrl.evaluator.judges.vlm.cache import AnswerCache
from distrl.evaluator.judges.vlm.client import Client, Garbage
from distrl.evaluator.judges.vlm.endpoints import Answer, make_endpoint
from distrl.evaluator.judges.vlm.prompt import Prompt, Question
from distrl.evaluator.judges.vlm.votes import decide, is_lost, read_status


class VlmJudge:
    """A vision-language model behind an HTTP endpoint. Any thread may ask.

    Args:
        config: Which one, and how it is asked.
        client: By default one for the endpoint and the key that `config` names.

    Raises:
        ConfigError: The key is not in the environment, no model is named, or the examples cannot be read.
    """

    name = "vlm"

    def __init__(self, config: VlmConfig, client: Client | None = None) -> None:
        self._config = config
        endpoint = make_endpoint(config)
        self._url = endpoint.url
        self._client = client or Client(endpoint, config, read_key(config), Budget(config))
        self._prompt = Prompt(config.examples, config.screenshots, config.max_pixels)
        self._cache = AnswerCache(Path(config.cache).expanduser()) if config.cache else None

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """What the votes say; undecided where they disagree, are none, or the budget is spent.

        Raises:
            JudgeUnavailable: The endpoint does not answer. The votes that it gave are in the cache.
            JudgeError: It refuses the question, or a screenshot is no picture.
        """
        config = self._config
        question = self._prompt.ask(trajectory, images)
        votes: list[bool] = []
        answers: list[Answer] = []
        cost, is_cached, problem = 0.0, True, ""
        while decide(votes, config.votes, config.agreement) is None and not problem:
            if is_lost(votes, config.votes, config.agreement):
                problem = (
                    f"The votes disagree: {votes.count(True)} for success, {votes.count(False)} against."
                )
                break
            try:
                answer, paid = self._vote(question, trajectory.task.id, len(votes))
            except (Garbage, BudgetSpent) as error:
                problem = str(error)
                break
            is_cached = is_cached and paid is None
            cost += paid or 0.0
            votes.append(bool(read_status(answer.text)))
            answers.append(answer)
        says = None if problem else decide(votes, config.votes, config.agreement)
        return Verdict(
            success=bool(says),
            score=votes.count(True) / len(votes) if votes else 0.0,
            reason=problem or _reason(answers, votes, bool(says)),
            is_decided=says is not None,
            judge=self.name,
            model=config.model,
            prompt=question.text,
            answers=tuple(answer.text for answer in answers),
            input_tokens=sum(answer.input_tokens for answer in answers),
            output_tokens=sum(answer.output_tokens for answer in answers),
            cost=cost,
            is_cached=is_cached and bool(answers),
        )

    def _vote(self, question: Question, task_id: str, number: int) -> tuple[Answer, float | None]:
        """An answer, and its cost; None if it came from the cache."""
        digest = self._digest(question, number)
        known = self._cache.get(task_id, digest) if self._cache is not None else None
        if known is not None and read_status(known.text) is not None:
            return known, None
        answer, paid = self._client.ask(question, lambda text: read_status(text) is not None)
        if self._cache is not None:
            self._cache.put(task_id, digest, answer)
        return answer, paid

    def _digest(self, question: Question, number: int) -> str:
        config = self._config
        asked = [self._url, config.model, config.temperature, config.max_tokens, number, question.digest]
        return hashlib.blake2b(repr(asked).encode(), digest_size=16).hexdigest()


def read_key(config: VlmConfig) -> str:
    """The key, from the environment.

    Raises:
        ConfigError: It is not there.
    """
    if not config.key_env:
        return ""
    key = os.environ.get(config.key_env, "").strip()
    if not key:
        raise ConfigError(
            f"The environment variable {config.key_env}, which judge.vlm.key_env names, is not set.",
            "Set it to the endpoint's key, or judge.vlm.key_env to '' for an endpoint without keys.",
        )
    return key


def _reason(answers: list[Answer], votes: list[bool], says: bool) -> str:
    """The first answer that says so, without its status, in one line."""
    text = next(answer.text for answer, vote in zip(answers, votes, strict=True) if vote is says)
    line = " ".join(text.split())
    return line if len(line) <= 500 else f"{line[:499]}…"
