"""The judge `vlm`: asks a vision-language model, counts its votes, and caches its answers on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, JudgeError
from distrl.core.types import Spent, Trajectory, Verdict
from distrl.evaluator.judges.vlm.client import Answer, Budget, BudgetSpent, Client, Garbage, make_endpoint
from distrl.evaluator.judges.vlm.prompt import Prompt, Question, read_status


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
        self._prompt = Prompt(config.examples, config.screenshots, config.max_pixels)
        self._cache = AnswerCache(Path(config.cache).expanduser()) if config.cache else None

    def wait_for_quota(self, stop: threading.Event) -> None:
        """Waits for quotas without a limit until `stop` is set, instead of postponing episodes."""
        self._client.wait_for_quota(stop)

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The votes' verdict; undecided if they disagree, if there are none, or if the budget is spent.

        Raises:
            JudgeUnavailable: The endpoint does not answer. Votes so far are in the cache.
            JudgeError: The endpoint rejects the question, or a screenshot is not a valid image.
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
        """The votes' verdict; the cost is added to `spent`, and the answers to `answers`."""
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
        """An answer, from the cache if possible."""
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


def _reason(answers: list[Answer], votes: list[bool], says: bool) -> str:
    """The first answer with that status, on one line."""
    text = next(answer.text for answer, vote in zip(answers, votes, strict=True) if vote is says)
    line = " ".join(text.split())
    return line if len(line) <= 500 else f"{line[:499]}…"


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


_log = logging.getLogger(__name__)


class AnswerCache:
    """A folder of answers by content, FOLDER/TASK/DIGEST.json; several processes may use it.

    The digest covers the model, the question, the pictures and the number of the vote, that is all that
    changes an answer. Each task has its own folder, which can be removed separately.

    Args:
        folder: Created with the first answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._has_warned = False  # guarded by the lock

    def get(self, task_id: str, digest: str) -> Answer | None:
        """The cached answer; None if there is none or it is damaged."""
        try:
            data = json.loads(self._file(task_id, digest).read_text(encoding="utf-8"))
            return Answer(str(data["text"]), int(data["input_tokens"]), int(data["output_tokens"]))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def put(self, task_id: str, digest: str, answer: Answer) -> None:
        """Caches an answer. A folder that is not writable is logged once; the answer still counts."""
        file = self._file(task_id, digest)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(vars(answer), ensure_ascii=False), encoding="utf-8")
            os.replace(temporary, file)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        _log.warning(
            "judge.cache %s is not writable (%s): answers will not be cached and may be billed again; "
            "choose another folder",
            self._folder,
            error.strerror,
        )

    def _file(self, task_id: str, digest: str) -> Path:
        task = hashlib.blake2b(task_id.encode(), digest_size=8).hexdigest()
        return self._folder / task / f"{digest}.json"
