"""Metrics for Prometheus: the newest numbers of one process, in its text format, over HTTP.

    scraper ──► a thread per request: GET /metrics ──► what `show` set ──► text

A process has one role and therefore one set of metrics, as with Prometheus' own clients. Names are those of
metrics.jsonl, in base units: `inference/queue_wait_p50_ms` is `distrl_inference_queue_wait_p50_seconds`, and
`eval/val/success` is `distrl_eval_success{split="val"}`.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from distrl import __version__
from distrl.core.errors import NetworkError
from distrl.core.http_address import is_loopback, keyed_address, names_loopback

REQUEST_S = 5.0
"""How long a client may take to send its request."""

LABELS = {"eval": (3, "split"), "staleness": (3, "versions"), "rejected": (2, "code")}
"""Family → the least number of parts of a name whose second part becomes this label."""

PREFIXES = {"learner": "distrl_", "worker": "distrl_worker_", "inference": "distrl_inference_server_"}
"""What the names of metrics begin with, by the role of the process."""

_UNITS = (("_per_s", "_per_second", 1.0), ("_ms", "_seconds", 1e-3), ("_s", "_seconds", 1.0))
_log = logging.getLogger(__name__)


_shown: tuple[Callable[[], Mapping[str, float]], str] = (dict, "")


def show(read: Callable[[], Mapping[str, float]], name: str = "") -> None:
    """Sets what this process serves: the metrics that `read` returns, which any thread may call.

    `name` is the name of this process in the run; the default is its role.
    """
    global _shown
    _shown = (read, name)


def exposition(
    values: Mapping[str, float], prefix: str, counters: Collection[str], about: Mapping[str, str]
) -> str:
    """The numbers in Prometheus' text format.

    Args:
        values: By their names in distrl.
        prefix: What names begin with, "distrl_" or "distrl_worker_".
        counters: Names of totals that only grow; a family ends with "/".
        about: Labels of `distrl_info`, which says whose numbers these are.
    """
    families: dict[str, list[str]] = {}  # the lines of each stand together

    def sample(metric: str, kind: str, said: str, labels: Mapping[str, str], value: float) -> None:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        head = [f"# HELP {metric} {_escaped(said)}", f"# TYPE {metric} {kind}"]
        series = f"{metric}{{{inside}}}" if inside else metric
        families.setdefault(metric, head).append(f"{series} {value!r}")

    info = {**about, "version": __version__}
    sample("distrl_info", "gauge", "The process that these metrics come from.", info, 1.0)
    for name in sorted(values):
        is_counter = name in counters or f"{name.partition('/')[0]}/" in counters
        found, labels, factor = _named(name)
        metric, kind = (f"{found}_total", "counter") if is_counter else (found, "gauge")
        said = f"{name}, see Metrics in docs/operations.md."
        sample(prefix + metric, kind, said, labels, factor * values[name])
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _named(name: str) -> tuple[str, dict[str, str], float]:
    """A metric's name for Prometheus, its labels, and the factor to the base unit."""
    parts, labels, factor = name.split("/"), {}, 1.0
    least, label = LABELS.get(parts[0], (0, ""))
    if label and len(parts) >= least:
        labels[label] = parts.pop(1)
    found = re.sub(r"[^a-zA-Z0-9_]", "_", "_".join(parts))
    for ending, unit, times in _UNITS:
        if found.endswith(ending):
            return found.removesuffix(ending) + unit, labels, times
    return found, labels, factor


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@contextlib.contextmanager
def serving(address: str, key: str | None, role: str, run: str, counters: Collection[str]) -> Iterator[str]:
    """Serves GET /metrics as long as the block lasts. Yields its URL.

    Args:
        address: "PORT" or "HOST:PORT"; without a host the loopback interface, port 0 picks a free one.
        key: What clients must send as a bearer token, None for nothing.
        role: One of `PREFIXES`.
        run: The run's name.
        counters: As for `exposition`.

    Raises:
        ConfigError: The address is not valid, or can be reached from other machines without a key.
        NetworkError: It is in use.
    """
    host, port = keyed_address("--metrics-port", address, key)

    def text() -> str:
        read, name = _shown
        about = {"role": role, "run": run, "name": name or role}
        return exposition(read(), PREFIXES[role], counters, about)

    try:
        server = _Server((host, port), key, text)
    except (OSError, OverflowError) as error:
        said = f"--metrics-port {address} cannot be used: {error}."
        raise NetworkError(said, "Use another port.") from error
    show(dict)
    threading.Thread(target=server.serve_forever, name="metrics-http", daemon=True).start()
    try:
        yield f"http://{host}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Answers with `text()`; if there is a `key`, only those that send it."""

    def __init__(self, address: tuple[str, int], key: str | None, text: Callable[[], str]) -> None:
        self.key, self.text, self.is_local = key, text, is_loopback(address[0])
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Most often the scraper has left."""
        _log.warning("a scrape by %s failed: %r", client_address[0], sys.exc_info()[1])


class _Handler(BaseHTTPRequestHandler):
    """A request."""

    timeout = REQUEST_S
    server_version, sys_version = "distrl", ""
    server: _Server

    def do_GET(self) -> None:
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
        key = self.server.key
        if self.server.is_local and not names_loopback(self.headers.get("Host", "")):
            self.send_error(403, "The Host header must name this machine")
        elif key is not None and not hmac.compare_digest(sent.encode(), key.encode()):
            self.send_error(401, "Send DISTRL_API_KEY as a bearer token")
        elif self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "Use /metrics")
        else:
            body = self.server.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""
