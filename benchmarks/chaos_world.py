"""What `chaos.py` disturbs: simulated phones, an adb server, a worker; and strangers, to be left alone.

    main thread ── tick: host.check, strangers' host.check ── faults ──► consoles, signals, the adb server
    worker (its own threads) ──► adb server ──► phones (a process each)          link: the learner's scheduler

Every process carries `MARK` in its environment, so that left-over ones can be found.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

from distrl.configs.learner import LearnerConfig
from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.types import Fault, Purpose, Trajectory
from distrl.evaluator.suites import load_suite
from distrl.learner.scheduler import TaskScheduler
from distrl.simulator.adb.host import HostedDevice, SimHost
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_server import AdbServer, adb_path
from distrl.workers.devices.console import Console
from distrl.workers.devices.errors import DeviceError
from distrl.workers.devices.pool import make_pool
from distrl.workers.devices.table import Health
from distrl.workers.env_pool import DeviceEnvs
from distrl.workers.worker import Worker

MARK = "DISTRL_CHAOS"
TICK_S = 0.1
START_S = 60.0
SMALL_PICTURE = 20_000
"""Only screenshots with fewer bytes are looked at for being of one colour: others cannot be."""


class CountingLink:
    """The learner's side without a learner: its scheduler hands out demonstrations and counts what it takes.

    Attributes:
        done: When each accepted episode ended, and its number of steps.
        num_faulted: Episodes that ended by a fault.
        num_wrong: Accepted episodes that show a fault all the same: not solved, or with a blank screenshot.
    """

    def __init__(self, folder: Path) -> None:
        config = LearnerConfig.model_validate(
            {"demonstrations": {"episodes": 10**6, "noise": 0.0}, "lease_ttl_s": 600.0}
        )
        self.scheduler = TaskScheduler(config, load_suite("quickstart", "train"), (), 0, "chaos", b"secret")
        self.shutdown = threading.Event()
        self.has_policy = False  # demonstrations need no inference server
        self.stats: Mapping[str, float] = {}
        self.done: list[tuple[float, int]] = []
        self.num_faulted = self.num_wrong = 0
        self._log = (folder / "faults.txt").open("w", encoding="utf-8", buffering=1)

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        """A demonstration."""
        granted = self.scheduler.grant("chaos", 1)
        return granted[0] if granted else None

    def release(self, lease_id: str) -> None:
        """Takes a lease back."""
        self.scheduler.release("chaos", [lease_id])

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Takes an episode, as the learner does."""
        self.scheduler.finish(trajectory)
        self.scheduler.account(trajectory)
        if trajectory.fault is not Fault.NONE:
            self.num_faulted += 1
            self._log.write(f"{trajectory.task.id}: {trajectory.fault_detail}\n")
        else:
            self.done.append((time.monotonic(), len(trajectory.steps)))
            if trajectory.success != 1.0 or any(map(_is_blank, images.values())):
                self.num_wrong += 1
                self._log.write(f"{trajectory.task.id}: accepted, but wrong\n")

    def set_stats(self, stats: Mapping[str, float]) -> None:
        """Heartbeats' numbers."""
        self.stats = stats

    def check(self) -> None:
        """Nothing can go wrong with it."""

    def rate(self, since: float, until: float) -> float:
        """Accepted steps a second between two monotonic times."""
        return sum(steps for at, steps in list(self.done) if since < at <= until) / (until - since)

    def counts(self) -> dict[str, float]:
        """What became of all episodes."""
        metrics = self.scheduler.metrics()
        return {
            "episodes": self.scheduler.accounted(Purpose.DEMO),
            "faulted": self.num_faulted,
            "wrong": self.num_wrong,
            "lost": metrics["scheduler/expired"] + metrics["scheduler/leases_out"],
            "given_up": metrics["scheduler/abandoned"],
        }


def _is_blank(data: bytes) -> bool:
    if len(data) > SMALL_PICTURE:
        return False
    return all(low == high for low, high in Image.open(io.BytesIO(data)).convert("RGB").getextrema())


class Server:
    """An adb server at a port of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, unless the pool was faster."""
        environment = {**os.environ, "ADB_LIBUSB": "0", "ANDROID_ADB_SERVER_PORT": str(self.port)}
        self._process = subprocess.Popen(
            [adb_path(), "-P", str(self.port), "nodaemon", "server"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_S
        while not self.answers():
            assert time.monotonic() < deadline, f"no adb server at port {self.port}"
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether a server is there."""
        try:
            AdbServer(port=self.port).version()
        except DeviceError:
            return False
        return True

    def kill(self) -> None:
        """Ends whichever server is at the port now: ours, or one that the pool has started."""
        with contextlib.suppress(DeviceError):
            AdbServer(port=self.port).ask("host:kill")
        if self._process is not None:
            self._process.wait(START_S)


class World:
    """All of it.

    Args:
        num: Phones, each in a process of its own.
        folder: For logs and post-mortems.
        hurry: How much shorter than usual the pool's pauses are, 1 for as usual.
        size: Of the phones' screens, in pixels.
        latency_s: What an action takes besides, in the median, as on a real device: without, the machine's
            cores are the limit, and a device that is missing is not missed.
    """

    def __init__(self, num: int, folder: Path, hurry: float, size: tuple[int, int], latency_s: float) -> None:
        self.mark = os.environ[MARK] = uuid.uuid4().hex
        self.folder = folder
        first = free_ports(2 * num + 4)
        self.server, self._foreign_server, base = Server(first), Server(first + 1), first + 2
        self.host = SimHost(num, *size, base, num, self.server.port, token_file="")
        self._foreign_host = SimHost(1, *size, base + 2 * num, 1, self._foreign_server.port, token_file="")
        self.link = CountingLink(folder)
        self.stop = threading.Event()
        self._strangers: set[int] = set()
        self._hurry, self._latency_s = hurry, latency_s

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Starts everything; in the end stops it."""
        with contextlib.ExitStack() as stack:
            for server in (self.server, self._foreign_server):
                stack.callback(server.kill)
                server.start()
            for host in (self.host, self._foreign_host):
                stack.enter_context(host)
                host.start()
            self._strangers = self._stranger_pids()
            config = self._config()
            health = Health(
                probe_every_s=max(1.0, 10.0 * self._hurry),
                pause_s=max(1.0, 10.0 * self._hurry),
                max_pause_s=max(2.0, 20.0 * self._hurry),
            )
            places = DeviceEnvs(config.env, make_pool(config, config.worker.slots, health).start())
            stack.callback(places.close)
            worker = Worker(config, self.link, _nobody, "chaos", self.stop, places)
            self.places = places
            thread = threading.Thread(target=worker.run, name="worker", daemon=True)
            thread.start()
            stack.callback(thread.join, START_S)
            stack.callback(self.stop.set)
            yield

    def _config(self) -> Config:
        serials = [phone.serial for phone in self.host.devices()]
        devices = {
            "adb_server_port": self.server.port,
            "pool": [{"kind": "adb", "serials": serials}],
        }
        latency = {"kind": "lognormal", "median_s": self._latency_s, "sigma": 0.3}
        return Config.model_validate(
            {
                "runs_dir": str(self.folder),
                "env": {"kind": "phone", "options": {"latency": latency}},
                "worker": {"slots": len(serials)},
                "devices": devices,
            }
        )

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Lets time pass while dead phones are started again. Returns whether `until` came true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if until():
                return True
            self.host.check()
            self._foreign_host.check()
            time.sleep(TICK_S)
        return until()

    def phone(self, index: int) -> HostedDevice:
        """A phone that runs."""
        devices = self.host.devices()
        return devices[index % len(devices)]

    def say(self, phone: HostedDevice, line: str) -> None:
        """Gives a command to a phone's console; one that is gone gets none."""
        with contextlib.suppress(DeviceError):
            Console(phone.console_port).command(line)

    def strangers_are_well(self) -> bool:
        """Whether the adb server and the phone that are not ours are the same, and work."""
        (phone,) = self._foreign_host.devices()
        answer = AdbClient(phone.serial, self._foreign_server.port).shell("echo here", 10.0).text
        return answer.strip() == "here" and self._stranger_pids() == self._strangers

    def _stranger_pids(self) -> set[int]:
        port = str(self._foreign_server.port)
        pids = {pid for pid in children_of(os.getpid()) if port in command_of(pid)}
        return pids | {device.pid for device in self._foreign_host.devices()}

    def left_over(self) -> list[str]:
        """The commands of processes that were started here and still run."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() in path.read_bytes().split(b"\0"):
                    pid = int(path.parent.name)
                    if pid != os.getpid():
                        found.append(" ".join(command_of(pid)))
        return found


class _Nobody:
    """The policy client of a worker that only demonstrates."""

    def act(self, *_: object) -> object:
        """Never called."""
        raise AssertionError("a demonstration asked for a policy")

    def close(self) -> None:
        """Nothing to close."""


def _nobody(slot: int) -> _Nobody:
    return _Nobody()


def free_ports(count: int) -> int:
    """The first, even, of `count` ports in a row that are free now."""
    for first in range(21000, 32000, 100):
        sockets: Sequence[socket.socket] = [socket.socket() for _ in range(count)]
        try:
            for offset, probe in enumerate(sockets):
                probe.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for probe in sockets:
                probe.close()
    raise AssertionError("no free ports")


def children_of(parent: int) -> list[int]:
    """The process ids of a process's children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def command_of(pid: int) -> list[str]:
    """A process's command line; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []
