"""Asks a model behind an OpenAI-compatible endpoint: requests and replies, retries, and the cost."""

from __future__ import annotations

import base64
import json
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.core.errors import JudgeError
from distrl.core.http_post import GARBLED, PostFailed, post_json
from distrl.core.types import Spent

BACKOFF_S, MAX_PAUSE_S = 1.0, 60.0
"""The first pause between two tries, which doubles each time, and the longest."""

PER_TOKENS = 1_000_000
MAX_ANSWER = 50_000
"""Characters of an answer that are read and stored."""
MAX_TOKENS = 2**31
"""Larger token counts are ignored as invalid."""

_log = logging.getLogger(__name__)


class BudgetSpent(JudgeError):
    """No more calls are allowed; further episodes stay unjudged."""


@dataclass(frozen=True)
class Answer:
    """What is in a reply.

    Attributes:
        text: "" if the model refused, or its reasoning took all tokens.
        is_cut: Whether the answer was cut off.
    """

    text: str
    is_cut: bool = False


class Endpoint:
    """POST {base}/chat/completions. Thread-safe.

    Reasoning models accept `max_completion_tokens` instead of `max_tokens`, and only their own temperature.
    Older endpoints accept only `max_tokens`, so it is sent until an endpoint rejects it.

    Args:
        base: The URL of the API.
        key: Sent with each request, and never logged or stored; "" for none.
        timeout_s, attempts: The deadline of a reply, and the number of tries.
        prices: Of a million input tokens, and of a million output tokens.
        max_calls: Requests that this endpoint may get in all; None: any number.

    Attributes:
        wait: Waits for a number of seconds; True if requests should end.
    """

    def __init__(
        self,
        base: str,
        model: str,
        key: str,
        timeout_s: float,
        attempts: int,
        prices: tuple[float, float],
        max_calls: int | None = None,
    ) -> None:
        self._url, self._model, self._key = f"{base.rstrip('/')}/chat/completions", model, key
        self._timeout_s, self._attempts, self._prices = timeout_s, attempts, prices
        self._max_calls, self._num_calls = max_calls, 0
        self._refused: set[str] = set()
        self._lock = threading.Lock()
        self.wait: Callable[[float], bool] = threading.Event().wait

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        temperature: float,
        max_tokens: int,
        spent: list[Spent],
        read: Callable[[Answer], str],
    ) -> str:
        """What `read` makes of the model's answer.

        Args:
            spent: The cost of each request is added to it, also of failed ones.
            read: Raises PostFailed(GARBLED, …) if the answer is not valid; the model is then asked again.

        Raises:
            PostFailed: There was no valid answer in all tries, or the endpoint rejects the request.
            BudgetSpent: No more calls are allowed.
        """
        failure = PostFailed(0, "The model was not asked.")
        for attempt in range(self._attempts):
            if attempt:
                backoff_s = BACKOFF_S * 2.0 ** min(attempt - 1, 30) * random.uniform(0.75, 1.25)
                if self.wait(min(MAX_PAUSE_S, max(backoff_s, failure.retry_after_s or 0.0))):
                    break
            try:
                return read(self._answer(messages, temperature, max_tokens, spent))
            except PostFailed as error:
                if not error.may_pass:
                    raise
                failure = error
        raise failure

    def _answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        temperature: float,
        max_tokens: int,
        spent: list[Spent],
    ) -> Answer:
        """The answer to one request, repeated at once without a setting that the endpoint rejects."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        while True:
            self._count_call()
            spent.append(Spent(calls=1))
            body = {"model": self._model, "messages": messages, **self.sampling(temperature, max_tokens)}
            try:
                data = json.dumps(body).encode()
                reply = post_json(self._url, data, headers, self._timeout_s, self._key)
                break
            except PostFailed as error:
                if error.status != 400 or not self.adapt(error.detail, body):
                    raise
        asked, written = _count(reply, "prompt_tokens"), _count(reply, "completion_tokens")
        # What the model thought is paid for as well; some endpoints count it only in the total.
        written = max(written, _count(reply, "total_tokens") - asked)
        cost = (asked * self._prices[0] + written * self._prices[1]) / PER_TOKENS
        spent[-1] = Spent(calls=1, input_tokens=asked, output_tokens=written, cost=cost)
        message = _at(reply, "choices", 0, "message")
        text = _text(message.get("content")) if isinstance(message, Mapping) else None
        if text is None:
            raise PostFailed(GARBLED, "the reply contains no answer.")
        return Answer(text, is_cut=_at(reply, "choices", 0, "finish_reason") == "length")

    def _count_call(self) -> None:
        with self._lock:
            if self._max_calls is not None and self._num_calls >= self._max_calls:
                raise BudgetSpent(f"judge.max_calls={self._max_calls} is used up.", "Increase it.")
            self._num_calls += 1

    def sampling(self, temperature: float, max_tokens: int) -> dict[str, Any]:
        """The sampling settings of a request, as this endpoint accepts them."""
        length = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        return {length: max_tokens} | ({} if "temperature" in self._refused else {"temperature": temperature})

    def adapt(self, refusal: str, sent: Mapping[str, Any]) -> bool:
        """Adapts later requests to a refusal, a message with status 400. Whether they differ from `sent`."""
        for name, sign in (("max_tokens", "max_completion_tokens"), ("temperature", "support")):
            if name in sent and name in refusal and sign in refusal:
                with self._lock:
                    is_news = name not in self._refused
                    self._refused.add(name)
                if is_news:
                    _log.warning("%s does not accept %s, which is left out (%s)", self._url, name, refusal)
                return True
        return False


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
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _text(content: Any) -> str | None:
    """A text, in one piece or in parts, "" for null; no longer than a record takes, and in valid UTF-8."""
    if content is None or isinstance(content, list):
        content = "".join(str(_at(part, "text") or "") for part in content or ())
    if not isinstance(content, str):
        return None
    return content[:MAX_ANSWER].encode("utf-8", "replace").decode("utf-8")


def _count(reply: Any, name: str) -> int:
    found = _at(reply, "usage", name)
    return found if isinstance(found, int) and 0 < found <= MAX_TOKENS else 0
