"""What leaves the learner when many inference servers fetch each version, with and without relay.

Each server is a process with its own connections; sharing by the host's memory is off, so that they behave
like servers on different hosts. Rounds of both ways alternate in one run. Printed are medians: the learner's
egress per version, what the servers sent to each other, and the time from the announcement until all have it.
On one host all of them share its cores: here the times say little, the bytes what they say anywhere.

    python benchmarks/weights_relay.py [--megabytes 100] [--servers 1 4 8] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import queue
import statistics
import subprocess
import sys
import time

from distrl.core.messages import Holders, Status
from distrl.core.shared_fetch import SharedFetcher
from distrl.core.sockets import Wire
from distrl.core.weights import WeightFetcher, describe_chunks
from distrl.learner.station import Endpoints, Station
from distrl.workers.client import LearnerLink
from distrl.workers.inference.relay import Relay

WAIT_S = 600.0


def serve(control: str, broadcast: str, weights: str, name: str, relays: bool) -> None:
    """A server process: fetches what is announced, and prints its version and what it has passed on."""
    with Wire() as wire:
        relay = Relay(wire, "tcp://127.0.0.1:*")
        link = LearnerLink(
            wire, control, broadcast, "inference", name, relay=relay.advertised if relays else ""
        )
        relay.on_offer = link.holds
        relay.start()
        newest: queue.SimpleQueue[Status] = queue.SimpleQueue()
        link.add_listener(newest.put)
        link.start()

        def holders(digest: str) -> list[str]:
            known = link.status.holders if link.status is not None else Holders()
            return [one for one in known.endpoints if one != relay.advertised and known.digest == digest]

        fetcher = SharedFetcher(WeightFetcher(wire, weights, holders), weights, share=False)
        version = 0
        while not link.shutdown.is_set():
            try:
                info = newest.get(timeout=0.5).weights
            except queue.Empty:
                continue
            if info is None or info.version <= version:
                continue
            data = fetcher.fetch(info, WAIT_S)
            assert data is not None
            version = info.version
            if relays:
                relay.offer(info, data)
            print(version, relay.num_bytes, flush=True)
        link.close()
        fetcher.close()
        relay.close()


class Servers:
    """The server processes of one way."""

    def __init__(self, count: int, endpoints: Endpoints, relays: bool) -> None:
        command = [
            sys.executable,
            __file__,
            "--serve",
            endpoints.control,
            endpoints.broadcast,
            endpoints.weights,
        ]
        self._processes = [
            subprocess.Popen([*command, f"s{number}", str(int(relays))], stdout=subprocess.PIPE, text=True)
            for number in range(count)
        ]

    def wait(self, version: int) -> int:
        """Waits until all have `version`; the bytes that they have sent to each other so far."""
        total = 0
        for process in self._processes:
            assert process.stdout is not None
            has, passed_on = (int(word) for word in process.stdout.readline().split())
            assert has == version
            total += passed_on
        return total

    def close(self) -> None:
        """Waits until they have ended."""
        for process in self._processes:
            process.wait(WAIT_S)


class Way:
    """One learner and its servers."""

    def __init__(self, count: int, relays: bool) -> None:
        self.station = Station(Endpoints(*["tcp://127.0.0.1:*"] * 3), None, "benchmark", heartbeat_s=1.0)
        self.station.start()
        self._servers = Servers(count, self.station.endpoints, relays)
        while self.station.peer_metrics()["inference/alive"] < count:
            time.sleep(0.1)
        self._version, self._passed_on = 0, 0

    def round(self, num_bytes: int) -> tuple[float, float, float]:
        """Bytes that left the learner, bytes between servers, and seconds, for a version of fresh bytes."""
        self._version += 1
        data = os.urandom(num_bytes)
        info, chunk_list = describe_chunks(self._version, data)
        before = self.station.peer_metrics()["weights/sent_bytes"]
        started_at = time.perf_counter()
        self.station.publish_weights(info, data, chunk_list)
        passed_on = self._servers.wait(self._version)
        seconds = time.perf_counter() - started_at
        between, self._passed_on = passed_on - self._passed_on, passed_on
        return self.station.peer_metrics()["weights/sent_bytes"] - before, between, seconds

    def close(self) -> None:
        """Ends all of it."""
        self.station.shutdown("measured")
        self._servers.close()
        self.station.close()


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        *endpoints, name, relays = options.serve
        serve(*endpoints, name, relays == "1")
        return
    print(f"{options.megabytes} MB a version, medians of {options.rounds} alternating rounds")
    print(f"{'servers':>8}  {'relay':<6}  {'learner sends':>14}  {'servers send':>13}  {'time to all':>11}")
    for count in options.servers:
        ways = {"no": Way(count, relays=False), "yes": Way(count, relays=True)}
        figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for number in range(options.rounds + 1):  # the first one only warms up
            for name in ways if number % 2 else reversed(ways):
                figures[name].append(ways[name].round(options.megabytes * 10**6))
        for name, way in ways.items():
            sent, between, seconds = (
                statistics.median(column) for column in zip(*figures[name][1:], strict=True)
            )
            print(
                f"{count:>8}  {name:<6}  {sent / 1e6:>11.1f} MB  {between / 1e6:>10.1f} MB  {seconds:>9.2f} s"
            )
            way.close()


if __name__ == "__main__":
    main()
