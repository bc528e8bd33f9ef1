"""Asks an OpenAI-compatible endpoint over HTTP: requests and replies, deadlines, retries, and the budget.

| failure | reaction |
|---|---|
| no connection, a timeout, 408, 409, 425, 429, 5xx | retried after Retry-After; then postponed |
| 401, 402, 403, 404, 400 for the key (Gemini) | postponed: a user can fix the key or model meanwhile |
| 400 for a setting that the model does not accept | repeated without it, at once (`Endpoint.adapt`) |
| other 4xx, a redirect | no verdict on this episode |
| a reply that is not JSON, has no answer, or was cut off | retried; then no verdict |
"""

from __future__ import annotations

import base64
import json
import logging
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, JudgeError, JudgeRefuses, JudgeUnavailable
from distrl.core.http_post import GARBLED, PostFailed, post_json
from distrl.core.types import Spent
from distrl.evaluator.judges.vlm.prompt import Question

BACKOFF_S = 1.0
"""The first pause between two tries, which doubles each time."""

MAX_PAUSE_S = 60.0
"""The longest pause between two tries; after a longer Retry-After the question is postponed."""

MENDABLE_S = 120.0
"""When to retry after an error that a user has to fix: longer than a pause between two tries."""

MINUTE_S = 60.0
PER_TOKENS = 1_000_000
MAX_ANSWER = 50_000
"""Characters of an answer that are read and stored."""
MAX_TOKENS = 2**31
"""Larger token counts are ignored as invalid."""

OPENAI_URL = "https://api.openai.com/v1"

_MENDABLE = frozenset({401, 402, 403, 404})
_BAD_KEY = re.compile(r"API[ _]KEY[ _](?:is )?(?:not valid|INVALID|expired)|invalid API key", re.IGNORECASE)
"""Gemini's messages about an invalid key, which come with status 400."""
_log = logging.getLogger(__name__)


class Garbage(JudgeError):
    """The endpoint's reply contains no answer."""


class BudgetSpent(JudgeError):
    """No more calls are allowed; further episodes stay unjudged."""


class Budget:
    """The quota of one judge in this process. Thread-safe.

    Args:
        config: `calls_per_minute`, `max_calls`, `max_cost` and the prices.
        clock: Monotonic seconds.
    """

    def __init__(self, config: VlmConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._lock = threading.Lock()
        self._recent: deque[float] = deque()
        self._num_calls = 0
        self._cost = 0.0
        self._has_warned = False

    def take(self) -> float:
        """Counts a call that is about to be made; or seconds until `calls_per_minute` allows it.

        Raises:
            BudgetSpent: No more calls are allowed.
        """
        config, rate = self._config, self._config.calls_per_minute
        with self._lock:
            if config.max_calls is not None and self._num_calls >= config.max_calls:
                raise BudgetSpent(f"judge.max_calls={config.max_calls} is used up.", "Increase it.")
            if config.max_cost is not None and self._cost >= config.max_cost:
                raise BudgetSpent(f"judge.max_cost={config.max_cost:g} is used up.", "Increase it.")
            if rate is not None:
                now = self._clock()
                window_s = MINUTE_S * max(1.0, 1.0 / rate)  # less than one a minute: one in several minutes
                while self._recent and now - self._recent[0] >= window_s:
                    self._recent.popleft()
                if len(self._recent) >= max(1.0, rate):
                    return self._recent[0] + window_s - now
                self._recent.append(now)
            self._num_calls += 1
            return 0.0

    def pay(self, input_tokens: int, output_tokens: int) -> Spent:
        """Counts and returns the cost of a reply. The first reply without a token count is logged."""
        spent = priced(input_tokens, output_tokens, self._config.price_input, self._config.price_output)
        with self._lock:
            self._cost += spent.cost
            is_unknown = self._config.max_cost is not None and not (input_tokens or output_tokens)
            is_news, self._has_warned = is_unknown and not self._has_warned, self._has_warned or is_unknown
        if is_news:
            _log.warning(
                "the judge's endpoint does not report how many tokens a reply took, so judge.max_cost=%g "
                "does not limit such replies; set judge.max_calls too",
                self._config.max_cost,
            )
        return spent


def priced(input_tokens: int, output_tokens: int, price_input: float, price_output: float) -> Spent:
    """The cost of one call, at prices per million tokens."""
    cost = (input_tokens * price_input + output_tokens * price_output) / PER_TOKENS
    return Spent(calls=1, input_tokens=input_tokens, output_tokens=output_tokens, cost=cost)


def pause_s(attempt: int, first_s: float, asked_s: float | None) -> float:
    """The pause before try `attempt` (the second is 1): doubled each time, at least what was asked for."""
    longest = min(MAX_PAUSE_S, first_s * 2.0 ** min(attempt - 1, 30))
    return max(asked_s or 0.0, longest * random.uniform(0.75, 1.25))  # not all clients at once


class Client:
    """Asks one endpoint. Thread-safe.

    Args:
        endpoint: The format.
        config: Deadlines and tries.
        key: Sent with each request, and never logged or stored.
        budget: Checked before each call.

    Attributes:
        wait: Waits for a number of seconds; True if the questions should end.
    """

    def __init__(self, endpoint: Endpoint, config: VlmConfig, key: str, budget: Budget) -> None:
        self._endpoint, self._config, self._key, self._budget = endpoint, config, key, budget
        self.wait: Callable[[float], bool] = threading.Event().wait

    def ask(self, question: Question, is_answer: Callable[[str], bool], spent: list[Spent]) -> str:
        """A valid answer.

        Args:
            question: The question.
            is_answer: Whether a text is a valid answer; if not, the question is asked again.
            spent: The cost of each call is added to it, also of failed calls.

        Raises:
            JudgeUnavailable: No answer came; a later request may succeed.
            Garbage: No reply was a valid answer.
            BudgetSpent: No more calls are allowed.
            JudgeError: The endpoint rejects this question.
        """
        failure: JudgeError = JudgeUnavailable("judge.vlm was not called.")
        for attempt in range(self._config.attempts):
            if attempt:
                asked_s = failure.retry_after_s if isinstance(failure, JudgeUnavailable) else None
                if asked_s is not None and asked_s > MAX_PAUSE_S:
                    break
                if self.wait(pause_s(attempt, BACKOFF_S, asked_s)):
                    break
            try:
                text = self._answer(question, spent)
            except (JudgeUnavailable, Garbage) as error:
                failure = error
                continue
            if is_answer(text):
                return text
            end = " ".join(text.split())[-200:]  # where its status should be
            failure = Garbage(f"The answer has no status, or several; it ends with {end!r}.")
        raise failure

    def _answer(self, question: Question, spent: list[Spent]) -> str:
        """The model's answer; waits until the quota allows a call."""

        def take() -> None:
            while (wait_s := self._budget.take()) > 0.0:
                if self.wait(wait_s):
                    raise JudgeUnavailable("The judge was stopped while it waited for its calls_per_minute.")
            spent.append(Spent(calls=1))

        config = self._config
        try:
            answer = call(
                self._endpoint,
                lambda: self._endpoint.body(question, config),
                self._key,
                config.timeout_s,
                take,
            )
        except PostFailed as error:
            raise _meaning(error) from None
        spent[-1] = self._budget.pay(answer.input_tokens, answer.output_tokens)
        if answer.is_cut:  # the rest could have contradicted it
            raise Garbage(f"The answer was cut off at judge.max_tokens={config.max_tokens}.", "Increase it.")
        if not answer.text:
            raise Garbage("The reply contains no answer.")
        return answer.text


def _meaning(error: PostFailed) -> JudgeError:
    """The error for a failed request."""
    detail = f"The endpoint: {error.detail}"
    if error.status in _MENDABLE or (error.status == 400 and _BAD_KEY.search(error.detail)):
        remedy = "Check judge.url, judge.model and the key."
        return JudgeRefuses(detail, remedy, retry_after_s=MENDABLE_S)
    if error.status == GARBLED:
        return Garbage(detail)
    if error.may_pass:
        return JudgeUnavailable(detail, retry_after_s=error.retry_after_s)
    return JudgeError(detail)


def call(
    endpoint: Endpoint,
    make_body: Callable[[], Mapping[str, Any]],
    key: str,
    timeout_s: float,
    before: Callable[[], None],
) -> Answer:
    """Sends a request, again at once without a setting that the endpoint rejects.

    Args:
        make_body: Makes the request, as the endpoint accepts it by then.
        before: Called before each request.

    Raises:
        PostFailed: See `post_json`.
    """
    while True:
        before()
        body = make_body()
        try:
            reply = post_json(endpoint.url, json.dumps(body).encode(), endpoint.headers(key), timeout_s, key)
        except PostFailed as error:
            if error.status == 400 and endpoint.adapt(error.detail, body):
                continue
            raise
        return endpoint.read(reply)


@dataclass(frozen=True)
class Answer:
    """What is in a reply.

    Attributes:
        text: None if the reply contains no answer; "" if the model refused, or its reasoning took all tokens.
        input_tokens, output_tokens: As counted by the endpoint; 0 where it does not report them.
        is_cut: Whether the answer was cut off.
    """

    text: str | None
    input_tokens: int = 0
    output_tokens: int = 0
    is_cut: bool = False


def make_endpoint(config: VlmConfig) -> Endpoint:
    """The endpoint that `config` names.

    Raises:
        ConfigError: No model is named, or the address is not valid.
    """
    if not config.model:
        raise ConfigError("judge.model is empty.", "Set it to the model that judges.")
    base = config.url.rstrip("/")
    if base and not base.startswith(("http://", "https://")):
        raise ConfigError(f"judge.url {config.url!r} is not a valid URL.", "Start it with https://.")
    return Endpoint(f"{base or OPENAI_URL}/chat/completions")


class Endpoint:
    """POST {base}/chat/completions. Thread-safe.

    Reasoning models accept `max_completion_tokens` instead of `max_tokens`, and only their own temperature.
    Older endpoints accept only `max_tokens`, so it is sent until an endpoint rejects it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._length, self._has_temperature = "max_tokens", True
        self._lock = threading.Lock()

    def sampling(self, temperature: float, max_tokens: int) -> dict[str, Any]:
        """The sampling settings of a request, as this endpoint accepts them."""
        chosen = {"temperature": temperature} if self._has_temperature else {}
        return {**chosen, self._length: max_tokens}

    def adapt(self, refusal: str, sent: Mapping[str, Any]) -> bool:
        """Adapts later requests to a refusal, a message with status 400. Whether they differ from `sent`."""
        if "max_tokens" in sent and "max_completion_tokens" in refusal:
            self._length = "max_completion_tokens"
            return True
        if "temperature" in sent and "temperature" in refusal and "support" in refusal:
            with self._lock:
                is_news, self._has_temperature = self._has_temperature, False
            if is_news:
                _log.warning(
                    "%s: the model accepts no temperature; its default is used (%s)", self.url, refusal
                )
            return True
        return False

    def headers(self, key: str) -> dict[str, str]:
        """The headers with the key, if there is one."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, question: Question, config: VlmConfig) -> dict[str, Any]:
        """The request."""
        content = [text_part(one) if isinstance(one, str) else image_part(one) for one in question.parts]
        return {
            "model": config.model,
            "messages": [
                {"role": "system", "content": question.system},
                {"role": "user", "content": content},
            ],
            **self.sampling(config.temperature, config.max_tokens),
        }

    def read(self, reply: Any) -> Answer:
        """The answer in a reply."""
        message = _at(reply, "choices", 0, "message")
        text = _text(message.get("content")) if isinstance(message, Mapping) else None
        asked, written = _count(reply, "usage", "prompt_tokens"), _count(reply, "usage", "completion_tokens")
        # What the model thought is paid for as well; some endpoints count it only in the total.
        written = max(written, _count(reply, "usage", "total_tokens") - asked)
        return Answer(text, asked, written, is_cut=_at(reply, "choices", 0, "finish_reason") == "length")


def text_part(text: str) -> dict[str, Any]:
    """A text of a message."""
    return {"type": "text", "text": text}


def image_part(data: bytes) -> dict[str, Any]:
    """An encoded image of a message."""
    kind = "jpeg"
    if data.startswith(b"\x89PNG"):
        kind = "png"
    elif data[8:12] == b"WEBP":
        kind = "webp"
    uri = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": uri}}


def _at(data: Any, *path: str | int) -> Any:
    """What is at `path` in parsed JSON, None if nothing is."""
    for key in path:
        if isinstance(key, str) and isinstance(data, Mapping):
            data = data.get(key)
        elif isinstance(key, int) and isinstance(data, list) and len(data) > key:
            data = data[key]
        else:
            return None
    return data


def _text(content: Any) -> str | None:
    """A text, in one piece or in parts, "" for null; no longer than a record takes, and in valid UTF-8."""
    if content is None or isinstance(content, list):
        content = "".join(str(_at(part, "text") or "") for part in content or ())
    if not isinstance(content, str):
        return None
    return content[:MAX_ANSWER].encode("utf-8", "replace").decode("utf-8")


def _count(reply: Any, *path: str) -> int:
    found = _at(reply, *path)
    return found if isinstance(found, int) and 0 < found <= MAX_TOKENS else 0
