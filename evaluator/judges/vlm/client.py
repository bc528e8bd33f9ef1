"""Asking an endpoint over HTTP: deadlines, retries with growing pauses, and what each failure means.

| what happens | what follows |
|---|---|
| no connection, a timeout, 408, 409, 425, 429, 5xx | another try, not before the Retry-After; then later |
| 401, 403, 404 | later: a key or a model can be put right while episodes wait |
| other 4xx, a redirect | no verdict on this episode |
| a reply that is no JSON, or holds no answer | another try; then no verdict |
"""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

from distrl.configs.judge import VlmConfig
from distrl.core.errors import JudgeError, JudgeUnavailable
from distrl.evaluator.judges.vlm.budget import Budget
from distrl.evaluator.judges.vlm.endpoints import Answer, Endpoint
from distrl.evaluator.judges.vlm.prompt import Question

MAX_PAUSE_S = 60.0
"""The longest pause between two tries; who is asked to wait longer comes back later."""

MENDABLE_S = 120.0
"""When to ask again whom people have to put right first: longer than a pause between two tries."""

MAX_REPLY_BYTES = 4 * 2**20
CHUNK_BYTES = 2**16
_BUSY = frozenset({408, 409, 425, 429})
_MENDABLE = frozenset({401, 403, 404})


class Garbage(JudgeError):
    """The endpoint's reply holds no answer."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to somebody else."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Never."""


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
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._endpoint, self._config, self._key = endpoint, config, key
        self._budget, self._sleep = budget, sleep
        self._rng = rng or random.Random()
        self._opener = urllib.request.build_opener(_NoRedirect)

    def ask(self, question: Question, is_answer: Callable[[str], bool]) -> tuple[Answer, float]:
        """An answer that is one, and what it and those before it cost.

        Args:
            question: The question.
            is_answer: Whether a text says anything; one that does not is asked for again.

        Raises:
            JudgeUnavailable: None came; later one may.
            Garbage: Nothing that came was an answer.
            BudgetSpent: No more may be asked.
            JudgeError: The endpoint refuses this question.
        """
        body = json.dumps(self._endpoint.body(question, self._config)).encode()
        failure: JudgeError = JudgeUnavailable("judge.vlm was not asked.")
        paid = 0.0
        for attempt in range(self._config.attempts):
            if attempt:
                self._pause(attempt, failure)
            self._take()
            try:
                answer = self._endpoint.answer(self._post(body))
            except (JudgeUnavailable, Garbage) as error:
                failure = error
                continue
            if answer is None:
                failure = Garbage("The reply holds no answer.")
                continue
            paid += self._budget.pay(answer)
            if is_answer(answer.text):
                return answer, paid
            failure = Garbage(f"No status in the answer {_short(answer.text)!r}.")
        raise failure

    def _take(self) -> None:
        """Counts a call, once the quota of the minute allows it.

        Raises:
            BudgetSpent: There were enough.
            JudgeUnavailable: That will take too long.
        """
        for _ in range(2):
            try:
                self._budget.take()
            except JudgeUnavailable as error:
                if error.retry_after_s is None or error.retry_after_s > MAX_PAUSE_S:
                    raise
                self._sleep(error.retry_after_s)
            else:
                return
        self._budget.take()  # another thread had the place: back in the queue

    def _pause(self, attempt: int, failure: JudgeError) -> None:
        asked_s = failure.retry_after_s if isinstance(failure, JudgeUnavailable) else None
        if asked_s is not None and asked_s > MAX_PAUSE_S:
            raise failure
        pause_s = min(MAX_PAUSE_S, self._config.backoff_s * 2.0 ** (attempt - 1))
        self._sleep(max(asked_s or 0.0, pause_s * self._rng.uniform(0.75, 1.25)))

    def _post(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/json", **self._endpoint.headers(self._key)}
        request = urllib.request.Request(self._endpoint.url, body, headers, method="POST")
        deadline = time.monotonic() + self._config.timeout_s
        try:
            with self._opener.open(request, timeout=self._config.timeout_s) as reply:
                data = _read(reply, deadline)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, self._key) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise JudgeUnavailable(f"The endpoint {self._endpoint.url} does not answer: {reason}.") from None
        try:
            return json.loads(data)
        except ValueError:
            raise Garbage(f"The reply is no JSON: {_short(data.decode('utf-8', 'replace'))!r}.") from None


def _read(reply: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole reply.

    Raises:
        OSError: It drips too slowly, or broke off.
        Garbage: It is too long.
    """
    data = bytearray()
    while chunk := reply.read1(CHUNK_BYTES):
        data += chunk
        if len(data) > MAX_REPLY_BYTES:
            raise Garbage(f"The reply has more than {MAX_REPLY_BYTES} bytes.")
        if time.monotonic() > deadline:
            raise TimeoutError("the reply takes too long")
    if reply.length:  # what read1 does not tell
        raise ConnectionError("the reply broke off")
    return bytes(data)


def _refusal(error: urllib.error.HTTPError, key: str) -> JudgeError:
    """What an HTTP status means. Nothing that the endpoint says may show the key."""
    try:
        said = error.read(CHUNK_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        said = ""
    if key:
        said = said.replace(key, "***")
    told = f"The endpoint answers {error.code}: {_short(said) or error.reason}."
    if error.code in _MENDABLE:
        return JudgeUnavailable(
            told, "Check judge.vlm.url, judge.vlm.model and the key.", retry_after_s=MENDABLE_S
        )
    if error.code in _BUSY or error.code >= 500:
        return JudgeUnavailable(told, retry_after_s=retry_after(error.headers.get("Retry-After")))
    return JudgeError(told)


def retry_after(value: str | None) -> float | None:
    """Seconds that the header Retry-After asks for: a number of them, or a date; None if it says nothing."""
    if value is None:
        return None
    text = value.strip()
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
