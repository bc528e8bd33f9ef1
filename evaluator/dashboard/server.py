"""The dashboard's HTTP server: a page, its data as JSON, and events while a browser looks.

    browser ──► one thread per connection (bounded) ──► Dashboard

The standard library does HTTP. Every text of a run leaves as JSON, every picture with a fixed type; the page
loads nothing from elsewhere. On the loopback interface no token is needed, and the Host header must name it;
beyond it a token and TLS are required.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import mimetypes
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import Field, ValidationError

from distrl.core.errors import ConfigError, DistrlError, NetworkError, NotStored
from distrl.core.http_address import is_loopback, names_loopback, split_address
from distrl.core.messages import Name
from distrl.core.slot_view import Hand
from distrl.core.types import Record
from distrl.core.user_errors import first_problem
from distrl.evaluator.dashboard.dashboard import Dashboard
from distrl.evaluator.dashboard.index import Selection

MAX_CONNECTIONS = 64
"""Open at a time; others are refused."""
REQUEST_S = 15.0
"""How long a client may be silent within a request, or between two."""
MAX_BODY_BYTES = 4096
TOKEN_VARIABLE = "DISTRL_DASHBOARD_TOKEN"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
JSON = "application/json; charset=utf-8"
_log = logging.getLogger(__name__)


def check_address(address: str, token: str | None, certificate: Path | None) -> tuple[str, int]:
    """Host and port of "PORT" or "HOST:PORT". Raises ConfigError, also if other machines could look in."""
    host, port = split_address("--http", address, 8800)
    if not is_loopback(host) and (token is None or certificate is None):
        raise ConfigError(
            f"--http {address} can be reached from other machines, and shows the devices' screens.",
            f"Set {TOKEN_VARIABLE} and --certificate, or listen on 127.0.0.1 and use an ssh tunnel.",
        )
    return host, port


class DashboardServer(ThreadingHTTPServer):
    """Serves `dashboard` until `close`.

    Args:
        address: "PORT" or "HOST:PORT"; without a host the loopback interface, port 0 picks a free one.
        token: What browsers must know; None for nothing.
        certificate: A PEM file with certificate and key, for TLS.

    Raises:
        ConfigError: The address can be reached from other machines, and token or certificate is missing.
        NetworkError: The address is in use.
    """

    daemon_threads, block_on_close, request_queue_size = True, False, 64

    def __init__(
        self, dashboard: Dashboard, address: str, token: str | None = None, certificate: Path | None = None
    ) -> None:
        host, port = check_address(address, token, certificate)
        self.dashboard, self.token, self.is_local = dashboard, token, is_loopback(host)
        self.stopping = threading.Event()
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            if certificate is not None:
                context.load_cert_chain(certificate)
        except OSError as error:
            said = f"--certificate {certificate} cannot be used: {error}."
            raise ConfigError(said, "Use a PEM file with certificate and key.") from error
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise NetworkError(f"--http {address} cannot be used: {error}.", "Use another port.") from error
        if certificate is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        port = self.server_address[1]
        self.url = f"http{'s' if certificate is not None else ''}://{host}:{port}/"
        # The cookie proves the token without being it.
        proof = hmac.new((token or "").encode(), b"distrl dashboard", hashlib.sha256).hexdigest()
        self.cookie = f"distrl-{port}={proof}"
        threading.Thread(target=self.serve_forever, args=(0.2,), name="http", daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            _log.warning("a connection is refused: %d are open", MAX_CONNECTIONS)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers leave at any moment, and scanners send anything."""
        _log.debug("a connection ended with an error", exc_info=True)


class _Refused(Exception):
    """A request that is answered by a status and a line, its arguments."""


class HeatMap(Record):
    """The query of a heat map."""

    bins: Annotated[int, Field(ge=1, le=200)] = 24


class Look(Record):
    """The query of a stream of events: whether the wall is looked at, and the slot that is followed."""

    wall: bool = False
    follow: Name | None = None


_Query = TypeVar("_Query", bound=Record)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "distrl", ""
    timeout = REQUEST_S
    server: DashboardServer

    def log_message(self, format: str, *args: object) -> None:
        """No access log."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, answer: Callable[[], None]) -> None:
        try:
            if self.server.is_local and not names_loopback(self.headers.get("Host", "")):
                raise _Refused(403, "The Host header must name this machine: 127.0.0.1, localhost or [::1].")
            answer()
        except _Refused as error:
            self._refuse(*error.args)
        except NotStored as error:
            self._refuse(404, str(error))
        except DistrlError as error:
            self._refuse(503, str(error))
        except (ConnectionError, TimeoutError, ssl.SSLError):
            self.close_connection = True
        except Exception:  # noqa: BLE001 - logged; the other requests go on
            _log.exception("a request failed")
            self._refuse(500, "The server failed; see its log.")

    def _refuse(self, status: int, text: str) -> None:
        with contextlib.suppress(OSError):
            self._send(status, JSON, _encoded({"error": text}), {"Connection": "close"})

    # ---- requests ----

    def _get(self) -> None:
        match [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]:
            case [""]:
                self._static("index.html")
            case ["static", name]:
                self._static(name)
            case ["login"]:
                self._login()
            case ["api", *path]:
                self._check_token()
                self._api(path)
            case _:
                raise _Refused(404, "There is no such page.")

    def _api(self, path: list[str]) -> None:
        dashboard = self.server.dashboard
        match path:
            case ["snapshot"]:
                self._json(dashboard.snapshot())
            case ["metrics"]:
                self._json(dashboard.metrics())
            case ["heatmap"]:
                self._json(dashboard.index.heatmap(self._query(HeatMap).bins))
            case ["episodes"]:
                self._json(dashboard.index.select(self._query(Selection)))
            case ["episode", name]:
                self._json(dashboard.episode(name))
            case ["image", digest]:
                data = dashboard.image(digest, self._asked().get("episode", ""))
                kind = "image/png" if data.startswith(b"\x89PNG\r\n") else "image/jpeg"
                self._send(200, kind, data, {"Cache-Control": "private, max-age=86400, immutable"})
            case ["screen", worker, slot]:
                self._send(200, "image/jpeg", dashboard.picture(f"{worker}/{slot}"))
            case ["postmortem", name, file]:
                data = dashboard.files.postmortem(name, file)
                self._send(200, "application/octet-stream", data, {"Content-Disposition": "attachment"})
            case ["events"]:
                self._events(self._query(Look))
            case _:
                raise _Refused(404, "There is no such data.")

    def _query(self, kind: type[_Query]) -> _Query:
        try:
            return kind.model_validate(self._asked())
        except ValidationError as error:
            raise _Refused(400, f"{first_problem(error)}.") from error

    def _asked(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def _post(self) -> None:
        """The owner's actions. A request of another page has its Origin."""
        self._check_token()
        if self.server.token is None:
            raise _Refused(403, f"Actions are off. Start the dashboard with {TOKEN_VARIABLE} set.")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise _Refused(403, "Requests from other pages are refused.")
        body = self.rfile.read(min(MAX_BODY_BYTES, int(self.headers.get("Content-Length", 0))))
        action, hand = urlsplit(self.path).path.removeprefix("/api/"), None
        if action in ("play", "leave"):
            try:
                hand = Hand.model_validate_json(body)
            except ValidationError as error:
                raise _Refused(400, f"The body is no slot and action: {first_problem(error)}.") from error
        elif action not in ("pause", "resume", "checkpoint"):
            raise _Refused(404, "There is no such action.")
        self.server.dashboard.command(action, hand)
        self._send(200, JSON, _encoded({"ok": True}), {"Connection": "close"})  # more of a body is not read

    def _events(self, look: Look) -> None:
        """Sends a snapshot each second, until the browser leaves. A browser that does not read is dropped."""
        dashboard = self.server.dashboard
        self._head(200, "text/event-stream", {"Connection": "close"})
        with dashboard.viewing("pictures" if look.wall else "status", look.follow or ""):
            while not self.server.stopping.is_set():
                self.wfile.write(b"data: " + _encoded(dashboard.snapshot()) + b"\n\n")
                self.wfile.flush()
                self.server.stopping.wait(dashboard.every_s)

    # ---- the token ----

    def _check_token(self) -> None:
        token = self.server.token
        if token is None:
            return
        cookies = (part.strip() for part in self.headers.get("Cookie", "").split(";"))
        is_known = any(_same(cookie, self.server.cookie) for cookie in cookies)
        if not is_known and not _same(self.headers.get("Authorization", "").removeprefix("Bearer "), token):
            raise _Refused(401, "The token is missing or wrong: open /login?token=TOKEN.")

    def _login(self) -> None:
        if self.server.token is None:
            raise _Refused(404, "This dashboard needs no token.")
        if not _same(self._asked().get("token", ""), self.server.token):
            time.sleep(0.5)
            raise _Refused(401, "The token is wrong.")
        secure = "" if self.server.is_local else "; Secure"
        cookie = f"{self.server.cookie}; HttpOnly; SameSite=Strict; Path=/{secure}"
        self._send(303, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})

    # ---- answers ----

    def _static(self, name: str) -> None:
        folder = files("distrl.evaluator.dashboard") / "static"
        file = {one.name: one for one in folder.iterdir()}.get(name)
        if file is None:
            raise _Refused(404, "There is no such file.")
        self._send(200, f"{mimetypes.guess_type(name)[0]}; charset=utf-8", file.read_bytes())

    def _json(self, value: object) -> None:
        self._send(200, JSON, _encoded(value))

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self._head(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _head(self, status: int, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()


def _same(sent: str, known: str) -> bool:
    return hmac.compare_digest(sent.encode(), known.encode())


def _encoded(value: object) -> bytes:
    """JSON without line ends."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
