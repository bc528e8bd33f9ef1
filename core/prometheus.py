"""Metrics for Prometheus: the newest numbers of one process, in its text format, over HTTP.

    scraper ──► a thread per request: GET /metrics ──► read() ──► text

Names are those of metrics.jsonl, in base units: `inference/queue_wait_p50_ms` is
`distrl_inference_queue_wait_p50_seconds`, and `eval/val/success` is `distrl_eval_success{split="val"}`.
"""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Callable, Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from distrl import __version__
from distrl.core.errors import ConfigError, NetworkError
from distrl.core.http_address import is_loopback, names_loopback, split_address

Show = Callable[[Callable[[], Mapping[str, float]]], None]
"""Takes the function that gives a process's newest metrics, once there is one."""

REQUEST_S = 5.0
"""How long a client may take to send its request."""

LABELS = {"eval": (3, "split"), "staleness": (3, "versions"), "rejected": (2, "code")}
"""Family → the least number of parts of a name whose second part becomes this label."""

_UNITS = (("_per_s", "_per_second", 1.0), ("_ms", "_seconds", 1e-3), ("_s", "_seconds", 1.0))


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
    info = {name: str(value) for name, value in {**about, "version": __version__}.items()}
    texts = {"distrl_info": ("gauge", "The process that these metrics come from.", [(info, 1.0)])}
    for name in sorted(values):
        is_counter = name in counters or f"{name.partition('/')[0]}/" in counters
        found, labels, factor = _named(name)
        metric = f"{prefix}{found}{'_total' if is_counter else ''}"
        said = f"{name}, see Metrics in docs/operations.md."
        series = texts.setdefault(metric, ("counter" if is_counter else "gauge", said, []))[2]
        series.append((labels, factor * values[name]))
    lines = []
    for metric, (kind, said, samples) in texts.items():
        lines += [f"# HELP {metric} {_escaped(said)}", f"# TYPE {metric} {kind}"]
        for labels, value in samples:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{metric}{{{inside}}} {value!r}" if inside else f"{metric} {value!r}")
    return "\n".join(lines) + "\n"


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


class MetricsEndpoint:
    """Serves GET /metrics until `close`.

    Args:
        address: "PORT" or "HOST:PORT"; without a host the loopback interface, port 0 picks a free one.
        key: What clients must send as a bearer token, None for nothing.
        prefix, counters, about: As for `exposition`.

    Attributes:
        read: Returns the newest numbers; any thread calls it.

    Raises:
        ConfigError: The address is not valid, or can be reached from other machines without a key.
        NetworkError: It is in use.
    """

    def __init__(
        self,
        address: str,
        key: str | None,
        prefix: str,
        counters: Collection[str],
        about: Mapping[str, str],
    ) -> None:
        host, port = split_address("--metrics-port", address, 9090)
        if key is None and not is_loopback(host):
            raise ConfigError(
                f"--metrics-port {address} can be reached from other machines.",
                "Set the environment variable DISTRL_API_KEY, or listen on 127.0.0.1.",
            )
        self.read: Callable[[], Mapping[str, float]] = dict
        self._prefix, self._counters, self._about = prefix, counters, about
        handler = type("Handler", (_Handler,), {"endpoint": self, "key": key, "is_local": is_loopback(host)})
        try:
            self._http = ThreadingHTTPServer((host, port), handler)
        except (OSError, OverflowError) as error:
            said = f"--metrics-port {address} cannot be used: {error}."
            raise NetworkError(said, "Use another port.") from error
        self.url = f"http://{host}:{self._http.server_address[1]}/metrics"
        threading.Thread(target=self._http.serve_forever, name="metrics-http", daemon=True).start()

    def text(self) -> str:
        """What a scrape gets now."""
        return exposition(self.read(), self._prefix, self._counters, self._about)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    """A request; the class attributes are set for each endpoint."""

    timeout = REQUEST_S
    server_version, sys_version = "distrl", ""
    endpoint: MetricsEndpoint
    key: str | None
    is_local: bool

    def do_GET(self) -> None:
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.is_local and not names_loopback(self.headers.get("Host", "")):
            self.send_error(403, "The Host header must name this machine")
        elif self.key is not None and not hmac.compare_digest(sent.encode(), self.key.encode()):
            self.send_error(401, "Send DISTRL_API_KEY as a bearer token")
        elif self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "Use /metrics")
        else:
            body = self.endpoint.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""
