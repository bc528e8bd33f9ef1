"""The judge `vlm`: asks a vision-language model, counts its votes, and caches its answers on disk."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, DistrlError, JudgeError
from distrl.core.files import write_atomically
from distrl.core.types import Spent, Trajectory, Verdict
from distrl.evaluator.judges.vlm.client import Budget, BudgetSpent, Client, Garbage, make_endpoint
from distrl.evaluator.judges.vlm.prompt import Prompt, Question, read_status

_log = logging.getLogger(__name__)


class VlmJudge:
    """A vision-language model behind an HTTP endpoint. Thread-safe.

    Args:
        config: The model and how it is asked.
        client: By default one for the endpoint and the key that `config` names.

    Raises:
        ConfigError: The key is not set, no model is named, or the examples cannot be read.
    """

    name = "vlm"

    def __init__(self, config: VlmConfig, client: Client | None = None) -> None:
        self._config = config
        endpoint = make_endpoint(config)
        self._url = endpoint.url
        self._client = client or Client(endpoint, config, read_key(config), Budget(config))
        self._prompt = Prompt(config.examples, config.screenshots)
        self._cache = Path(config.cache).expanduser() if config.cache else None
        self._has_warned = False

    def wait_by(self, wait: Callable[[float], bool]) -> None:
        """Makes pauses, and waits for quotas, by `wait`, which returns True to end them."""
        self._client.wait = wait

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The votes' verdict; undecided if they disagree, if there are none, or if the budget is spent.

        Raises:
            JudgeUnavailable: The endpoint does not answer. Votes so far are in the cache.
            JudgeError: The endpoint rejects the question, or a screenshot is not a valid image.
        """
        question = self._prompt.ask(trajectory, images)
        spent: list[Spent] = []
        answers: list[str] = []
        try:
            verdict = self._poll(question, trajectory.task.id, spent, answers)
        except JudgeError as error:
            error.spent = Spent.total(spent)
            error.asked = self._verdict(question, answers, None, error.message)
            raise
        return verdict.after(*spent)

    def _poll(self, question: Question, task_id: str, spent: list[Spent], answers: list[str]) -> Verdict:
        """The votes' verdict; the cost is added to `spent`, and the answers to `answers`."""
        total, agreement = self._config.votes, self._config.agreement
        votes: list[bool] = []
        problem = ""
        while (says := decide(votes, total, agreement)) is None and not problem:
            if is_lost(votes, total, agreement):
                problem = (
                    f"The votes disagree: {votes.count(True)} for success, {votes.count(False)} against."
                )
                break
            try:
                answers.append(self._vote(question, task_id, len(votes), spent))
                votes.append(bool(read_status(answers[-1])))
            except (Garbage, BudgetSpent) as error:
                problem = str(error)
        # Without a problem: the first answer with that status, on one line.
        text = problem or next(text for text, vote in zip(answers, votes, strict=True) if vote is says)
        line = " ".join(text.split())
        reason = line if problem or len(line) <= 500 else f"{line[:499]}…"
        score = votes.count(True) / len(votes) if votes else 0.0
        verdict = self._verdict(question, answers, says, reason)
        return verdict.model_copy(update={"score": score, "is_cached": bool(answers) and not spent})

    def _verdict(self, question: Question, answers: Sequence[str], says: bool | None, reason: str) -> Verdict:
        return Verdict(
            success=bool(says),
            score=0.0,
            reason=reason,
            is_decided=says is not None,
            judge=self.name,
            model=self._config.model,
            prompt=question.text,
            answers=tuple(answers),
        )

    def _vote(self, question: Question, task_id: str, number: int, spent: list[Spent]) -> str:
        """An answer, from the cache if possible: FOLDER/TASK/DIGEST.txt, which several processes may use.

        The digest covers the model, the question, the pictures and the number of the vote, that is all that
        changes an answer. Each task has its own folder, which can be removed separately.
        """

        def is_answer(text: str) -> bool:
            return read_status(text) is not None

        if self._cache is None:
            return self._client.ask(question, is_answer, spent)
        config = self._config
        asked = [self._url, config.model, config.temperature, config.max_tokens, number, question.digest]
        digest = hashlib.blake2b(repr(asked).encode(), digest_size=16).hexdigest()
        task = hashlib.blake2b(task_id.encode(), digest_size=8).hexdigest()
        file = self._cache / task / f"{digest}.txt"
        try:
            text = file.read_text(encoding="utf-8")
            if is_answer(text):
                return text
        except (OSError, ValueError):
            pass  # there is none, or it is damaged
        text = self._client.ask(question, is_answer, spent)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text)
        except (OSError, DistrlError) as error:  # the answer still counts
            if not self._has_warned:
                _log.warning(
                    "judge.cache %s is not writable (%s): answers are not kept and may be billed again; "
                    "choose another folder", self._cache, error,
                )  # fmt: skip
            self._has_warned = True
        return text


def read_key(config: VlmConfig) -> str:
    """The key, from the environment.

    Raises:
        ConfigError: The variable is not set.
    """
    if not config.key_env:
        return ""
    key = os.environ.get(config.key_env, "").strip()
    if not key:
        raise ConfigError(
            f"The environment variable {config.key_env} (judge.key_env) is not set.",
            "Set it to the endpoint's key, or set judge.key_env to '' for an endpoint without keys.",
        )
    return key


def decide(votes: Sequence[bool], total: int, agreement: float) -> bool | None:
    """The verdict that the votes so far determine, whatever the others say; None if it is still open.

    Args:
        votes: The votes so far.
        total: How many there will be.
        agreement: The share of `total` that must agree; more than half in any case.
    """
    for says in (True, False):
        count = votes.count(says)
        if 2 * count > total and count >= agreement * total:
            return says
    return None


def is_lost(votes: Sequence[bool], total: int, agreement: float) -> bool:
    """Whether no verdict is possible any more."""
    left = total - len(votes)
    return all(decide([*votes, *[says] * left], total, agreement) is None for says in (True, False))
