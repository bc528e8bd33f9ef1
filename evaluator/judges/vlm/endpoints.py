"""What an endpoint is sent and what it sends back: OpenAI-compatible chat completions, and Gemini's."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError
from distrl.core.http_post import PostFailed, post_json
from distrl.evaluator.judges.vlm.prompt import Question

_log = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"


MAX_ANSWER = 50_000
"""Characters of an answer that are read and stored."""
MAX_TOKENS = 2**31
"""An endpoint that says that an answer took more does not count."""

Tokens = tuple[int, int]
"""Of the question, and of all that the model wrote."""


@dataclass(frozen=True)
class Answer:
    """What a model wrote, and how many tokens that took as the endpoint counted them."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0


class Endpoint(Protocol):
    """A format of requests and replies."""

    url: str

    def headers(self, key: str) -> dict[str, str]:
        """The headers that carry the key, if there is one."""
        ...

    def body(self, question: Question, config: VlmConfig) -> dict[str, Any]:
        """The request."""
        ...

    def adapt(self, refusal: str, sent: Mapping[str, Any]) -> bool:
        """Whether `body` from now on differs from what was sent, so that it may not be refused again.

        Args:
            refusal: What the endpoint said with status 400.
            sent: The request that it said it of.
        """
        ...

    def answer(self, reply: Any) -> Answer | None:
        """What the model wrote, which may be nothing: it refused, or its thinking took all tokens.

        None if the reply holds no answer of a model.
        """
        ...

    def is_cut(self, reply: Any) -> bool:
        """Whether the model was stopped before it had ended its answer."""
        ...

    def tokens(self, reply: Any) -> Tokens:
        """How many tokens the reply took, whatever it holds; 0 where it does not say."""
        ...


class Adapted(Exception):
    """The endpoint refused how it was asked, and is asked in another way from now on."""


def post(endpoint: Endpoint, body: Mapping[str, Any], key: str, timeout_s: float) -> Any:
    """Sends a request of the endpoint's format and returns the reply, parsed.

    Raises:
        Adapted: It is to be made and sent once more; once for each setting that is refused, at most.
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
        ConfigError: No model is named, or the address is none.
    """
    if not config.model:
        raise ConfigError("judge.vlm.model is empty.", "Name the model that judges.")
    base = config.url.rstrip("/")
    if base and not base.startswith(("http://", "https://")):
        raise ConfigError(f"judge.vlm.url {config.url!r} is no address.", "Begin it with https://.")
    if config.api == "openai":
        return OpenAI(f"{base or OPENAI_URL}/chat/completions")
    return Gemini(f"{base or GEMINI_URL}/models/{config.model}:generateContent")


class OpenAI:
    """POST {base}/chat/completions. Any thread may use it.

    Models that reason take `max_completion_tokens` in the place of `max_tokens`, and no temperature but
    their own. Older endpoints know only the former; so that is sent until one refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._length, self._has_temperature = "max_tokens", True
        self._lock = threading.Lock()

    def sampling(self, temperature: float, max_tokens: int) -> dict[str, Any]:
        """What a request says of how the model writes, in the words that this endpoint takes."""
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
                _log.warning("%s: the model takes no temperature; its own is used. (%s)", self.url, refusal)
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
        """See `Endpoint`. The key is not in the address, which servers write into their logs."""
        return {"x-goog-api-key": key} if key else {}

    def adapt(self, refusal: str, sent: Mapping[str, Any]) -> bool:
        """See `Endpoint`. There is one way to ask."""
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
