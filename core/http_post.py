"""POST of JSON over HTTP, with a deadline for the whole reply and errors that say whether to try again."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import Any

MAX_REPLY_BYTES = 4 * 2**20
CHUNK_BYTES = 2**16
GARBLED = 200
"""The status of a reply that came and cannot be read."""


class PostFailed(Exception):
    """No readable reply arrived.

    Attributes:
        status: The HTTP status; 0 where there was no connection, or it broke off or took too long;
            `GARBLED` for a reply that is not JSON.
        retry_after_s: The endpoint's own pause in seconds, if it names one.
    """

    def __init__(self, status: int, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after_s = status, detail, retry_after_s

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later: no connection, a busy or failing server, garbage."""
        return self.status in (0, GARBLED, 408, 409, 425, 429) or self.status >= 500


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to another server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Never."""


class _Timed(io.RawIOBase):
    """What a socket receives until a deadline: a timeout of its own is for each piece, however small."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._raw: Any = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError("the reply takes too long")
        self._sock.settimeout(left_s)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A reply, headers and all, with a deadline."""

    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock, deadline))


def _with_deadline(kind: type[http.client.HTTPConnection]) -> Any:
    """Makes connections whose timeout, from now on, is for all of the reply."""

    def make(host: str, timeout: float, **options: Any) -> http.client.HTTPConnection:
        connection = kind(host, timeout=timeout, **options)
        connection.response_class = partial(_Response, time.monotonic() + timeout)  # type: ignore[assignment]
        return connection

    return make


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_with_deadline(http.client.HTTPConnection), req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_with_deadline(http.client.HTTPSConnection), req)


_OPENER = urllib.request.build_opener(_NoRedirect, _Http, _Https)


def post_json(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, secret: str = "") -> Any:
    """Sends JSON to http:// or https:// and returns the JSON reply. Redirects are not followed.

    Args:
        timeout_s: For connecting, and from then on for the whole reply.
        secret: A key that no error may show.
    """

    def quoted(text: bytes | bytearray) -> str:
        words = text.decode("utf-8", "replace")
        return " ".join((words.replace(secret, "***") if secret else words).split())[:200]

    every = {"Content-Type": "application/json", **headers}
    try:
        request = urllib.request.Request(url, body, every, method="POST")
        with _OPENER.open(request, timeout=timeout_s) as reply:
            data = _read(reply)
    except urllib.error.HTTPError as error:
        said = bytearray()
        with error, contextlib.suppress(OSError, http.client.HTTPException):  # the status alone is enough
            while len(said) < CHUNK_BYTES and (part := error.read1(CHUNK_BYTES)):
                said += part
        detail = f"{error.url} answers {error.code}: {quoted(said) or error.reason}."
        raise PostFailed(error.code, detail, retry_after(error.headers.get("Retry-After"))) from None
    except (OSError, http.client.HTTPException) as error:
        raise PostFailed(0, f"{url} does not answer: {getattr(error, 'reason', error)}.") from None
    except ValueError:  # whose text may show the key
        raise PostFailed(400, f"{url}: the URL or the key contains invalid characters.") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # the second: brackets without end
        raise PostFailed(GARBLED, f"the reply is not JSON: {quoted(data)!r}.") from None


def retry_after(value: str | None) -> float | None:
    """The header Retry-After in seconds; None without one, or for a date."""
    return float(value) if value is not None and value.isascii() and value.strip().isdecimal() else None


def _read(reply: http.client.HTTPResponse) -> bytes:
    """The whole reply."""
    data = bytearray()
    while chunk := reply.read1(CHUNK_BYTES):
        data += chunk
        if len(data) > MAX_REPLY_BYTES:
            raise PostFailed(GARBLED, f"the reply has more than {MAX_REPLY_BYTES} bytes.")
    if reply.length:  # read1 does not report this
        raise ConnectionError("the reply broke off")
    return bytes(data)
