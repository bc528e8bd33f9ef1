"""The policy for other agents and tools: an HTTP endpoint like OpenAI's, in front of an inference server.

    client ──► uvicorn's event loop (one thread) ──► a worker thread per request ──► InferenceServer.complete

Starlette and uvicorn do HTTP. What they leave open is bounded here: connections, in all and per address, and
the time that a request's head and body may take, however slowly the bytes arrive. A request is refused by its
head before its body is read. Without a key the endpoint listens on the loopback interface only.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from distrl.core.errors import ProtocolError
from distrl.core.http_address import is_loopback, listen, names_loopback
from distrl.core.messages import RejectCode
from distrl.workers.inference.openai_api import Answer, ApiError, read_request
from distrl.workers.inference.server import InferenceServer

MAX_CONNECTIONS = 128
MAX_PER_ADDRESS = 64
MAX_BODY_BYTES = 64 * 2**20
HEAD_S = 15.0  # from the end of the previous request, or the connection, to the end of the headers
BODY_S = 60.0
LINGER_S = 1.0  # after a refusal; closing while the client still sends could lose the answer
COMPLETE_S = 300.0
JOIN_S = 5.0
_STATUS = {RejectCode.BUSY.value: 429, RejectCode.NOT_READY.value: 503, RejectCode.INTERNAL.value: 500}
_log = logging.getLogger(__name__)


class HttpEndpoint:
    """Serves until `close`.

    Args:
        address: "PORT" or "HOST:PORT"; without a host the loopback interface, port 0 picks a free one.
        model: The id under which clients ask for the policy.
        max_tokens: The bound of completions where a request has none.
        key: What clients must send as a bearer token, None for nothing.
        checkpoint: Which checkpoint is served, None beside a learner.
    """

    def __init__(
        self,
        server: InferenceServer,
        address: str,
        model: str,
        max_tokens: int,
        key: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        host, listener = listen("--http", address, key)
        self.server, self.model, self.max_tokens = server, model, max_tokens
        self._key, self._checkpoint, self._is_local = key, checkpoint, is_loopback(host)
        self._limiter = anyio.CapacityLimiter(MAX_CONNECTIONS)
        self.url = f"http://{host}:{listener.getsockname()[1]}/v1"
        routes = [
            Route("/health", self._checked(self._health, needs_key=False)),
            Route("/v1/models", self._checked(self._models)),
            Route("/v1/models/{model:path}", self._checked(self._one_model)),
            Route("/v1/chat/completions", self._checked(self._complete), methods=["POST"]),
            Route("/{path:path}", self._checked(self._nothing), methods=["GET", "POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            http=_connection_class(),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # what fails here is logged here
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(HEAD_S),
        )
        self._http = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._http.run, args=([listener],), name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.should_exit = self._http.force_exit = True
        self._thread.join(JOIN_S)

    def _checked(self, answer: Callable[[Request], Any], needs_key: bool = True) -> Callable[[Request], Any]:
        """`answer`, called when the request's head is acceptable; errors become OpenAI's error objects."""

        async def handle(request: Request) -> Any:
            try:
                self._check_head(request, needs_key)
                return await answer(request)
            except ApiError as error:
                # What is unread of the body must not be taken for another request.
                return _Refusal(error)
            except ClientDisconnect:
                return Response()
            except Exception:  # noqa: BLE001 - logged; the other requests go on
                _log.exception("an HTTP request failed")
                return _Refusal(ApiError(500, "The server failed; see its log."))

        return handle

    def _check_head(self, request: Request, needs_key: bool) -> None:
        headers = request.headers
        if self._is_local and not names_loopback(headers.get("host", "")):
            raise ApiError(403, "The Host header must name this machine: 127.0.0.1, localhost or [::1].")
        sent = headers.get("authorization", "").removeprefix("Bearer ")
        if needs_key and self._key is not None and not hmac.compare_digest(sent.encode(), self._key.encode()):
            raise ApiError(401, "The API key is missing or wrong; send it as `Authorization: Bearer KEY`.")
        if "transfer-encoding" in headers:
            raise ApiError(411, "Transfer-Encoding is not supported; send the body's Content-Length instead.")
        if request.method != "POST" and headers.get("content-length", "0") != "0":
            raise ApiError(400, "A GET request has no body.")

    async def _health(self, request: Request) -> Response:
        version = self.server.engine.version
        if version < 0:
            raise ApiError(503, "No weights have arrived yet.")
        return JSONResponse({"status": "ok", "weight_version": version})

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def _one_model(self, request: Request) -> Response:
        if request.path_params["model"] != self.model:
            raise _no_model(request.path_params["model"], self.model)
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        about = {"weight_version": self.server.engine.version, "checkpoint": self._checkpoint}
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "distrl", **about}

    async def _nothing(self, request: Request) -> Response:
        raise ApiError(
            404,
            f"{request.method} {request.url.path[:100]!r} does not exist; use POST /v1/chat/completions, "
            "GET /v1/models or GET /health.",
        )

    async def _complete(self, request: Request) -> Response:
        # Also keeps web pages of other origins from posting without a preflight request.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "The body must be JSON: send Content-Type: application/json.")
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise ApiError(413, f"Send the body's Content-Length, at most {MAX_BODY_BYTES} bytes.")
        body = await request.body()
        answer = await anyio.to_thread.run_sync(self._answer, body, limiter=self._limiter)
        if not answer.request.stream:
            return JSONResponse(answer.whole())
        events = (f"data: {json.dumps(one)}\n\n" for one in answer.chunks())
        return StreamingResponse(iter([*events, "data: [DONE]\n\n"]), media_type="text/event-stream")

    def _answer(self, body: bytes) -> Answer:
        request = read_request(body)
        if request.model != self.model:
            raise _no_model(request.model, self.model)
        messages, images = request.chat()
        try:
            completion = self.server.complete(messages, images, request.sampling(self.max_tokens), COMPLETE_S)
        except ProtocolError as error:
            raise ApiError(_STATUS.get(error.code, 400), str(error)) from error
        except TimeoutError as error:
            raise ApiError(504, f"No completion within {COMPLETE_S:g} s.") from error
        policy = self.server.engine.policy
        return Answer(request, completion, policy, uuid.uuid4().hex, int(time.time()))


class _Refusal:
    """An error, after which the connection ends."""

    def __init__(self, error: ApiError) -> None:
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the error and reads what the client still sends for a moment, so that it reads the answer."""
        body = json.dumps(self._error.body()).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", str(len(body)).encode()))
        if self._error.status in (429, 503):
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": self._error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        with anyio.move_on_after(LINGER_S):
            while (await receive()).get("more_body"):
                pass
        await send({"type": "http.response.body"})


def _connection_class() -> type[H11Protocol]:
    """uvicorn's connection with the limits of this module; connections are counted per endpoint."""
    open_by_address: Counter[str] = Counter()

    class Connection(H11Protocol):
        """Ends when a head or body takes too long, or when too many connections are open."""

        _timer: asyncio.TimerHandle | None = None
        _timed: object = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            address = self.client[0] if self.client else ""
            open_by_address[address] += 1
            if open_by_address.total() > MAX_CONNECTIONS or open_by_address[address] > MAX_PER_ADDRESS:
                _log.warning("HTTP connection from %s refused: too many are open", address)
                transport.close()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            open_by_address[self.client[0] if self.client else ""] -= 1
            if self._timer is not None:
                self._timer.cancel()

        def handle_events(self) -> None:
            super().handle_events()
            self._watch()

        def _watch(self) -> None:
            """One timer for each head and each body, started when the client begins to owe it."""
            state = self.conn.their_state
            if state is self._timed:
                return
            self._timed = state
            if self._timer is not None:
                self._timer.cancel()
            limit_s = {h11.IDLE: HEAD_S, h11.SEND_BODY: BODY_S}.get(state)
            self._timer = None if limit_s is None else self.loop.call_later(limit_s, self.transport.abort)

    return Connection


def _no_model(asked: str, served: str) -> ApiError:
    return ApiError(404, f"The model {asked[:100]!r} is not served here; ask for {served!r}.", "model")
