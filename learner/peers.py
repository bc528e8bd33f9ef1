"""The learner's peers: which are alive, which are suspended, and the numbers of their heartbeats as metrics.

Stats are named by their senders (`distrl.workers.worker`, `distrl.workers.inference.server`). Counts
become totals over the life of this process, or rates since the last call; a peer that restarts counts from
0 again. Of waits and durations the worst server's is taken.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from distrl.core.errors import ProtocolError
from distrl.core.messages import Heartbeat, Hello, RejectCode

MAX_PEERS = 4096
MAX_LISTED = 4096  # slots; more of them spread evenly enough if each chooses its server alone

WINDOW = 20
"""The newest trajectories of a client that count for a suspension; at least `LEAST` must have arrived."""

LEAST = 6
FIRST_S, LONGEST_S = 60.0, 3600.0
MAX_CLIENTS = 4096  # the client that was silent for longest is forgotten
_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Role and name."""

RATES: Mapping[Key, str] = {
    ("worker", "episodes"): "workers/episodes_per_s",
    ("worker", "steps"): "workers/actions_per_s",
    ("worker", "imagined"): "workers/imagined_per_s",
    ("inference", "requests"): "inference/requests_per_s",
    ("inference", "batches"): "inference/batches_per_s",
    ("inference", "tokens"): "inference/tokens_per_s",
}
JUDGED = ("judged", "successes", "unjudged", "retries", "calls", "input_tokens", "output_tokens", "cost")
TOTALS: Mapping[Key, str] = {
    **{("worker", name): f"workers/{name}" for name in ("successes", "faults")},
    **{("worker", f"judge_{name}"): f"judge/{name}" for name in JUDGED},
    **{("inference", name): f"inference/{name}" for name in ("rejected", "failed", "weight_swaps")},
}
TIMES_MS = ("queue_wait_p50_ms", "queue_wait_p99_ms", "batch_p50_ms", "batch_p99_ms", "swap_pause_ms")
DEVICES = ("devices_ready", "devices_busy", "devices_recovering", "devices_quarantined")
GAUGES: Mapping[Key, tuple[str, Callable[[Sequence[float]], float]]] = {
    ("inference", "batch_size"): ("inference/batch_size", fmean),
    ("inference", "queue"): ("inference/queue", sum),
    **{("inference", name): (f"inference/{name}", max) for name in TIMES_MS},
    ("inference", "weight_version"): ("inference/weight_version_min", min),
    ("worker", "judge_waiting"): ("judge/waiting", sum),
    **{("worker", name): (f"workers/{name}", sum) for name in DEVICES},
}
COUNTERS: Mapping[str, frozenset[str]] = {
    **{
        its_role: frozenset(stat for role, stat in (*RATES, *TOTALS) if role == its_role)
        for its_role in ("worker", "inference")
    },
    "learner": frozenset({*TOTALS.values(), "weights/sent_bytes", "rejected/"}),
}
"""By role, the numbers of a process that only grow while it runs; a family ends with "/"."""

ALIVE: Mapping[str, str] = {"worker": "workers/alive", "inference": "inference/alive"}


@dataclass
class _Peer:
    act_endpoint: str
    slots: int
    num_leases: int
    last_seen: float
    stats: Mapping[str, float] = field(default_factory=dict)


class Peers:
    """The peers that are alive. The network thread calls all but `metrics` and `stats`."""

    def __init__(self, silence_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_s, self._clock = silence_s, clock
        self._lock = threading.Lock()
        self._peers: dict[Key, _Peer] = {}
        self._totals: dict[Key, float] = dict.fromkeys([*RATES, *TOTALS], 0.0)
        self._rated: tuple[float, dict[Key, float]] = self._clock(), dict(self._totals)

    def register(self, message: Hello | Heartbeat) -> bool:
        """Registers that a peer is alive, and its numbers. Returns whether it is new or has changed."""
        key, stats = (message.role, message.name), getattr(message, "stats", {})
        with self._lock:
            peer = self._peers.get(key)
            now_at = (message.act_endpoint, message.slots)
            is_news = peer is None or (peer.act_endpoint, peer.slots) != now_at
            if peer is None:
                if len(self._peers) >= MAX_PEERS:
                    raise ProtocolError(RejectCode.BUSY.value, f"{MAX_PEERS} peers are connected already")
                _log.info("%s %s connected", *key)
                peer = self._peers[key] = _Peer(*now_at, 0, self._clock())
            (peer.act_endpoint, peer.slots), peer.last_seen = now_at, self._clock()
            peer.num_leases = message.slots + message.waiting
            if stats:
                self._count(message.role, peer.stats, stats)
                peer.stats = stats
        return is_news

    def expire(self) -> bool:
        """Forgets those that were silent for too long; their counts stay. Returns whether there were any."""
        limit = self._clock() - self._silence_s
        with self._lock:
            gone = [key for key, peer in self._peers.items() if peer.last_seen < limit]
            for key in gone:
                _log.warning("lost %s %s: no heartbeat", *key)
                del self._peers[key]
        return bool(gone)

    def announced(self, worker: str) -> tuple[int, int]:
        """How many slots a worker announces, and how many leases it may hold; 0 if it is not alive."""
        with self._lock:
            peer = self._peers.get(("worker", worker))
        return (peer.slots, peer.num_leases) if peer is not None else (0, 0)

    def act_endpoints(self) -> tuple[str, ...]:
        """Where the inference servers that are alive answer, sorted."""
        with self._lock:
            known = {peer.act_endpoint for (role, _), peer in self._peers.items() if role == "inference"}
        return tuple(sorted(known - {""}))

    def slots(self) -> dict[str, int]:
        """The slots of each worker that is alive; none if there are more than `MAX_LISTED`."""
        with self._lock:
            found = {name: peer.slots for (role, name), peer in self._peers.items() if role == "worker"}
        return dict(sorted(found.items())) if sum(found.values()) <= MAX_LISTED else {}

    def stats(self, role: str) -> dict[str, Mapping[str, float]]:
        """The newest numbers of the peers of a role that are alive, by name. Any thread."""
        with self._lock:
            return {name: peer.stats for (its_role, name), peer in self._peers.items() if its_role == role}

    def metrics(self) -> dict[str, float]:
        """The numbers of all peers together; rates are means since the last call."""
        now = self._clock()
        with self._lock:
            metrics = {name: float(len(self._of(role))) for role, name in ALIVE.items()}
            metrics |= {name: self._totals[key] for key, name in TOTALS.items()}
            since, before = self._rated
            if now > since:
                for key, name in RATES.items():
                    metrics[name] = (self._totals[key] - before[key]) / (now - since)
                self._rated = now, dict(self._totals)
            for (role, stat), (name, combine) in GAUGES.items():
                values = [peer.stats[stat] for peer in self._of(role) if stat in peer.stats]
                if values:
                    metrics[name] = combine(values)
        return metrics

    def _of(self, role: str) -> list[_Peer]:
        return [peer for (its_role, _), peer in self._peers.items() if its_role == role]

    def _count(self, role: str, before: Mapping[str, float], stats: Mapping[str, float]) -> None:
        """Adds what a peer has counted since its last heartbeat; the first one only sets where it starts."""
        for key in self._totals:
            if key[0] == role and key[1] in stats and key[1] in before:
                start = before[key[1]] if stats[key[1]] >= before[key[1]] else 0.0
                self._totals[key] += stats[key[1]] - start


@dataclass
class _Client:
    rejected: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lasted_s: float = 0.0  # the last suspension
    until: float = 0.0
    reason: str = ""


class Suspensions:
    """Suspends a client while more than half of its newest trajectories were rejected.

    The first suspension lasts `FIRST_S`, each further one twice as long, up to `LONGEST_S`. After a full
    window with at most half rejected the next one lasts `FIRST_S` again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def record(self, name: str, problem: str = "") -> None:
        """A new trajectory of `name` was accepted, or rejected because of `problem`."""
        client = self._clients.setdefault(name, _Client())
        self._clients.move_to_end(name)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        now = self._clock()
        if now < client.until:
            return  # it was on its way already
        client.rejected.append(bool(problem))
        total, count = len(client.rejected), sum(client.rejected)
        if problem and total >= LEAST and 2 * count > total:
            seconds = client.lasted_s = min(LONGEST_S, 2 * client.lasted_s or FIRST_S)
            client.until = now + seconds
            client.reason = f"{count} of its last {total} trajectories were rejected"
            client.rejected.clear()
            _log.warning(
                "worker %s gets no leases for %g s: %s; the last one: %s",
                name, seconds, client.reason, problem,
            )  # fmt: skip
        elif total == WINDOW and 2 * count <= total:
            client.lasted_s = 0.0

    def of(self, name: str) -> tuple[float, str]:
        """The seconds for which `name` gets no leases, and why; (0, "") if it may have some."""
        client = self._clients.get(name, _Client())
        left = client.until - self._clock()
        return (left, client.reason) if left > 0.0 else (0.0, "")

    @property
    def count(self) -> int:
        """How many clients are suspended now."""
        now = self._clock()
        return sum(client.until > now for client in self._clients.values())
