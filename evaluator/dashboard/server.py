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
import http.cookies
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import ValidationError

from distrl.core.errors import ConfigError, DistrlError, NetworkError, NotStored
from distrl.core.http_address import is_loopback, names_loopback, split_address
from distrl.core.slot_view import Hand
from distrl.core.user_errors import first_problem
from distrl.evaluator.dashboard.dashboard import Dashboard
from distrl.evaluator.dashboard.index import Selection

MAX_CONNECTIONS = 64
REQUEST_S = 15.0
"""How long a client may be silent within a request, or between two."""
EVENT_S, METRICS_S, COMMENT_S = 0.25, 2.0, 10.0
MAX_BODY_BYTES = 4096
TOKEN_VARIABLE = "DISTRL_DASHBOARD_TOKEN"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
}
_STATIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.(js|css|svg|png|woff2)")
_log = logging.getLogger(__name__)


class DashboardServer:
    """Serves `dashboard` until `close`.

    Args:
        address: "PORT" or "HOST:PORT"; without a host the loopback interface, port 0 picks a free one.
        token: What browsers must know; None for nothing.
        certificate: A PEM file with certificate and key, for TLS.

    Raises:
        ConfigError: The address can be reached from other machines, and token or certificate is missing.
        NetworkError: The address is in use.
    """

    def __init__(
        self,
        dashboard: Dashboard,
        address: str,
        token: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        host, port = check_address(address, token, certificate)

        class Handler(_Handler):
            pass

        Handler.dashboard, Handler.token, Handler.is_local = dashboard, token, is_loopback(host)
        try:
            self._http = _Server((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise NetworkError(f"--http {address} cannot be used: {error}.", "Use another port.") from error
        bound = self._http.server_address[1]
        Handler.cookie = f"distrl-{bound}"
        if certificate is not None:
            self._http.socket = _tls(certificate).wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http{'s' if certificate is not None else ''}://{host}:{bound}/"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.2}, name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends all connections."""
        self._http.stopping.set()
        self._http.shutdown()
        self._http.server_close()


def check_address(address: str, token: str | None, certificate: Path | None) -> tuple[str, int]:
    """Host and port of "PORT" or "HOST:PORT". Raises ConfigError, also if other machines could look in."""
    host, port = split_address("--http", address, 8800)
    if not is_loopback(host) and (token is None or certificate is None):
        raise ConfigError(
            f"--http {address} can be reached from other machines, and shows the devices' screens.",
            f"Set {TOKEN_VARIABLE} and --certificate, or listen on 127.0.0.1 and use an ssh tunnel.",
        )
    return host, port


def _tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--certificate {certificate} cannot be used: {error}.",
            "Use a PEM file with certificate and key.",
        ) from error
    return context


class _Server(ThreadingHTTPServer):
    """Refuses connections beyond `MAX_CONNECTIONS`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.stopping = threading.Event()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            _log.warning("a connection is refused: %d are open", MAX_CONNECTIONS)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers leave at any moment, and scanners send anything."""
        _log.debug("a connection ended with an error", exc_info=True)


class _Refused(Exception):
    """A request that is answered by a status and a line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """One connection. The class attributes are set for each server."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "distrl", ""
    timeout = REQUEST_S
    dashboard: Dashboard
    token: str | None
    is_local: bool
    cookie: str
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """No access log."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, answer: Callable[[], None]) -> None:
        try:
            self._check_host()
            answer()
        except _Refused as error:
            self._refuse(error.status, str(error))
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
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._send(status, "application/json", json.dumps({"error": text}).encode())

    def _check_host(self) -> None:
        if self.is_local and not names_loopback(self.headers.get("Host", "")):
            raise _Refused(403, "The Host header must name this machine: 127.0.0.1, localhost or [::1].")

    # ---- requests ----

    def _get(self) -> None:
        url = urlsplit(self.path)
        self.asked = {name: values[-1] for name, values in parse_qs(url.query).items()}
        path = url.path
        if path == "/":
            self._static("index.html")
        elif path.startswith("/static/"):
            name = path.removeprefix("/static/")
            if not _STATIC.fullmatch(name):
                raise _Refused(404, "There is no such file.")
            self._static(name)
        elif path == "/login":
            self._login()
        elif path.startswith("/api/"):
            self._check_token()
            self._api(path.removeprefix("/api/"))
        else:
            raise _Refused(404, "There is no such page.")

    def _api(self, path: str) -> None:
        dashboard = self.dashboard
        kind, _, rest = path.partition("/")
        if path == "snapshot":
            self._json(dashboard.snapshot())
        elif path == "metrics":
            self._json(dashboard.metrics())
        elif path == "heatmap":
            self._json(dashboard.heatmap(int(self._number("bins", 24, 1, 200) or 24)))
        elif path == "episodes":
            before = self._number("before", None, 0, 2**62)
            limit = int(self._number("limit", 50, 1, 200) or 50)
            self._json(dashboard.episodes(self._selection(), None if before is None else int(before), limit))
        elif kind == "episode":
            self._json(dashboard.episode(unquote(rest)))
        elif kind == "image" and re.fullmatch(r"[0-9a-f]{8,64}", rest):
            self._picture(dashboard.image(rest, self.asked.get("episode", "")))
        elif kind == "screen" and (found := re.fullmatch(r"([^/]+)/(\d{1,5})\.jpg", rest)):
            picture = dashboard.picture(unquote(found[1]), int(found[2]))
            if picture is None:
                raise _Refused(404, "There is no picture of that slot now.")
            self._send(200, "image/jpeg", picture.data)
        elif path == "events":
            self._events()
        else:
            raise _Refused(404, "There is no such data.")

    def _selection(self) -> Selection:
        chosen: dict[str, Any] = {
            name: self.asked.get(name, "")
            for name in ("outcome", "fault", "mode", "task", "group", "purpose")
        }
        for name in ("min_staleness", "after", "until"):
            chosen[name] = self._number(name, None, -1e12, 1e12)
        return Selection(**chosen)

    def _number(self, name: str, default: float | None, low: float, high: float) -> float | None:
        text = self.asked.get(name, "")
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise _Refused(400, f"{name} must be a number between {low:g} and {high:g}.")
        return value

    def _post(self) -> None:
        """The owner's actions. Another page's request has its Origin, or cannot send JSON without asking."""
        self._check_token()
        if self.token is None:
            raise _Refused(403, f"Actions are off. Start the dashboard with {TOKEN_VARIABLE} set.")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise _Refused(403, "Requests from other pages are refused.")
        if self.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(415, "Send Content-Type: application/json.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise _Refused(413, f"Send the body's Content-Length, at most {MAX_BODY_BYTES} bytes.")
        body = self.rfile.read(int(length))
        action, hand = urlsplit(self.path).path.removeprefix("/api/"), None
        if action in ("play", "leave"):
            try:
                hand = Hand.model_validate_json(body)
            except ValidationError as error:
                raise _Refused(400, f"The body is no slot and action: {first_problem(error)}.") from error
        elif action not in ("pause", "resume", "checkpoint"):
            raise _Refused(404, "There is no such action.")
        self.dashboard.command(action, hand)
        self._json({"ok": True})

    # ---- the token ----

    def _secret(self) -> str:
        """What the cookie holds: it proves the token without being it."""
        assert self.token is not None
        return hmac.new(self.token.encode(), b"distrl dashboard", hashlib.sha256).hexdigest()

    def _check_token(self) -> None:
        if self.token is None:
            return
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        cookie = ""
        with contextlib.suppress(http.cookies.CookieError):
            found = http.cookies.SimpleCookie(self.headers.get("Cookie", "")).get(self.cookie)
            cookie = found.value if found is not None else ""
        if hmac.compare_digest(bearer.encode(), self.token.encode()):
            return
        if not hmac.compare_digest(cookie.encode(), self._secret().encode()):
            raise _Refused(401, "The token is missing or wrong: open /login?token=TOKEN.")

    def _login(self) -> None:
        if self.token is None:
            raise _Refused(404, "This dashboard needs no token.")
        if not hmac.compare_digest(self.asked.get("token", "").encode(), self.token.encode()):
            time.sleep(0.5)
            raise _Refused(401, "The token is wrong.")
        secure = "" if self.is_local else "; Secure"
        cookie = f"{self.cookie}={self._secret()}; HttpOnly; SameSite=Strict; Path=/{secure}"
        self._send(303, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})

    # ---- answers ----

    def _static(self, name: str) -> None:
        file = files("distrl.evaluator.dashboard") / "static" / name
        if not file.is_file():
            raise _Refused(404, "There is no such file.")
        self._send(200, _TYPES[name.rpartition(".")[2]], file.read_bytes())

    def _picture(self, data: bytes) -> None:
        kind = "image/png" if data.startswith(b"\x89PNG\r\n") else "image/jpeg"
        self._send(200, kind, data, {"Cache-Control": "private, max-age=86400, immutable"})

    def _json(self, value: object) -> None:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        self._send(200, "application/json; charset=utf-8", text.encode("utf-8", "replace"))

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self._head(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _head(self, status: int, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        fixed = {
            "Content-Type": kind,
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in {**fixed, **more}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    # ---- events ----

    def _events(self) -> None:
        """Sends what changes, until the browser leaves. A browser that does not read is dropped."""
        wants = "pictures" if self.asked.get("wall") == "1" else "status"
        follow = self.asked.get("follow", "")
        followed = (follow,) if 0 < len(follow) <= 200 and follow.isprintable() else ()
        last = self.headers.get("Last-Event-ID", "")
        self.close_connection = True
        self._head(200, "text/event-stream", {})
        with self.dashboard.viewing(wants, followed):
            stream = _Stream(self.dashboard, int(last) if last.isdecimal() and len(last) < 19 else None)
            while not self.server.stopping.is_set():
                for event in stream.due():
                    self.wfile.write(event)
                self.wfile.flush()
                self.server.stopping.wait(EVENT_S)


class _Stream:
    """What one browser has been sent, and what it is due next."""

    def __init__(self, dashboard: Dashboard, last: int | None) -> None:
        self._dashboard = dashboard
        index = dashboard.index
        newest = max((row.seq for row in index.rows[:1]), default=0) if index is not None else 0
        self._last = newest if last is None else min(last, newest)
        self._indexed = self._num_rows = -1
        self._time = 0.0
        self._metrics_at = self._commented_at = -METRICS_S

    def due(self) -> list[bytes]:
        """The events that are due now."""
        found, now = [], time.monotonic()
        snapshot = self._dashboard.snapshot()
        if snapshot.get("time") != self._time:
            self._time = snapshot.get("time", 0.0)
            found.append(_event("snapshot", snapshot))
        if now - self._metrics_at >= METRICS_S:
            self._metrics_at = now
            if self._dashboard.num_rows != self._num_rows:
                self._num_rows = self._dashboard.num_rows
                found.append(_event("metrics", {"rows": self._num_rows}))
            found += self._episodes()
        if not found and now - self._commented_at >= COMMENT_S:
            found.append(b": \n\n")
        if found:
            self._commented_at = now
        return found

    def _episodes(self) -> list[bytes]:
        index = self._dashboard.index
        if index is None:
            return []
        rows = index.since(self._last)[-200:]
        if not rows and index.num_indexed == self._indexed:
            return []
        self._indexed = index.num_indexed
        if rows:
            self._last = rows[-1].seq
        data = {"rows": [row.as_json() for row in rows], "indexed": self._indexed, "total": index.total}
        return [_event("episodes", data, self._last)]


def _event(name: str, data: object, number: int | None = None) -> bytes:
    head = f"event: {name}\n" + (f"id: {number}\n" if number is not None else "")
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))  # without line ends
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")
