"""The judge `vlm`: asks, votes, remembers."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, JudgeError
from distrl.core.types import Trajectory
from distrl.core.verdicts import Spent, Verdict
from distrl.evaluator.judges.vlm.budget import Budget, BudgetSpent
from distrl.evaluator.judges.vlm.cache import AnswerCache
from distrl.evaluator.judges.vlm.client import Client, Garbage
from distrl.evaluator.judges.vlm.endpoints import Answer, make_endpoint
from distrl.evaluator.judges.vlm.prompt import Prompt, Question
from distrl.evaluator.judges.vlm.status import read_status
from distrl.evaluator.judges.vlm.votes import decide, is_lost


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

    def be_patient(self, stop: threading.Event) -> None:
        """Waits for quotas however long that takes, until `stop` is set; else an episode is put off."""
        self._client.be_patient(stop)

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """What the votes say; undecided where they disagree, are none, or the budget is spent.

        Raises:
            JudgeUnavailable: The endpoint does not answer. The votes that it gave are in the cache.
            JudgeError: It refuses the question, or a screenshot is no picture.
        """
        question = self._prompt.ask(trajectory, images)
        spent: list[Spent] = []
        answers: list[Answer] = []
        try:
            verdict = self._poll(question, trajectory.task.id, spent, answers)
        except JudgeError as error:
            error.spent = Spent.total(spent)
            error.asked = self._verdict(question, answers, None, error.message)
            raise
        return verdict.after(*spent)

    def _poll(self, question: Question, task_id: str, spent: list[Spent], answers: list[Answer]) -> Verdict:
        """What the votes say; what they took is added to `spent`, and what they are to `answers`."""
        config = self._config
        votes: list[bool] = []
        problem = ""
        while decide(votes, config.votes, config.agreement) is None and not problem:
            if is_lost(votes, config.votes, config.agreement):
                problem = (
                    f"The votes disagree: {votes.count(True)} for success, {votes.count(False)} against."
                )
                break
            try:
                answer = self._vote(question, task_id, len(votes), spent)
            except (Garbage, BudgetSpent) as error:
                problem = str(error)
                break
            votes.append(bool(read_status(answer.text)))
            answers.append(answer)
        says = None if problem else decide(votes, config.votes, config.agreement)
        verdict = self._verdict(question, answers, says, problem or _reason(answers, votes, bool(says)))
        score = votes.count(True) / len(votes) if votes else 0.0
        return verdict.model_copy(update={"score": score, "is_cached": bool(answers) and not spent})

    def _verdict(self, question: Question, answers: list[Answer], says: bool | None, reason: str) -> Verdict:
        return Verdict(
            success=bool(says),
            score=0.0,
            reason=reason,
            is_decided=says is not None,
            judge=self.name,
            model=self._config.model,
            prompt=question.text,
            answers=tuple(answer.text for answer in answers),
        )

    def _vote(self, question: Question, task_id: str, number: int, spent: list[Spent]) -> Answer:
        """An answer, from the cache if it is there."""
        digest = self._digest(question, number)
        known = self._cache.get(task_id, digest) if self._cache is not None else None
        if known is not None and read_status(known.text) is not None:
            return known
        answer = self._client.ask(question, lambda text: read_status(text) is not None, spent)
        if self._cache is not None:
            self._cache.put(task_id, digest, answer)
        return answer

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
