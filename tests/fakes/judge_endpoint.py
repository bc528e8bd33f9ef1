"""A judge's endpoint on loopback that does as it is told: hangs, refuses, answers nonsense, or answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

DRIP_S, DRIPS = 3.0, 60


@dataclass
class Reply:
    """What to answer. With `hangs` nothing comes until the endpoint is closed; with `drips` the headers, or
    those and the body, come a byte at a time for `DRIP_S` before the rest does."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    cut: bool = False
    drips: Literal["", "headers", "body"] = ""


def says(text: str, input_tokens: int = 1000) -> Reply:
    """A chat completion with this text."""
    usage = {"prompt_tokens": input_tokens, "completion_tokens": 20}
    return Reply(body=json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}))


def status(success: bool) -> Reply:
    """A chat completion that says so."""
    return says(f"I see it.\nStatus: {'success' if success else 'failure'}")


class JudgeEndpoint:
    """Gives its replies in order, the last one for ever.

    Attributes:
        answer: Makes the reply to a parsed body, in place of `replies`.
        requests: (path, headers, parsed body) of each request.
    """

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.answer: Callable[[Any], Reply] | None = None
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                world._answer(self, data)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def _answer(self, handler: BaseHTTPRequestHandler, data: bytes) -> None:
        with self._lock:
            self.requests.append((handler.path, dict(handler.headers), json.loads(data)))
            if self.answer is not None:
                reply = self.answer(self.requests[-1][2])
            else:
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply.hangs:
            self.closing.wait(60.0)
            return
        body = reply.body.encode()
        if reply.drips == "headers":
            self._drip(handler, b"HTTP/1.1 100 " + b"C" * DRIPS + b"\r\n\r\n")
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(2 * len(body) + 1 if reply.cut else len(body)))
        handler.end_headers()
        if reply.drips == "body":
            self._drip(handler, body[:DRIPS])
            body = body[DRIPS:]
        handler.wfile.write(body)

    def _drip(self, handler: BaseHTTPRequestHandler, data: bytes) -> None:
        for byte in data:
            handler.wfile.write(bytes([byte]))
            self.closing.wait(DRIP_S / DRIPS)

    def __enter__(self) -> JudgeEndpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
