"""Chats in the form of OpenAI's chat completions, read and written: `/v1/chat/completions`.

A field that is not supported is refused by name, never ignored.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrl.core.types import ChatMessage, Completion, ImagePart, Part, Sampling, TextPart, image_digest
from distrl.workers.inference.engine import MAX_TOKENS

if TYPE_CHECKING:
    from distrl.core.policies.base import Policy

MAX_TOP_LOGPROBS = 20
MAX_COMMAS = 2**15  # of a body; they are between its values, and an invalid value costs 1 KB of errors
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)


class ApiError(Exception):
    """A request that gets an error instead of a completion; `param` is the part of it that is at fault."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": None}}


_Zero = Annotated[float, Field(ge=0.0, le=0.0)]
_Stop = Annotated[str, Field(min_length=1, max_length=200)]


class _Base(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Text(_Base):
    type: Literal["text"]
    text: str


class _Url(_Base):
    url: str
    detail: str | None = None  # pictures are read at the policy's own size


class _Image(_Base):
    type: Literal["image_url"]
    image_url: _Url


class _Message(_Base):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Annotated[_Text | _Image, Field(discriminator="type")]]
    name: str | None = None


class _StreamOptions(_Base):
    include_usage: bool = False


class ChatRequest(_Base):
    """The body of a request. `top_k` is an addition to OpenAI's fields.

    Fields of one value only are what clients send by default; other values of them are refused.
    """

    model: str
    messages: Annotated[list[_Message], Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    seed: int | None = None  # batches depend on timing, so nothing can promise the same answer again
    user: str | None = None
    n: Literal[1] | None = None
    presence_penalty: _Zero | None = None
    frequency_penalty: _Zero | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    response_format: dict[Literal["type"], Literal["text"]] | None = None

    @property
    def stops(self) -> list[str]:
        """The texts before which the answer ends."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def sampling(self, default_max_tokens: int) -> Sampling:
        """How the completion is drawn; with at most `default_max_tokens` if the request has no limit."""
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p or 1.0,
            top_k=self.top_k or 0,
            max_new_tokens=self.max_completion_tokens or self.max_tokens or default_max_tokens,
            top_logprobs=self.top_logprobs or 0,
        )

    def chat(self) -> tuple[list[ChatMessage], dict[str, bytes]]:
        """The messages, and the encoded images that they show, by digest. Raises ApiError."""
        images: dict[str, bytes] = {}
        return [_message(message, images) for message in self.messages], images


def read_request(body: bytes) -> ChatRequest:
    """Parses the JSON of a request. Raises ApiError if it is invalid or asks for something unsupported."""
    if (commas := body.count(b",")) > MAX_COMMAS:
        raise ApiError(413, f"The body has {commas:,} commas; the limit is {MAX_COMMAS:,}. Send less text.")
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from error
    if request.top_logprobs and not request.logprobs:
        raise ApiError(400, "`top_logprobs` needs `logprobs: true`.", "top_logprobs")
    return request


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"]) or None
    is_unwanted = first["type"] == "too_long" and first["ctx"]["max_length"] == 0
    if first["type"] == "extra_forbidden" or is_unwanted:
        return ApiError(400, f"`{param}` is not supported; leave it out.", param)
    return ApiError(400, f"{param or 'The body'}: {first['msg']}."[:500], param)


def _message(message: _Message, images: dict[str, bytes]) -> ChatMessage:
    role = "system" if message.role == "developer" else message.role
    if isinstance(message.content, str):
        return ChatMessage(role=role, parts=(TextPart(text=message.content),))
    parts: list[Part] = []
    for part in message.content:
        if isinstance(part, _Text):
            parts.append(TextPart(text=part.text))
        else:
            data = _image_bytes(part.image_url.url)
            digest = image_digest(data)
            images[digest] = data
            parts.append(ImagePart(digest=digest))
    return ChatMessage(role=role, parts=tuple(parts))


def _image_bytes(url: str) -> bytes:
    found = _DATA_URL.match(url)
    if found is None:
        raise ApiError(
            400,
            "Images must be data: URLs, data:image/png;base64,…; nothing is fetched from elsewhere.",
            "messages",
        )
    try:
        return base64.b64decode(url[found.end() :], validate=True)
    except ValueError as error:
        raise ApiError(400, f"An image's data: URL is not valid base64: {error}.", "messages") from error


class Answer:
    """A completion as clients read it; `weight_version` and `system_fingerprint` name the weights."""

    def __init__(
        self, request: ChatRequest, completion: Completion, policy: Policy, request_id: str, created: int
    ) -> None:
        self.request, self._completion, self._policy = request, completion, policy
        version = completion.weight_versions[0] if completion.weight_versions else -1
        self._head = {
            "id": f"chatcmpl-{request_id}",
            "created": created,
            "model": request.model,
            "system_fingerprint": f"weights-{version}",
            "weight_version": version,
        }
        ids, text = completion.token_ids, completion.text
        places = [place for stop in request.stops if (place := text.find(stop)) >= 0]
        self._text = text[: min(places)] if places else text
        self._length = self._length_to_stop() if places else len(ids)
        is_ended = bool(places) or (bool(ids) and ids[-1] in policy.end_ids)
        self._reason = "stop" if is_ended else "length"

    def _length_to_stop(self) -> int:
        """How many tokens the first stop text took; all of them if it only shows in the whole text."""
        ids = self._completion.token_ids
        for length in range(1, len(ids)):
            text = self._policy.text(ids[:length], self._completion.prompt_token_ids)
            if any(stop in text for stop in self.request.stops):
                return length
        return len(ids)

    def whole(self) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": self._text, "refusal": None},
            "logprobs": self._logprobs(),
            "finish_reason": self._reason,
        }
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage()}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as events: engines answer in batches, so all of the text is in the first."""
        head = {**self._head, "object": "chat.completion.chunk"}
        delta = {"role": "assistant", "content": self._text}
        first = {"index": 0, "delta": delta, "logprobs": self._logprobs(), "finish_reason": None}
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self._reason}
        yield {**head, "choices": [first]}
        yield {**head, "choices": [last]}
        options = self.request.stream_options
        if options is not None and options.include_usage:
            yield {**head, "choices": [], "usage": self._usage()}

    def _usage(self) -> dict[str, int]:
        num_prompt = len(self._completion.prompt_token_ids)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": self._length,
            "total_tokens": num_prompt + self._length,
        }

    def _logprobs(self) -> dict[str, Any] | None:
        if not self.request.logprobs:
            return None
        completion, content = self._completion, []
        tops = completion.top_logprobs or ((),) * len(completion.token_ids)
        for token, logprob, top in zip(completion.token_ids, completion.logprobs, tops, strict=True):
            others = [self._token(other, value) for other, value in top]
            content.append({**self._token(token, logprob), "top_logprobs": others})
        return {"content": content[: self._length], "refusal": None}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        """A token's text and log-probability; U+FFFD without bytes for a part of a character."""
        text = self._policy.text([token_id], self._completion.prompt_token_ids)
        data = None if "\ufffd" in text else list(text.encode())
        return {"token": text, "logprob": logprob, "bytes": data}
