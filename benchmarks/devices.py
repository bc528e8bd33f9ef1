"""The cost of a step on a device behind adb: simulated phones, a real adb server, our client and adbutils.

Phones run as `distrl sim-host` runs them, in processes of their own; the adb server is one of our own on a
free port, ended afterwards. Every tap of the tour changes the screen, so that no picture is taken from a
cache, and every phone has a tour of its own, found beforehand on a phone in this process.

Arms, in turns so that other load on the machine hits both
    raw       `distrl.workers.devices.adb.AdbClient`: one connection per call, straight to the service
    adbutils  the same calls through adbutils, its device chosen by transport_id

Printed, with targets
    shell no-op             median of calls in a row, ms                        ≤ 1
    tap + screencap         the same, at 1080x2400 (and at 540x1200)            ≤ 12
    no-op after a pause     median, ms
    16 devices              steps per second at 1080x2400 on two cores          ≥ 100
    CPU time                of phones, adb server and clients per step, which other load changes little

    python benchmarks/devices.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import adbutils
import psutil

from distrl.simulator.adb.host import SimHost
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import nodes
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.device import Key
from distrl.workers.devices.errors import DeviceError

SIZES = ((1080, 2400), (540, 1200))
DEADLINE_S = 60.0
BASE_PORT = 15554
IN_A_ROW = 20
"""Calls of one client before the other's turn."""
PAUSE_S = 0.05
"""After it an idle machine's cores sleep; waking each process in turn is what a call costs more then."""


@dataclass(frozen=True)
class Arm:
    """One client on one phone: what runs a shell command, and what fetches a screenshot."""

    name: str
    shell: Callable[[str], object]
    screencap: Callable[[], bytes]


def tour(width: int, height: int, length: int, seed: int) -> list[str]:
    """Commands of which each changes the screen of a phone fresh from the box."""
    device, rng = SimDevice(width, height), random.Random(seed)
    found: list[str] = []
    while len(found) < length:
        before = device.screen().key
        seen = nodes.visible(device.phone.tree(), (0.0, 0.0, nodes.WIDTH, height * nodes.WIDTH / width))
        left, top, right, bottom = rng.choice([box for node, box in seen if node.clickable])
        x, y = (int((a + b) / 2 * width / nodes.WIDTH) for a, b in ((left, right), (top, bottom)))
        state = device.phone.dump()
        device.tap(x, y)
        if device.screen().key != before:
            found.append(f"input tap {x} {y}")
            continue
        device.phone.load(state)
        if rng.random() < 0.2:
            device.key(Key.HOME)
            if device.screen().key != before:
                found.append("input keyevent KEYCODE_HOME")
            else:
                device.phone.load(state)
    return found


@dataclass(frozen=True)
class Latency:
    """Milliseconds of each call: no-ops and steps in a row, and the first no-op after a pause."""

    no_op: list[float]
    step: list[float]
    after_pause: list[float]


def raw(serial: str, port: int) -> Arm:
    """Our client."""
    client = AdbClient(serial, port)
    return Arm(
        "raw",
        lambda command: client.check(command, DEADLINE_S),
        lambda: client.exec_out("screencap -p", DEADLINE_S),
    )


def through_adbutils(serial: str, port: int) -> Arm:
    """adbutils, without the version request that it makes when it has only the serial."""
    client = adbutils.AdbClient(host="127.0.0.1", port=port)
    (transport,) = [entry.transport_id for entry in client.list(extended=True) if entry.serial == serial]
    device = client.device(transport_id=transport)
    return Arm(
        "adbutils",
        lambda command: device.shell(command, timeout=DEADLINE_S),
        lambda: device.shell("screencap -p", encoding=None, timeout=DEADLINE_S),
    )


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    since = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - since)


def step(arm: Arm, command: str) -> None:
    """An action and the look at its result."""
    arm.shell(command)
    data = arm.screencap()
    assert data.endswith(b"IEND\xaeB`\x82"), f"{arm.name}: no whole PNG but {len(data)} bytes"


def latencies(arms: Sequence[Arm], commands: Sequence[str]) -> dict[str, Latency]:
    """By arm. The arms take turns, `IN_A_ROW` calls each."""
    found = {arm.name: Latency([], [], []) for arm in arms}
    for at in range(0, len(commands), IN_A_ROW):
        for arm in arms:
            found[arm.name].no_op.extend(timed(partial(arm.shell, "true")) for _ in range(IN_A_ROW))
            block = commands[at : at + IN_A_ROW]
            found[arm.name].step.extend(timed(partial(step, arm, command)) for command in block)
            time.sleep(PAUSE_S)
            found[arm.name].after_pause.append(timed(partial(arm.shell, "true")))
    return found


def throughput(arms: Sequence[Arm], tours: Sequence[Sequence[str]]) -> float:
    """Steps per second when every arm has a thread and a tour of its own."""
    start = threading.Barrier(len(arms) + 1)
    failures: list[BaseException] = []

    def work(arm: Arm, commands: Sequence[str]) -> None:
        start.wait()
        try:
            for command in commands:
                step(arm, command)
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=pair, daemon=True) for pair in zip(arms, tours, strict=True)
    ]
    for thread in threads:
        thread.start()
    start.wait()
    since = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(map(len, tours)) / (time.perf_counter() - since)


def wait_listed(server: AdbServer, serials: set[str]) -> None:
    """Waits until the adb server has all phones."""
    deadline = time.monotonic() + DEADLINE_S
    while not serials <= {serial for serial, state in server.devices().items() if state == "device"}:
        assert time.monotonic() < deadline, "the adb server does not list all phones"
        time.sleep(0.05)


def cpu_s(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(width: int, height: int, num: int, steps: int, port: int) -> None:
    """Prints one screen size's numbers."""
    server = AdbServer(port=port)
    with SimHost(num + 2, width, height, BASE_PORT, adb_server_port=port, token_file="") as host:
        devices = host.start()
        serials = [device.serial for device in devices]
        wait_listed(server, set(serials))
        commands = tour(width, height, steps, seed=1)
        pair = [raw(serials[0], port), through_adbutils(serials[1], port)]
        for name, latency in latencies(pair, commands).items():
            no_op, both, first = map(statistics.median, (latency.no_op, latency.step, latency.after_pause))
            print(
                f"{width}x{height}  {name:<9} shell no-op {no_op:6.2f} ms   tap + screencap {both:6.2f} ms",
                end="",
            )
            print(f"   no-op after a pause {first:6.2f} ms")
            if name == "raw":
                print(f"{'':11}targets: no-op {no_op / 1.0:.2f} of 1 ms", end="")
                print(f", tap + screencap {both / 12.0:.2f} of 12 ms" if width == 1080 else "")
        tours = [tour(width, height, steps, seed) for seed in range(2, num + 2)]
        at_port = [one for one in psutil.net_connections("tcp") if one.laddr.port == port]
        servers = {one.pid for one in at_port if one.status == psutil.CONN_LISTEN and one.pid}
        pids = {*(device.pid for device in devices), os.getpid(), *servers}
        before = sum(map(cpu_s, pids))
        rate = throughput([raw(serial, port) for serial in serials[2:]], tours)
        cpu_ms = 1000 * (sum(map(cpu_s, pids)) - before) / sum(map(len, tours))
        aim = f"  ({rate / 100:.2f} of 100)" if width == 1080 else ""
        print(f"{width}x{height}  {num} devices: {rate:.0f} steps/s{aim}")
        print(
            f"{'':11}{cpu_ms:.1f} ms of CPU a step: no more than {2000 / cpu_ms:.0f} on two idle cores",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(port)
    server = AdbServer(port=port)
    server.ensure_running()
    try:
        for width, height in SIZES:
            measure(width, height, given.devices, given.steps, port)
    finally:
        with contextlib.suppress(DeviceError):  # it hangs up without an answer
            server.ask("host:kill")


if __name__ == "__main__":
    main()
