"""POST of JSON over HTTP, with a deadline for the whole reply and errors that say whether to try again."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

MAX_REPLY_BYTES = 4 * 2**20
CHUNK_BYTES = 2**16
GARBLED = 200
"""The status of a reply that came and cannot be read."""


class PostFailed(Exception):
    """No reply that can be read came.

    Attributes:
        status: The HTTP status; 0 where there was no connection, or it broke off or took too long;
            `GARBLED` for a reply that is no JSON.
        detail: What the endpoint says, or what went wrong.
        retry_after_s: Seconds that the endpoint asks to be left alone; None if it says nothing.
    """

    def __init__(self, status: int, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after_s = status, detail, retry_after_s

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later: no connection, a busy or failing server, garbage."""
        return self.status in (0, GARBLED, 408, 409, 425, 429) or self.status >= 500


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to somebody else."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Never."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def post_json(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, secret: str = "") -> Any:
    """Sends JSON and returns the JSON that comes back.

    Args:
        url: http:// or https://; redirects are not followed.
        body: The request.
        headers: Besides Content-Type.
        timeout_s: For connecting, and for the whole reply.
        secret: A key that no error may show.

    Raises:
        PostFailed: Anything else came, or nothing.
    """
    request = urllib.request.Request(
        url, body, {"Content-Type": "application/json", **headers}, method="POST"
    )
    deadline = time.monotonic() + timeout_s
    try:
        with _OPENER.open(request, timeout=timeout_s) as reply:
            data = _read(reply, deadline)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error, secret, deadline) from None
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        raise PostFailed(0, f"{url} does not answer: {getattr(error, 'reason', error)}.") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # the second: brackets without end
        said = _without(secret, data.decode("utf-8", "replace"))
        raise PostFailed(GARBLED, f"the reply is no JSON: {short(said)!r}.") from None


def retry_after(value: str | None) -> float | None:
    """Seconds that the header Retry-After asks for: a number of them, or a date; None if it says nothing."""
    if value is None:
        return None
    if value.strip().isdecimal() and value.isascii():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def short(text: str) -> str:
    """The beginning of `text` on one line, for an error."""
    return " ".join(text.split())[:200]


def _without(secret: str, text: str) -> str:
    return text.replace(secret, "***") if secret else text


def _read(reply: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole reply.

    Raises:
        OSError: It drips too slowly, or broke off.
        PostFailed: It is too long.
    """
    data = bytearray()
    while chunk := reply.read1(CHUNK_BYTES):
        data += chunk
        if len(data) > MAX_REPLY_BYTES:
            raise PostFailed(GARBLED, f"the reply has more than {MAX_REPLY_BYTES} bytes.")
        if time.monotonic() > deadline:
            raise TimeoutError("the reply takes too long")
    if reply.length:  # what read1 does not tell
        raise ConnectionError("the reply broke off")
    return bytes(data)


def _refusal(error: urllib.error.HTTPError, secret: str, deadline: float) -> PostFailed:
    """What an HTTP status means."""
    data = bytearray()
    with contextlib.suppress(OSError, http.client.HTTPException):  # the status alone tells enough
        while len(data) < CHUNK_BYTES and time.monotonic() < deadline and (part := error.read1(CHUNK_BYTES)):
            data += part
    said = _without(secret, data.decode("utf-8", "replace"))
    detail = f"{error.url} answers {error.code}: {short(said) or error.reason}."
    return PostFailed(error.code, detail, retry_after(error.headers.get("Retry-After")))
