"""Asking an endpoint over HTTP: deadlines, retries with growing pauses, and what each failure means.

| what happens | what follows |
|---|---|
| no connection, a timeout, 408, 409, 425, 429, 5xx | another try, not before the Retry-After; then later |
| 401, 402, 403, 404, 400 for the key (Gemini's) | later: a key, a model can be mended while episodes wait |
| 400 for a setting that the model does not take | another request without it, at once (`Endpoint.adapt`) |
| other 4xx, a redirect | no verdict on this episode |
| a reply that is no JSON, holds no answer, or one that was cut off | another try; then no verdict |
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from distrl.configs.judge import VlmConfig
from distrl.core.errors import JudgeError, JudgeRefuses, JudgeUnavailable, QuotaUsed
from distrl.core.http_post import GARBLED, PostFailed
from distrl.core.verdicts import Spent
from distrl.evaluator.judges.vlm.budget import Budget
from distrl.evaluator.judges.vlm.endpoints import Adapted, Answer, Endpoint, post
from distrl.evaluator.judges.vlm.prompt import Question

MAX_PAUSE_S = 60.0
"""The longest pause between two tries; who is asked to wait longer comes back later."""

MENDABLE_S = 120.0
"""When to ask again whom people have to put right first: longer than a pause between two tries."""

QUOTA_WAITS = 2
"""How often a question waits for its quota before it is put off; see `Client.be_patient`."""

MAX_QUOTA_PAUSE_S = 3600.0
"""Then it is looked again whether there is room."""

MAX_DOUBLINGS = 30  # of a pause

_MENDABLE = frozenset({401, 402, 403, 404})
_BAD_KEY = re.compile(r"API[ _]KEY[ _](?:is )?(?:not valid|INVALID|expired)|invalid API key", re.IGNORECASE)
"""What Gemini says of a key with status 400."""


class Garbage(JudgeError):
    """The endpoint's reply holds no answer."""


class Client:
    """Asks one endpoint. Any thread may ask.

    Args:
        endpoint: The format.
        config: Deadlines and tries.
        key: Sent with each request, and never written anywhere.
        budget: Asked before each call.
        sleep: Waits for so many seconds.
        rng: Draws the pauses, so that clients do not come back all at once.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: VlmConfig,
        key: str,
        budget: Budget,
        sleep: Callable[[float], object] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._endpoint, self._config, self._key = endpoint, config, key
        self._budget, self._sleep = budget, sleep
        self._rng = rng or random.Random()
        self._stop: threading.Event | None = None

    def be_patient(self, stop: threading.Event) -> None:
        """Lets questions wait for their quota however long it takes, until `stop` is set, which ends pauses.

        Who puts a question off starts it anew; a quota of less than its votes would be spent for ever so.
        """
        self._stop, self._sleep = stop, stop.wait

    def ask(self, question: Question, is_answer: Callable[[str], bool], spent: list[Spent]) -> Answer:
        """An answer that is one.

        Args:
            question: The question.
            is_answer: Whether a text says anything; one that does not is asked for again.
            spent: What each call took is added to it, whatever came of the call.

        Raises:
            JudgeUnavailable: None came; later one may.
            Garbage: Nothing that came was an answer.
            BudgetSpent: No more may be asked.
            JudgeError: The endpoint refuses this question.
        """
        failure: JudgeError = JudgeUnavailable("judge.vlm was not asked.")
        for attempt in range(self._config.attempts):
            if attempt:
                self._pause(attempt, failure)
                if self._stop is not None and self._stop.is_set():
                    break
            try:
                answer = self._answer(question, spent)
            except (JudgeUnavailable, Garbage) as error:
                failure = error
                continue
            if is_answer(answer.text):
                return answer
            failure = Garbage(f"No status, or several, in the answer that ends {_end(answer.text)!r}.")
        raise failure

    def _answer(self, question: Question, spent: list[Spent]) -> Answer:
        """What the model wrote, once it takes the way that it is asked."""
        while True:
            self._take()
            spent.append(Spent(calls=1))
            with contextlib.suppress(Adapted):
                reply = self._post(self._endpoint.body(question, self._config))
                break
        spent[-1] = self._budget.pay(*self._endpoint.tokens(reply))
        if self._endpoint.is_cut(reply):  # what it was about to say may be the opposite
            limit = self._config.max_tokens
            raise Garbage(f"The answer was cut off at judge.vlm.max_tokens={limit}.", "Set more.")
        answer = self._endpoint.answer(reply)
        if answer is None or not answer.text:
            raise Garbage("The reply holds no answer.")
        return answer

    def _take(self) -> None:
        """Counts a call, once the quota of the minute allows it.

        Raises:
            BudgetSpent: There were enough.
            QuotaUsed: That will take too long.
        """
        for attempt in itertools.count():
            try:
                self._budget.take()
                return
            except QuotaUsed as error:
                wait_s = error.retry_after_s or 0.0
                if not self._may_wait(attempt, wait_s):
                    raise
                self._sleep(min(wait_s, MAX_QUOTA_PAUSE_S))

    def _may_wait(self, attempt: int, wait_s: float) -> bool:
        """Whether to wait for the quota; another thread may have had the place, so it can take several."""
        if self._stop is not None:
            return not self._stop.is_set()
        return attempt < QUOTA_WAITS and wait_s <= MAX_PAUSE_S

    def _pause(self, attempt: int, failure: JudgeError) -> None:
        asked_s = failure.retry_after_s if isinstance(failure, JudgeUnavailable) else None
        if asked_s is not None and asked_s > MAX_PAUSE_S:
            raise failure
        pause_s = min(MAX_PAUSE_S, self._config.backoff_s * 2.0 ** min(attempt - 1, MAX_DOUBLINGS))
        self._sleep(max(asked_s or 0.0, pause_s * self._rng.uniform(0.75, 1.25)))

    def _post(self, body: Mapping[str, Any]) -> Any:
        try:
            return post(self._endpoint, body, self._key, self._config.timeout_s)
        except PostFailed as error:
            raise _meaning(error) from None


def _end(text: str) -> str:
    """The end of an answer on one line, where its status ought to be."""
    return " ".join(text.split())[-200:]


def _meaning(error: PostFailed) -> JudgeError:
    """What a request that failed says of the verdict."""
    told = f"The endpoint: {error.detail}"
    if error.status in _MENDABLE or (error.status == 400 and _BAD_KEY.search(error.detail)):
        remedy = "Check judge.vlm.url, judge.vlm.model and the key."
        return JudgeRefuses(told, remedy, retry_after_s=MENDABLE_S)
    if error.status == GARBLED:
        return Garbage(told)
    return JudgeUnavailable(told, retry_after_s=error.retry_after_s) if error.may_pass else JudgeError(told)
