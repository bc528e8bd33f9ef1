"""How much faster slots collect trajectories when they never wait for each other.

One worker process with 32 slots (`distrl run-worker`, as users start it), a real learner server with its
durable store, and an inference server on real sockets; only the devices and the policy are virtual. A device
really waits for as long as its episode takes; the policy answers at once. Durations follow the DistRL paper,
which says (section 2) that "task durations can vary by up to 100 times, ranging from seconds to over ten
minutes", and uses 32 emulators: they are log-normal with a median of 60 s and a log-standard deviation of 1,
clipped to [6 s, 600 s], all times `--scale` so that a run takes about two minutes. Shrinking the
durations but not the work around them makes overhead weigh 1/scale times *more* than on real devices.

Arms
    async  each slot leases its next episode as soon as it has handed in the last (the default).
    sync   `worker.barrier=true`: all slots wait for the slowest of each round, as in synchronous collection.
    ideal  no run: the drawn durations, in the order of the leases, on as many devices, each of which begins
           the next episode in the instant in which one ends (greedy list scheduling, zero overhead).

What is measured. async and ideal: the time T from the first start of an episode to the N-th; N − slots
episodes are done by then, and every slot is busy until then, so the tail after the last lease, when slots run
dry, does not enter. The rate is (N − slots)/T, so async/ideal is T_ideal/T_async for the very same durations.
sync: rounds · slots trajectories from the first start to the last end; its durations are async's first ones.
Starts and ends are those recorded in the trajectories, resets included. The overhead is everything that an
episode takes beyond its drawn duration; its parts are printed. Other load on the machine counts as overhead.

    python benchmarks/async_vs_sync.py
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import heapq
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from distrl.configs.schema import Config
from distrl.core.actions import Action, ActionKind
from distrl.core.messages import ActReply, ActRequest, Lease
from distrl.core.security import Client
from distrl.core.service import Service
from distrl.core.sockets import Poller, Received, Waker, Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import Completion, Fault, Task, Trajectory
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.client import LearnerLink
from distrl.workers.envs.base import Frame, StepResult

MEDIAN_S, LOG_STD, SHORTEST_S, LONGEST_S = 60.0, 1.0, 6.0, 600.0
TARGET_SYNC, TARGET_IDEAL = 2.4, 0.97
SCREEN_SIZE, NUM_SCREENS = (540, 1200), 8
DEADLINE_S = 300.0
WAIT = AutoUIAgent().format(Action(kind=ActionKind.WAIT))
LOCAL = "tcp://127.0.0.1:*"


class VirtualDevice:
    """Waits in its reset and in each step for an equal share of the episode's duration; nothing else."""

    def __init__(self) -> None:
        self._screens = draw_screens()
        self._share_s = 0.0
        self._left = self._shown = 0

    def reset(self, task: Task) -> Frame:
        self._left = self._shown = int(task.params["steps"])
        self._share_s = float(task.params["duration_s"]) / (self._left + 1)
        return self._wait()

    def step(self, action: Action) -> StepResult:
        self._left -= 1
        return StepResult(self._wait(), done=self._left == 0)

    def evaluate(self) -> float:
        return 1.0

    def expert_action(self) -> Action:
        return Action(kind=ActionKind.WAIT)

    def close(self) -> None:
        pass

    def _wait(self) -> Frame:
        time.sleep(self._share_s)
        return Frame.of(self._screens[self._left % NUM_SCREENS])


_drawing = threading.Lock()


def draw_screens() -> list[Image.Image]:
    """The pictures that all devices show; drawn once."""
    with _drawing:
        return _draw_screens()


@functools.cache
def _draw_screens() -> list[Image.Image]:
    return [draw_screen(seed) for seed in range(NUM_SCREENS)]


def draw_screen(seed: int) -> Image.Image:
    """A picture that is about as large as a phone's screenshot when it is encoded (100 kB)."""
    rng = random.Random(seed)
    image = Image.new("RGB", SCREEN_SIZE, "white")
    pen = ImageDraw.Draw(image)
    for _ in range(400):
        x, y = rng.randrange(SCREEN_SIZE[0]), rng.randrange(SCREEN_SIZE[1])
        colour = tuple(rng.randrange(256) for _ in range(3))
        pen.rectangle((x, y, x + rng.randrange(8, 90), y + rng.randrange(4, 30)), fill=colour)
    return image


class ListScheduler:
    """Grants a list of leases in order, from when `workers` workers have asked."""

    def __init__(self, leases: Sequence[Lease], workers: int) -> None:
        self._open, self._workers, self._seen = list(leases), workers, set[str]()

    def grant(self, worker: str, count: int, limit: int, client: Client | None) -> Sequence[Lease]:
        self._seen.add(worker)
        if len(self._seen) < self._workers:
            return ()
        granted, self._open = self._open[:count], self._open[count:]
        return granted

    def renew(self, worker: str, lease_ids: Sequence[str]) -> None:
        pass

    def release(self, worker: str, lease_ids: Sequence[str]) -> None:
        pass

    def check(self, trajectory: Trajectory) -> str:
        return ""

    def finish(self, trajectory: Trajectory) -> None:
        pass

    def tick(self) -> None:
        pass


@contextlib.contextmanager
def canned_inference(endpoints: Endpoints, text: str = WAIT) -> Iterator[None]:
    """An inference server that answers `text` at once."""
    completion = Completion(text=text)
    wire, waker, stopping = Wire(), Waker(), threading.Event()
    channel = wire.bind_router(LOCAL)

    def answer(received: Received) -> None:
        assert isinstance(received.message, ActRequest)
        service.reply(received.peer, ActReply(id=received.message.id, completion=completion))

    def run() -> None:
        poller = Poller([channel], waker)
        while not stopping.is_set():
            poller.wait(0.2)
            service.pump()

    service = Service(channel, answer)
    link = LearnerLink(
        wire, endpoints.control, endpoints.broadcast, "inference", "canned", act_endpoint=channel.endpoint
    )
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    link.start()
    try:
        yield
    finally:
        stopping.set()
        waker.wake()
        thread.join(5.0)
        link.close()
        wire.close()
        waker.close()


@contextlib.contextmanager
def worker_process(
    endpoints: Endpoints, directory: Path, name: str = "w", **sections: Mapping[str, object]
) -> Iterator[subprocess.Popen[bytes]]:
    """`distrl run-worker` with these sections of the configuration."""
    network = {"control": endpoints.control, "broadcast": endpoints.broadcast}
    config = Config.model_validate({"network": network, **sections})
    file = directory / f"{name}.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    command = [sys.executable, "-m", "distrl", "run-worker", str(file), "--name", name]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--spool", str(directory)], env={**os.environ, "PYTHONPATH": path}, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10.0)


def collect(
    durations: Sequence[float], slots: int, steps: int, barrier: bool, workers: int = 1
) -> list[Trajectory]:
    """Runs an episode of each duration (seconds) and returns the trajectories, by start."""
    leases = [
        Lease(id=f"lease-{index}", task=make_task(index, duration_s, steps))
        for index, duration_s in enumerate(durations)
    ]
    ingested: queue.Queue[Trajectory] = queue.Queue(len(leases))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        store = TrajectoryStore(directory / "store.sqlite3")
        stack.callback(store.close)
        server = LearnerServer(
            Endpoints(LOCAL, LOCAL, LOCAL), None, store, ListScheduler(leases, workers), ingested, "benchmark"
        )
        stack.callback(server.close)
        server.start()
        stack.enter_context(canned_inference(server.endpoints))
        env, worker = {"import_path": "async_vs_sync:VirtualDevice"}, {"slots": slots, "barrier": barrier}
        for index in range(workers):
            run = worker_process(server.endpoints, directory, f"w{index}", env=env, worker=worker)
            stack.enter_context(run)
        found = [ingested.get(timeout=DEADLINE_S) for _ in leases]
    assert all(trajectory.fault is Fault.NONE for trajectory in found), "an episode failed"
    return sorted(found, key=lambda trajectory: trajectory.started_at)


def make_task(index: int, duration_s: float, steps: int) -> Task:
    """The task of an episode that takes its device `duration_s`."""
    return Task(
        id=f"virtual/{index}",
        suite="virtual",
        template="wait",
        split="train",
        goal="wait",
        params={"duration_s": duration_s, "steps": steps},
        max_steps=steps + 1,
    )


def draw_durations(count: int, scale: float, seed: int) -> list[float]:
    """Seconds that episodes take on their device."""
    rng = np.random.default_rng(seed)
    seconds = MEDIAN_S * np.exp(LOG_STD * rng.standard_normal(count))
    return [float(value) for value in np.clip(seconds, SHORTEST_S, LONGEST_S) * scale]


def ideal_time(durations: Sequence[float], slots: int) -> float:
    """When the last of `durations` begins if each device begins the next one as soon as one ends."""
    free_at = [0.0] * slots
    for duration_s in durations[:-1]:
        heapq.heapreplace(free_at, free_at[0] + duration_s)
    return free_at[0]


def overhead(found: Sequence[Trajectory]) -> str:
    """The mean milliseconds that episodes took beyond their drawn durations, by part."""
    parts = {"policy": 0.0, "screenshots": 0.0, "device late": 0.0, "rest": 0.0}
    for trajectory in found:
        drawn_s = float(trajectory.task.params["duration_s"])
        share_s = drawn_s / (len(trajectory.steps) + 1)
        timings = [step.timing for step in trajectory.steps]
        spent = {
            "policy": sum(timing.think_s for timing in timings),
            "screenshots": sum(timing.observe_s for timing in timings),
            "device late": sum(timing.act_s - share_s for timing in timings),
        }
        spent["rest"] = trajectory.duration_s - drawn_s - sum(spent.values())
        for part, seconds in spent.items():
            parts[part] += 1000.0 * seconds / len(found)
    gaps = []
    by_slot: dict[int, float] = {}
    for trajectory in found:  # by start
        if trajectory.slot in by_slot:
            gaps.append(trajectory.started_at - by_slot[trajectory.slot])
        by_slot[trajectory.slot] = trajectory.started_at + trajectory.duration_s
    parts["hand in and lease"] = 1000.0 * float(np.mean(gaps))
    return ", ".join(f"{part} {value:.1f}" for part, value in parts.items())


def main() -> None:
    """Runs the arms and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=320, help="of the asynchronous arm")
    parser.add_argument("--rounds", type=int, default=3, help="of the synchronous arm")
    parser.add_argument("--steps", type=int, default=8, help="per episode")
    parser.add_argument("--scale", type=float, default=1 / 25, help="of the paper's durations")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    slots, count = args.slots, args.slots * args.rounds
    durations = draw_durations(args.episodes, args.scale, args.seed)
    if args.episodes <= slots or args.episodes < count:
        parser.error("--episodes must be more than --slots and at least --slots times --rounds")
    print(
        f"{slots} slots, {args.episodes} episodes of {args.steps} steps; seconds on the device: "
        f"{min(durations):.2f} to {max(durations):.1f}, mean {np.mean(durations):.2f} "
        f"(the paper's times {args.scale:g})"
    )

    found = collect(durations, slots, args.steps, barrier=False)
    async_s, ideal_s = found[-1].started_at - found[0].started_at, ideal_time(durations, slots)
    rounds = collect(durations[:count], slots, args.steps, barrier=True)
    sync_s = max(t.started_at + t.duration_s for t in rounds) - rounds[0].started_at
    sync_bound_s = sum(max(durations[first : first + slots]) for first in range(0, count, slots))

    done = args.episodes - slots
    per_minute = {"async": 60 * done / async_s, "ideal": 60 * done / ideal_s, "sync": 60 * count / sync_s}
    print(f"{'arm':<8}{'trajectories':>14}{'seconds':>10}{'per minute':>12}{'per minute, paper time':>25}")
    for arm, number, seconds in (("async", done, async_s), ("ideal", done, ideal_s), ("sync", count, sync_s)):
        rate = per_minute[arm]
        print(f"{arm:<8}{number:>14}{seconds:>10.1f}{rate:>12.1f}{rate * args.scale:>25.2f}")
    print(f"sync against its own bound, the sum of each round's longest episode: {sync_bound_s / sync_s:.3f}")
    all_busy_s = found[slots - 1].started_at - found[0].started_at
    print(f"the first {slots} episodes began within {all_busy_s:.2f} s")
    print("overhead of an asynchronous episode, ms: " + overhead(found))
    for name, other, target in (("async/sync", "sync", TARGET_SYNC), ("async/ideal", "ideal", TARGET_IDEAL)):
        ratio = per_minute["async"] / per_minute[other]
        print(f"{name:<12} {ratio:.3f}  (target {target}: {'met' if ratio >= target else 'missed'})")


if __name__ == "__main__":
    main()
