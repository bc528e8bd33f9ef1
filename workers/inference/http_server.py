"""The policy for other agents and tools: an HTTP endpoint as OpenAI's, in front of an inference server.

    client ──► one thread per connection ──► InferenceServer.complete: the queue that workers share

There are at most `MAX_CONNECTIONS` threads, and `MAX_PER_ADDRESS` for one address; further connections are
closed. A request's head has one deadline and its body another, however slowly the bytes come. Whatever can be
refused by the head is refused before the body is read. Without a key it listens on the loopback interface
only.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import ipaddress
import json
import logging
import re
import socket
import threading
import time
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from distrl.core.errors import ConfigError, NetworkError, ProtocolError
from distrl.core.messages import RejectCode
from distrl.core.types import Completion
from distrl.workers.inference.openai_api import (
    ApiError,
    read_request,
    write_completion,
    write_logprob,
    write_models,
)
from distrl.workers.inference.server import InferenceServer

MAX_CONNECTIONS = 128
MAX_PER_ADDRESS = 64
MAX_BODY_BYTES = 64 * 2**20
HEAD_S = 15.0  # from the end of the request before, or the connection, to the end of the headers
BODY_S = 60.0
REPLY_S = 60.0  # for the client to read the answer
LINGER_S = 1.0  # what a refused client still sends is read for so long: closing at once could lose the answer
COMPLETE_S = 300.0
KEY_VARIABLE = "DISTRL_API_KEY"
_STATUS = {RejectCode.BUSY.value: 429, RejectCode.NOT_READY.value: 503, RejectCode.INTERNAL.value: 500}
_log = logging.getLogger(__name__)


class HttpEndpoint:
    """Serves until `close`.

    Args:
        server: Completes the chats.
        address: "PORT" or "HOST:PORT"; without a host the loopback interface, port 0 picks a free one.
        model: The id under which clients ask for the policy.
        max_tokens: The bound of completions where a request has none.
        key: What clients must send as a bearer token, None for nothing.

    Raises:
        ConfigError: The address is none, or not local and without a key.
        NetworkError: It is in use.
    """

    def __init__(
        self, server: InferenceServer, address: str, model: str, max_tokens: int, key: str | None = None
    ) -> None:
        host, port = check_address(address, key)
        self.server, self.model, self.max_tokens, self.key = server, model, max_tokens, key
        self.is_local = _is_local(host)
        try:
            self._http = _Server((host, port), self)
        except (OSError, OverflowError) as error:
            raise NetworkError(
                f"--http {address} cannot be used: {error}.", "Choose another port."
            ) from error
        self.url = f"http://{host}:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes no more connections; those that are open end with the process."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> HttpEndpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def complete(self, body: bytes) -> dict[str, Any]:
        """Answers one request.

        Raises:
            ApiError: As `read_request`, and when the server refuses it or does not answer in time.
        """
        question = read_request(body, self.model, self.max_tokens)
        try:
            completion = self.server.complete(
                question.messages, question.images, question.sampling, COMPLETE_S
            )
        except ProtocolError as error:
            raise ApiError(_STATUS.get(error.code, 400), str(error)) from error
        except TimeoutError as error:
            raise ApiError(504, f"No completion within {COMPLETE_S:g} s.") from error
        request_id, created = uuid.uuid4().hex, int(time.time())
        is_ended = bool(completion.token_ids) and completion.token_ids[-1] in self.server.end_ids
        return write_completion(
            completion,
            self.model,
            request_id,
            created,
            is_ended,
            self._logprobs(completion) if question.has_logprobs else None,
        )

    def _logprobs(self, completion: Completion) -> list[dict[str, Any]]:
        return [
            write_logprob(self.server.token_text(token), self.server.token_bytes(token), logprob)
            for token, logprob in zip(completion.token_ids, completion.logprobs, strict=True)
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], endpoint: HttpEndpoint) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()  # connections by address
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, or closes it if there are too many."""
        host = client_address[0]
        with self._lock:
            is_full = self._open.total() >= MAX_CONNECTIONS or self._open[host] >= MAX_PER_ADDRESS
            if not is_full:
                self._open[host] += 1
        if is_full:
            _log.warning("HTTP connection from %s refused: too many are open", host)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The connection's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open -= Counter({client_address[0]: 1})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to print."""
        _log.debug("an HTTP connection ended with an error", exc_info=True)


class _Timed(io.RawIOBase):
    """Reads from a connection until `deadline`, of the monotonic clock: then it raises TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.deadline = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the client was too slow")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "distrl", ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._raw = _Timed(self.connection)
        self.rfile: io.BufferedReader = io.BufferedReader(self._raw)

    def handle_one_request(self) -> None:
        """Handles a request; a head that is not complete in time ends the connection."""
        self._raw.deadline = time.monotonic() + HEAD_S
        super().handle_one_request()

    def handle_expect_100(self) -> bool:
        """Nothing yet: `_read_body` asks for the body when the head has been accepted."""
        return True

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, act: Any) -> None:
        try:
            self._check_head()
            status, body = 200, act()
        except ApiError as error:
            status, body = error.status, error.body()
        except OSError:  # the client is gone
            self.close_connection = True
            return
        except Exception:  # noqa: BLE001 - one request's failure ends nobody else's
            _log.exception("an HTTP request failed")
            status, body = 500, ApiError(500, "The server failed at it, see its log.").body()
        data = json.dumps(body).encode()
        self.connection.settimeout(REPLY_S)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        if self.close_connection:
            self._linger()

    def _linger(self) -> None:
        self._raw.deadline = time.monotonic() + LINGER_S
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(65536):
                pass

    def _check_head(self) -> None:
        """Refuses a request by its head. Its body stays unread, so the connection ends unless all is well.

        Raises:
            ApiError: The host is another's, the key is wrong, or the body's length is not clear.
        """
        is_kept, self.close_connection = not self.close_connection, True
        hosts, key = self.headers.get_all("Host", []), self.server.endpoint.key
        # A web page whose name was made to mean this machine could ask otherwise (DNS rebinding).
        if self.server.endpoint.is_local and not (len(hosts) == 1 and _is_local(_host_of(hosts[0]))):
            raise ApiError(403, "The Host header must name this machine: 127.0.0.1, localhost or [::1].")
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if key is not None and not hmac.compare_digest(sent.encode(), key.encode()):
            raise ApiError(401, "The API key is missing or wrong; send it as `Authorization: Bearer KEY`.")
        if self.headers.defects:  # where a line is no header, the parser ignores those after it
            raise ApiError(400, "The request's head has a line that is not a header.")
        if "Transfer-Encoding" in self.headers:
            raise ApiError(411, "Transfer-Encoding is not supported; send the body's Content-Length instead.")
        if len(lengths := self.headers.get_all("Content-Length", [])) > 1:
            raise ApiError(400, "There is more than one Content-Length.")
        if self.command == "GET" and lengths not in ([], ["0"]):
            raise ApiError(400, "A GET request has no body.")
        self.close_connection = not is_kept

    def _get(self) -> Any:
        endpoint = self.server.endpoint
        version = endpoint.server.weight_version
        if self.path == "/v1/models":
            return write_models(endpoint.model, version)
        if self.path == "/health":
            if version < 0:
                raise ApiError(503, "No weights have arrived yet.")
            return {"status": "ok", "weight_version": version}
        raise self._no_such_path()

    def _post(self) -> Any:
        is_kept, self.close_connection = not self.close_connection, True  # unless the body is read
        if self.path != "/v1/chat/completions":
            raise self._no_such_path()
        # Also keeps web pages of other origins from posting without being asked.
        if self.headers.get_content_type() != "application/json":
            raise ApiError(415, "The body must be JSON: send Content-Type: application/json.")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,12}", length) or int(length) > MAX_BODY_BYTES:
            raise ApiError(413, f"The body must say its length and have at most {MAX_BODY_BYTES} bytes.")
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        self._raw.deadline = time.monotonic() + BODY_S
        body = self.rfile.read(int(length))
        self.close_connection = not is_kept
        return self.server.endpoint.complete(body)

    def _no_such_path(self) -> ApiError:
        return ApiError(
            404, f"There is no {self.path[:100]}; there are /v1/models, /v1/chat/completions and /health."
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Requests go to the debug log."""
        _log.debug(format, *args)


def check_address(address: str, key: str | None) -> tuple[str, int]:
    """Host and port of "PORT" or "HOST:PORT".

    Raises:
        ConfigError: It is neither, or other machines could reach it and need no key.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in address and not host):
        raise ConfigError(f"--http {address!r} is no address.", "Give PORT or HOST:PORT, e.g. 8000.")
    if key is None and host and not _is_local(host):
        raise ConfigError(
            f"--http {address} can be reached from other machines, and anybody there could use the policy.",
            f"Set the environment variable {KEY_VARIABLE}, or listen on 127.0.0.1.",
        )
    return host or "127.0.0.1", int(port)


def _host_of(header: str) -> str:
    """The host of a Host header, without its port."""
    return re.sub(r":[0-9]*$", "", header).strip("[]").lower()


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
