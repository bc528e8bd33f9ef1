"""The throughput of an engine that serves dynamic batches over sockets, beside its own offline throughput.

`distrl serve-inference --checkpoint` runs as users start it, in a process of its own. Clients keep one
request each in flight: a chat and a JPEG screenshot of 540x1200, other bytes in every request, so that
nothing comes out of the server's image cache.

Arms, in turns so that other load on the machine hits all of them
    offline  the same engine in this process on the same kind of requests, B at a time: tokenise, decode, act.
             No sockets, no queue.
    bare     the same without tokenising and decoding: batches of tensors that are ready. An upper bound that
             no server reaches whose screenshots have to be decoded on the same CPU cores.
    served   2 B clients, so that a full batch waits whenever one ends.

Printed: served/offline in completions per second (median over rounds; target 0.9), served/bare, the most that
this can be on this machine's cores with the CPU time that server and clients take, and how long requests wait
in the queue against T_max + one batch (p99, as the server measured it): the bound of AcceRL eq. 1 for
requests that find at most one batch before them.

    python benchmarks/batching.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from async_vs_sync import draw_screen

from distrl.configs.schema import Config
from distrl.core.checkpoints import write_checkpoint
from distrl.core.messages import ActReply, ActRequest, Info, InfoRequest
from distrl.core.sockets import Channel, Poller, Wire
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart, image_digest
from distrl.workers.inference.engine import Prepared
from distrl.workers.inference.serve import build_engine

TARGET = 0.9
DEADLINE_S = 120.0
NUM_SCREENS = 64
GOAL = "step 3 last tap Goal: search for red shoes in the shop and put them in the cart"
SAMPLING = Sampling(max_new_tokens=4)  # an untrained policy would type for 32 tokens now and then


def screenshot(seed: int) -> bytes:
    """JPEG bytes of about 100 kB."""
    out = io.BytesIO()
    draw_screen(seed).save(out, "JPEG", quality=85)
    return out.getvalue()


class Round(NamedTuple):
    """Completions per second of each arm."""

    offline: float
    bare: float
    served: float
    served_cpu_s: float
    """Of server and clients, per completion."""


class Requests:
    """An endless supply of act requests, each with new image bytes."""

    def __init__(self) -> None:
        self._screens = [screenshot(seed) for seed in range(NUM_SCREENS)]
        self._number = 0

    def next(self) -> tuple[ActRequest, bytes]:
        # Bytes after the end of a JPEG make another digest and the same picture.
        data = self._screens[self._number % NUM_SCREENS] + self._number.to_bytes(8, "big")
        self._number += 1
        digest = image_digest(data)
        parts = (ImagePart(digest=digest), TextPart(text=GOAL))
        messages = (ChatMessage(role="user", parts=parts),)
        name = str(self._number)
        return ActRequest(id=name, messages=messages, images=(digest,), sampling=SAMPLING), data


@contextlib.contextmanager
def server(config: Config, directory: Path) -> Iterator[tuple[str, int]]:
    """`distrl serve-inference` on a fresh policy; gives its endpoint and process id."""
    engine = build_engine(config, [], "benchmark")
    checkpoint = write_checkpoint(directory, "step_0", lambda path: engine.policy.save(path / "policy"))
    (directory / "config.yaml").write_text(config.to_yaml())
    command = [sys.executable, "-m", "distrl", "serve-inference", str(directory / "config.yaml")]
    process = subprocess.Popen([*command, "--checkpoint", str(checkpoint)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"Serving .* at (\S+)", line):
                yield found[1], process.pid
                return
        raise SystemExit("serve-inference did not start")
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


class Offline:
    """The engine without a server."""

    def __init__(self, config: Config, requests: Requests) -> None:
        self._engine, self._requests = build_engine(config, [], "offline"), requests
        self._size = config.inference.max_batch
        self._ready = [self._prepare() for _ in range(4)]

    def _prepare(self) -> list[Prepared]:
        pairs = [self._requests.next() for _ in range(self._size)]
        return [self._engine.prepare(r.messages, {r.images[0]: d}, r.sampling) for r, d in pairs]

    def rate(self, seconds: float, is_bare: bool) -> float:
        """Completions per second."""
        for batch in self._ready:
            self._engine.act(batch)
        started, num_batches = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - started) < seconds:
            self._engine.act(self._ready[num_batches % 4] if is_bare else self._prepare())
            num_batches += 1
        return num_batches * self._size / elapsed


def cpu_s(pid: int) -> float:
    """CPU time of this process and of `pid` so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return time.process_time() + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def served(
    wire: Wire, endpoint: str, requests: Requests, num_clients: int, seconds: float
) -> tuple[float, list[float]]:
    """Completions per second of clients with one request each in flight, and their latencies in seconds."""
    channels = [wire.connect_dealer(endpoint) for _ in range(num_clients)]
    poller = Poller(channels)
    sent_at: dict[Channel, float] = {}

    def send(channel: Channel) -> None:
        request, data = requests.next()
        sent_at[channel] = time.perf_counter()
        channel.send(request, [data], timeout_s=DEADLINE_S)

    for channel in channels:
        send(channel)
    latencies: list[float] = []
    measuring_from = time.perf_counter() + 0.5  # the first batches fill up
    while (now := time.perf_counter()) < measuring_from + seconds:
        for channel in poller.wait(DEADLINE_S):
            received = channel.recv(0.0)
            if received is None or not isinstance(received.message, ActReply):
                raise SystemExit(f"no completion but {received}")
            if now >= measuring_from:
                latencies.append(time.perf_counter() - sent_at[channel])
            send(channel)
    elapsed = time.perf_counter() - measuring_from
    for channel in channels:
        channel.recv(DEADLINE_S)
        channel.close()
    return len(latencies) / elapsed, latencies


def info(wire: Wire, endpoint: str) -> dict[str, float]:
    """The server's own measurements."""
    channel = wire.connect_dealer(endpoint)
    channel.send(InfoRequest(), timeout_s=DEADLINE_S)
    received = channel.recv(DEADLINE_S)
    channel.close()
    assert received is not None
    assert isinstance(received.message, Info)
    return dict(received.message.stats)


def main() -> None:
    """Runs the arms in turns and prints the ratios."""
    parser = argparse.ArgumentParser(description="Served against offline throughput of the embedded policy.")
    parser.add_argument("--batch", type=int, default=16, help="B, the engine's batch size")
    parser.add_argument("--max-wait-ms", type=float, default=4.0, help="T_max")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="per arm and round")
    args = parser.parse_args()
    config = Config.model_validate(
        {
            "policy": {"device": "cpu"},
            "inference": {"max_batch": args.batch, "engine": {"kind": "hf", "max_wait_ms": args.max_wait_ms}},
        }
    )
    requests = Requests()
    rounds: list[Round] = []
    latencies: list[float] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        Wire() as wire,
        server(config, Path(directory)) as (endpoint, pid),
    ):
        alone = Offline(config, requests)
        for number in range(args.rounds):
            offline, bare = alone.rate(args.seconds, False), alone.rate(args.seconds, True)
            before, started = cpu_s(pid), time.perf_counter()
            rate, found = served(wire, endpoint, requests, 2 * args.batch, args.seconds)
            share = (cpu_s(pid) - before) / (time.perf_counter() - started)
            rounds.append(Round(offline, bare, rate, share / rate))
            rates = rounds[-1]._asdict().items()
            print(f"round {number + 1}: " + ", ".join(f"{k} {v:.0f}/s" for k, v in list(rates)[:3]))
            latencies += found
        stats = info(wire, endpoint)
    report(rounds, latencies, stats, args.max_wait_ms)


def report(
    rounds: list[Round],
    latencies: list[float],
    stats: dict[str, float],
    max_wait_ms: float,
) -> None:
    """Prints the results of the rounds."""
    ratio = statistics.median(r.served / r.offline for r in rounds)
    to_bare = statistics.median(r.served / r.bare for r in rounds)
    cores = os.cpu_count() or 1
    most = min(1.0, statistics.median(cores / r.served_cpu_s / r.bare for r in rounds))
    bound_ms, wait_ms = max_wait_ms + stats["batch_p99_ms"], stats["queue_wait_p99_ms"]
    percentiles = statistics.quantiles(latencies, n=100)
    print(f"batches of {stats['batch_size']:.1f}, {stats['batch_p50_ms']:.1f} ms each (median)")
    print(
        f"latency seen by clients: p50 {1000 * percentiles[49]:.1f} ms, p99 {1000 * percentiles[98]:.1f} ms"
    )
    print(
        f"queue wait p99 / (T_max + p99 batch): {wait_ms:.1f} / {bound_ms:.1f} ms = {wait_ms / bound_ms:.2f}"
    )
    print(f"served / bare: {to_bare:.2f}, at most {most:.2f} on {cores} cores")
    print(f"served / offline: {ratio:.2f} (target {TARGET}) {'ok' if ratio >= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
