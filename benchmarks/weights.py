"""Weight update: one learner's bytes to several processes on loopback, against a raw socket copy.

Rounds alternate between the ways, each round moves fresh bytes to all receivers at once, and medians are
compared:

    raw         sendall → recv_into a buffer that exists already, nothing checked
    raw+sha     the same, and the receiver takes the SHA-256 of the buffer afterwards
    shared      as inference servers of one user on one host do: one of them requests the chunks, checks their
                SHA-256 and publishes them in the host's memory, the others map them; every receiver ends with
                the bytes in its own address space and looks at each page of them
    alone       as where nothing can be shared: each requests all chunks and checks their SHA-256 itself

The learner's own SHA-256, taken once per version before it is announced, is printed apart. The kernel copies
about 10 GB/s over loopback and a core hashes about 2 GB/s, so where all receivers share few cores and check
alone, the checks take longer than the raw copy, and only raw+sha compares like with like; between machines
the network is slower than the hash, which runs while bytes arrive.

    python benchmarks/weights.py [--megabytes 100] [--receivers 4] [--rounds 9]
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

from distrl.core.messages import WeightInfo
from distrl.core.sockets import Wire
from distrl.core.weights import ChunkServer, HostFetcher, WeightFetcher, describe
from distrl.learner.server import IO_THREADS

WAIT_S = 120.0
OURS = ("shared", "alone")


def receive(endpoint: str, port: int, num_bytes: int) -> None:
    """A receiver process: executes each line of stdin and answers "done"."""
    raw = socket.create_connection(("127.0.0.1", port))
    buffer = memoryview(bytearray(num_bytes))
    with Wire() as wire:
        alone = WeightFetcher(wire, endpoint)
        shared = HostFetcher(WeightFetcher(wire, endpoint), endpoint)
        if not shared.is_sharing:
            raise RuntimeError("this host has no folder to share weights in")
        print("ready", flush=True)
        for line in sys.stdin:
            way, _, argument = line.strip().partition(" ")
            if way == "alone":
                alone.fetch(WeightInfo.model_validate_json(argument), WAIT_S)
            elif way == "shared":
                view = shared.fetch(WeightInfo.model_validate_json(argument), WAIT_S)
                if view is None or len(view[:: mmap.PAGESIZE].tobytes()) * mmap.PAGESIZE < num_bytes:
                    raise ValueError("the shared weights are not whole")
                del view  # as a server does when it has loaded them
            else:
                position = 0
                while position < num_bytes:
                    position += raw.recv_into(buffer[position:])
                if way == "raw+sha" and hashlib.sha256(buffer).hexdigest() != argument:
                    raise ValueError("the raw copy arrived damaged")
            print("done", flush=True)
        alone.close()
        shared.close()


class Receivers:
    """The receiver processes and the sender's ends of their raw sockets."""

    def __init__(self, count: int, endpoint: str, num_bytes: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            command = [sys.executable, __file__, "--receive", endpoint, str(port), str(num_bytes)]
            self.processes = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in range(count)
            ]
            self.sockets = [listener.accept()[0] for _ in range(count)]
        self.wait("ready")

    def send(self, line: str) -> None:
        """Writes a line to all."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def wait(self, word: str = "done") -> None:
        """Reads a line from all."""
        for process in self.processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != word:
                raise RuntimeError("a receiver failed")

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WAIT_S)


def main() -> None:
    """Runs the rounds and prints medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--receive", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        endpoint, port, num_bytes = options.receive
        receive(endpoint, int(port), int(num_bytes))
        return
    num_bytes = options.megabytes * 10**6
    with Wire(io_threads=IO_THREADS) as wire:
        channel = wire.bind_router("tcp://127.0.0.1:0")
        endpoint, server = channel.endpoint, ChunkServer(channel, keep=1)
        server.start()
        receivers = Receivers(options.receivers, endpoint, num_bytes)
        times = measure(receivers, server, num_bytes, options.rounds)
        receivers.close()
        server.close()
    report(times, options.megabytes, options.receivers)


def measure(
    receivers: Receivers, server: ChunkServer, num_bytes: int, num_rounds: int
) -> dict[str, list[float]]:
    """Seconds of each way and round; the first round only warms up."""
    ways = ("raw", "shared", "raw+sha", "alone")
    times: dict[str, list[float]] = {way: [] for way in (*ways, "hash at the learner")}
    for number in range(num_rounds + 1):
        data = memoryview(os.urandom(num_bytes))
        started_at = time.perf_counter()
        info = describe(number, data)
        hash_s = time.perf_counter() - started_at

        server.publish(info, data)
        for way in ways if number % 2 else reversed(ways):
            started_at = time.perf_counter()
            if way in OURS:
                receivers.send(f"{way} {info.model_dump_json()}")
            else:
                receivers.send(f"{way} {info.digest}")
                send_raw(receivers, data)
            receivers.wait()
            times[way].append(time.perf_counter() - started_at)
        times["hash at the learner"].append(hash_s)
    return {way: seconds[1:] for way, seconds in times.items()}


def send_raw(receivers: Receivers, data: memoryview) -> None:
    """Sends `data` to all at once."""
    senders = [threading.Thread(target=raw.sendall, args=(data,)) for raw in receivers.sockets]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


def report(times: dict[str, list[float]], megabytes: int, num_receivers: int) -> None:
    """Prints the table."""
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    print(f"{megabytes} MB to {num_receivers} processes, medians of {len(times['raw'])} alternating rounds")
    for way, seconds in medians.items():
        print(f"  {way:<20} {seconds * 1000:7.0f} ms")
    for ours in OURS:
        for way in ("raw", "raw+sha"):
            pairs = zip(times[way], times[ours], strict=True)
            print(f"speed of {ours} / {way}: {statistics.median(theirs / own for theirs, own in pairs):.2f}")
    print("shared applies to inference servers of one user on one host; raw is not checked.")


if __name__ == "__main__":
    main()
