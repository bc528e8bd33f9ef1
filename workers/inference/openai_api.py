"""Chats in the form of OpenAI's chat completions, read and written: `/v1/chat/completions`, `/v1/models`.

What cannot be honoured is refused by name, never ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrl.core.types import (
    ChatMessage,
    Completion,
    ImagePart,
    Part,
    Sampling,
    TextPart,
    image_digest,
)

MAX_TOKENS = 4096
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)


class ApiError(Exception):
    """A request that gets an error instead of a completion.

    Args:
        status: The HTTP status.
        message: What rule was broken, by which value, and what to do.
        param: The part of the request that is at fault.
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param

    def body(self) -> dict[str, Any]:
        """What the client gets."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": None}}


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


class ChatRequest(_Base):
    """The body of a request. `top_k` is an addition; those of one value only are what all clients send."""

    model: str
    messages: Annotated[list[_Message], Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0.0, le=10.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    n: Literal[1] | None = None
    stream: Literal[False] | None = None
    user: str | None = None


@dataclass(frozen=True)
class Question:
    """A request as engines take it.

    Attributes:
        messages: The chat.
        images: Encoded bytes by digest.
        sampling: How the completion is drawn.
        has_logprobs: Whether the client wants log-probabilities.
    """

    messages: tuple[ChatMessage, ...]
    images: dict[str, bytes]
    sampling: Sampling
    has_logprobs: bool


def read_request(body: bytes, model: str, default_max_tokens: int) -> Question:
    """Parses a request.

    Args:
        body: JSON.
        model: The id of the only model that is served.
        default_max_tokens: Where the request has no bound of its own.

    Raises:
        ApiError: It is no request, asks for another model, or for what there is not.
    """
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from error
    if request.model != model:
        raise ApiError(404, f"The model {request.model!r} is not served here; ask for {model!r}.", "model")
    images: dict[str, bytes] = {}
    messages = tuple(_message(message, images) for message in request.messages)
    sampling = Sampling(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=request.top_p or 1.0,
        top_k=request.top_k or 0,
        max_new_tokens=request.max_completion_tokens or request.max_tokens or default_max_tokens,
    )
    return Question(messages, images, sampling, bool(request.logprobs))


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"]) or None
    if param == "stream":
        return ApiError(400, "Streaming is not supported; leave `stream` out or set it to false.", param)
    if first["type"] == "extra_forbidden":
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
    except binascii.Error as error:
        raise ApiError(400, f"An image's data: URL is no base64: {error}.", "messages") from error


def write_completion(
    completion: Completion,
    model: str,
    request_id: str,
    created: int,
    is_ended: bool,
    logprobs: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """The answer to a request. `weight_version` and `system_fingerprint` say which weights it is from.

    Args:
        completion: What the policy answered.
        model: The model's id.
        request_id: The answer's id.
        created: Unix time, seconds.
        is_ended: Whether its last token is one that ends completions; else it had no more tokens.
        logprobs: Of each token what `write_logprob` gives; None where they were not asked for.
    """
    version = completion.weight_versions[0] if completion.weight_versions else -1
    num_prompt, num_answer = len(completion.prompt_token_ids), len(completion.token_ids)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": completion.text, "refusal": None},
        "logprobs": None if logprobs is None else {"content": list(logprobs), "refusal": None},
        "finish_reason": "stop" if is_ended else "length",
    }
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_answer,
            "total_tokens": num_prompt + num_answer,
        },
        "system_fingerprint": f"weights-{version}",
        "weight_version": version,
    }


def write_logprob(text: str, data: bytes | None, logprob: float) -> dict[str, Any]:
    """What is told of one token.

    Args:
        text: Its text; of a part of a character U+FFFD.
        data: Its bytes, None if they are not known.
        logprob: Of the distribution that it was sampled from.
    """
    known = None if data is None else list(data)
    return {"token": text, "logprob": logprob, "bytes": known, "top_logprobs": []}


def write_models(model: str, version: int) -> Mapping[str, Any]:
    """The list of the one model that is served."""
    entry = {"id": model, "object": "model", "created": 0, "owned_by": "distrl", "weight_version": version}
    return {"object": "list", "data": [entry]}
