"""Asks an endpoint over HTTP: formats (OpenAI-compatible and Gemini), deadlines, retries, and the budget.

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
import contextlib
import itertools
import json
import logging
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, JudgeError, JudgeRefuses, JudgeUnavailable, QuotaUsed
from distrl.core.http_post import GARBLED, PostFailed, post_json
from distrl.core.types import Spent
from distrl.evaluator.judges.vlm.prompt import Question

BACKOFF_S = 1.0
"""The first pause between two tries, which doubles each time."""

MAX_PAUSE_S = 60.0
"""The longest pause between two tries; after a longer Retry-After the question is postponed."""

MENDABLE_S = 120.0
"""When to retry after an error that a user has to fix: longer than a pause between two tries."""

QUOTA_WAITS = 2
"""How often a question waits for its quota before it is postponed; see `Client.wait_for_quota`."""

MAX_QUOTA_PAUSE_S = 3600.0
"""The quota is checked again after this long."""

MAX_DOUBLINGS = 30  # of a pause

_MENDABLE = frozenset({401, 402, 403, 404})
_BAD_KEY = re.compile(r"API[ _]KEY[ _](?:is )?(?:not valid|INVALID|expired)|invalid API key", re.IGNORECASE)
"""Gemini's messages about an invalid key, which come with status 400."""


class Garbage(JudgeError):
    """The endpoint's reply contains no answer."""


class Client:
    """Asks one endpoint. Thread-safe.

    Args:
        endpoint: The format.
        config: Deadlines and tries.
        key: Sent with each request, and never logged or stored.
        budget: Checked before each call.
        sleep: Waits for a number of seconds.
        rng: Randomises the pauses, so that clients do not retry all at once.
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

    def wait_for_quota(self, stop: threading.Event) -> None:
        """Lets questions wait for their quota without a limit, until `stop` is set, which ends pauses.

        A postponed question starts again from its first vote, so a quota smaller than its votes would be
        spent forever.
        """
        self._stop, self._sleep = stop, stop.wait

    def ask(self, question: Question, is_answer: Callable[[str], bool], spent: list[Spent]) -> Answer:
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
            failure = Garbage(f"The answer has no status, or several; it ends with {_end(answer.text)!r}.")
        raise failure

    def _answer(self, question: Question, spent: list[Spent]) -> Answer:
        """The model's answer, after adapting the request to the settings that it accepts."""
        while True:
            self._take()
            spent.append(Spent(calls=1))
            with contextlib.suppress(Adapted):
                reply = self._post(self._endpoint.body(question, self._config))
                break
        spent[-1] = self._budget.pay(*self._endpoint.tokens(reply))
        if self._endpoint.is_cut(reply):  # the rest could have contradicted it
            limit = self._config.max_tokens
            raise Garbage(f"The answer was cut off at judge.max_tokens={limit}.", "Increase it.")
        answer = self._endpoint.answer(reply)
        if answer is None or not answer.text:
            raise Garbage("The reply contains no answer.")
        return answer

    def _take(self) -> None:
        """Counts a call, once the quota per minute allows it.

        Raises:
            BudgetSpent: No more calls are allowed.
            QuotaUsed: The wait would be too long.
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
        """Whether to wait for the quota. It may take several waits, because other threads use it too."""
        if self._stop is not None:
            return not self._stop.is_set()
        return attempt < QUOTA_WAITS and wait_s <= MAX_PAUSE_S

    def _pause(self, attempt: int, failure: JudgeError) -> None:
        asked_s = failure.retry_after_s if isinstance(failure, JudgeUnavailable) else None
        if asked_s is not None and asked_s > MAX_PAUSE_S:
            raise failure
        pause_s = min(MAX_PAUSE_S, BACKOFF_S * 2.0 ** min(attempt - 1, MAX_DOUBLINGS))
        self._sleep(max(asked_s or 0.0, pause_s * self._rng.uniform(0.75, 1.25)))

    def _post(self, body: Mapping[str, Any]) -> Any:
        try:
            return post(self._endpoint, body, self._key, self._config.timeout_s)
        except PostFailed as error:
            raise _meaning(error) from None


def _end(text: str) -> str:
    """The end of an answer on one line, where its status should be."""
    return " ".join(text.split())[-200:]


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


MINUTE_S = 60.0
PER_TOKENS = 1_000_000
_log = logging.getLogger(__name__)


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

    def take(self) -> None:
        """Counts a call that is about to be made.

        Raises:
            BudgetSpent: No more calls are allowed.
            QuotaUsed: The calls of this minute are used up; the error says when to retry.
        """
        config = self._config
        with self._lock:
            if config.max_calls is not None and self._num_calls >= config.max_calls:
                raise BudgetSpent(f"judge.max_calls={config.max_calls} is used up.", "Increase it.")
            if config.max_cost is not None and self._cost >= config.max_cost:
                raise BudgetSpent(f"judge.max_cost={config.max_cost:g} is used up.", "Increase it.")
            self._keep_pace()
            self._num_calls += 1

    def _keep_pace(self) -> None:
        if self._config.calls_per_minute is None:
            return
        now = self._clock()
        # Less than one a minute means one in several minutes.
        window_s = MINUTE_S * max(1.0, 1.0 / self._config.calls_per_minute)
        while self._recent and now - self._recent[0] >= window_s:
            self._recent.popleft()
        if len(self._recent) >= max(1.0, self._config.calls_per_minute):
            wait_s = self._recent[0] + window_s - now
            raise QuotaUsed(
                f"judge.calls_per_minute={self._config.calls_per_minute:g} is used up.",
                retry_after_s=wait_s,
            )
        self._recent.append(now)

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


_log = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"


MAX_ANSWER = 50_000
"""Characters of an answer that are read and stored."""
MAX_TOKENS = 2**31
"""Larger token counts are ignored as invalid."""

Tokens = tuple[int, int]
"""Input tokens and output tokens."""


@dataclass(frozen=True)
class Answer:
    """A model's answer, and the tokens as counted by the endpoint."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0


class Endpoint(Protocol):
    """A format of requests and replies."""

    url: str

    def headers(self, key: str) -> dict[str, str]:
        """The headers with the key, if there is one."""
        ...

    def body(self, question: Question, config: VlmConfig) -> dict[str, Any]:
        """The request."""
        ...

    def adapt(self, refusal: str, sent: Mapping[str, Any]) -> bool:
        """Adapts later requests to a refusal. Returns whether they differ from the one that was sent.

        Args:
            refusal: The endpoint's message with status 400.
            sent: The refused request.
        """
        ...

    def answer(self, reply: Any) -> Answer | None:
        """The model's answer, which may be empty: it refused, or its reasoning took all tokens.

        None if the reply contains no answer.
        """
        ...

    def is_cut(self, reply: Any) -> bool:
        """Whether the answer was cut off."""
        ...

    def tokens(self, reply: Any) -> Tokens:
        """The tokens of the request and the reply; 0 where the reply does not report them."""
        ...


class Adapted(Exception):
    """The endpoint rejected a setting; later requests leave it out."""


def post(endpoint: Endpoint, body: Mapping[str, Any], key: str, timeout_s: float) -> Any:
    """Sends a request in the endpoint's format and returns the parsed reply.

    Raises:
        Adapted: The request must be built and sent again; at most once for each rejected setting.
        PostFailed: See `post_json`.
    """
    try:
        return post_json(endpoint.url, json.dumps(body).encode(), endpoint.headers(key), timeout_s, key)
    except PostFailed as error:
        if error.status == 400 and endpoint.adapt(error.detail, body):
            raise Adapted from None
        raise


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
    if config.api == "openai":
        return OpenAI(f"{base or OPENAI_URL}/chat/completions")
    return Gemini(f"{base or GEMINI_URL}/models/{config.model}:generateContent")


class OpenAI:
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
        """See `Endpoint`."""
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
        """See `Endpoint`."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, question: Question, config: VlmConfig) -> dict[str, Any]:
        """See `Endpoint`."""
        content: list[dict[str, Any]] = []
        for part in question.parts:
            if isinstance(part, str):
                content.append({"type": "text", "text": part})
            else:
                uri = f"data:image/jpeg;base64,{base64.b64encode(part).decode('ascii')}"
                content.append({"type": "image_url", "image_url": {"url": uri}})
        return {
            "model": config.model,
            "messages": [
                {"role": "system", "content": question.system},
                {"role": "user", "content": content},
            ],
            **self.sampling(config.temperature, config.max_tokens),
        }

    def answer(self, reply: Any) -> Answer | None:
        """See `Endpoint`."""
        message = _at(reply, "choices", 0, "message")
        if not isinstance(message, Mapping):
            return None
        return _answer(message.get("content"), self.tokens(reply))

    def is_cut(self, reply: Any) -> bool:
        """See `Endpoint`."""
        return bool(_at(reply, "choices", 0, "finish_reason") == "length")

    def tokens(self, reply: Any) -> Tokens:
        """See `Endpoint`."""
        return _count(reply, "usage", "prompt_tokens"), _count(reply, "usage", "completion_tokens")


class Gemini:
    """POST {base}/models/MODEL:generateContent."""

    def __init__(self, url: str) -> None:
        self.url = url

    def headers(self, key: str) -> dict[str, str]:
        """See `Endpoint`. The key is not in the URL, because servers log URLs."""
        return {"x-goog-api-key": key} if key else {}

    def adapt(self, refusal: str, sent: Mapping[str, Any]) -> bool:
        """See `Endpoint`. There is nothing to adapt."""
        return False

    def body(self, question: Question, config: VlmConfig) -> dict[str, Any]:
        """See `Endpoint`."""
        parts: list[dict[str, Any]] = []
        for part in question.parts:
            if isinstance(part, str):
                parts.append({"text": part})
            else:
                data = base64.b64encode(part).decode("ascii")
                parts.append({"inlineData": {"mimeType": "image/jpeg", "data": data}})
        return {
            "systemInstruction": {"parts": [{"text": question.system}]},
            "contents": [{"role": "user", "parts": parts}],
            "generationConfig": {"temperature": config.temperature, "maxOutputTokens": config.max_tokens},
        }

    def answer(self, reply: Any) -> Answer | None:
        """See `Endpoint`."""
        candidate = _at(reply, "candidates", 0)
        parts = _at(candidate, "content", "parts")
        if parts is None and _at(candidate, "finishReason") is None:
            return None
        return _answer(parts, self.tokens(reply))

    def is_cut(self, reply: Any) -> bool:
        """See `Endpoint`."""
        return bool(_at(reply, "candidates", 0, "finishReason") == "MAX_TOKENS")

    def tokens(self, reply: Any) -> Tokens:
        """See `Endpoint`. What the model thought is paid for as what it wrote is, and counted apart."""
        said = _count(reply, "usageMetadata", "candidatesTokenCount")
        thought = _count(reply, "usageMetadata", "thoughtsTokenCount")
        return _count(reply, "usageMetadata", "promptTokenCount"), said + thought


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


def _answer(content: Any, tokens: Tokens) -> Answer | None:
    """The answer in a text, in parts of one, or in null for none at all; None if `content` is neither."""
    if content is None or isinstance(content, list):
        content = "".join(str(_at(part, "text") or "") for part in content or ())
    return Answer(_storable(content), *tokens) if isinstance(content, str) else None


def _count(reply: Any, *path: str) -> int:
    found = _at(reply, *path)
    return found if isinstance(found, int) and 0 < found <= MAX_TOKENS else 0


def _storable(text: str) -> str:
    """`text` with what UTF-8 cannot write replaced, and no longer than a record takes."""
    return text[:MAX_ANSWER].encode("utf-8", "replace").decode("utf-8")
