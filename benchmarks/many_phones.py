"""How many simulated phones one machine carries, up to 2,048 on eight workers, and their cost.

Workers are `distrl run-worker` processes, as users start them, whose slots play the quickstart's tasks on
simulated phones that are read and never drawn; a real learner server commits every trajectory to its store.
Only the policy is canned: it answers at once, so that its cost does not hide that of everything else. An
action takes its phone a lognormal time with the median `--median`, in seconds, whose draws are known. A
slot's utilisation is the share of the time between the starts of its first and its last episode for which
its phone was made to wait. Linear scaling is the utilisation of eight slots, one for each worker.

CPU and bytes are those of the whole measurement, including the start of the workers; memory is the workers'
at its end, less their memory with one slot each, by slot.

    python benchmarks/many_phones.py
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import random
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil
from async_vs_sync import LOCAL, ListScheduler, canned_inference, worker_process

from distrl.core.messages import Lease
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Trajectory
from distrl.evaluator.suites import load_suite
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers.envs.phone import Latency

TARGET, TARGET_MB = 0.95, 25.0
WORKERS, POOLS = 8, (8, 64, 256, 1024, 2048)
STEPS, EPISODES_PER_SLOT, DEADLINE_S = 4, 4, 1200.0


@dataclass
class Cost:
    """The cost of a measurement: trajectories, CPU seconds, bytes."""

    found: list[Trajectory]
    seconds: float
    workers_cpu_s: float
    learner_cpu_s: float
    workers_bytes: int
    stored_bytes: int


def run(slots: int, latency: Latency) -> Cost:
    """Episodes of `STEPS` actions on so many slots, spread evenly over the workers."""
    tasks = load_suite("quickstart", "train")
    count = slots * EPISODES_PER_SLOT
    leases = [
        Lease(id=f"lease-{n}", task=tasks[n % len(tasks)].model_copy(update={"seed": n, "max_steps": STEPS}))
        for n in range(count)
    ]
    ingested: queue.Queue[Trajectory] = queue.Queue(count)
    sections = {
        "env": {"kind": "phone", "options": {"latency": latency.model_dump()}},
        "worker": {"slots": slots // WORKERS, "screenshot_format": "none"},
        "agent": {"kind": "elements"},
        "policy": {"kind": "reader"},
    }
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        store = TrajectoryStore(directory / "store.sqlite3")
        stack.callback(store.close)
        scheduler = ListScheduler(leases, WORKERS)
        server = LearnerServer(Endpoints(LOCAL, LOCAL, LOCAL), None, store, scheduler, ingested, "benchmark")
        stack.callback(server.close)
        server.start()
        stack.enter_context(canned_inference(server.endpoints, "swipe up"))
        began, own = time.monotonic(), time.process_time()
        processes = [
            psutil.Process(
                stack.enter_context(worker_process(server.endpoints, directory, f"w{n}", **sections)).pid
            )
            for n in range(WORKERS)
        ]
        found = [ingested.get(timeout=DEADLINE_S) for _ in leases]
        assert all(trajectory.fault is Fault.NONE for trajectory in found), "an episode failed"
        return Cost(
            found,
            time.monotonic() - began,
            sum(sum(process.cpu_times()[:2]) for process in processes),
            time.process_time() - own,
            sum(process.memory_full_info().uss for process in processes),
            sum(file.stat().st_size for file in directory.glob("store.sqlite3*")),
        )


def utilisation(found: list[Trajectory], latency: Latency) -> float:
    """The share of their time for which phones were made to wait."""
    by_slot: dict[tuple[str, int], list[Trajectory]] = defaultdict(list)
    for trajectory in sorted(found, key=lambda one: one.started_at):
        by_slot[trajectory.worker, trajectory.slot].append(trajectory)
    waited_s = total_s = 0.0
    for of_slot in by_slot.values():
        total_s += of_slot[-1].started_at - of_slot[0].started_at
        for one in of_slot[:-1]:
            rng = random.Random(f"latency/{one.task.seed}/{one.task.id}")
            waited_s += sum(latency.draw(rng) for _ in one.steps)
    return waited_s / total_s


def main() -> None:
    """Prints a line for each number of slots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--median", type=float, default=20.0, help="seconds that an action takes a phone")
    parser.add_argument("--slots", type=int, nargs="+", default=POOLS, help="multiples of 8, the first is 8")
    args = parser.parse_args()
    latency = Latency(kind="lognormal", median_s=args.median, sigma=0.3)
    print(f"{WORKERS} workers, actions of {args.median:g} s, {STEPS} an episode")
    print(
        f"{'slots':>6}{'actions/s':>11}{'of linear':>11}{'MB a slot':>11}{'worker ms':>11}{'learner ms':>12}"
        f"{'stored KB':>11}   (the last three by action)"
    )
    alone = base = 0.0
    for slots in args.slots:
        cost = run(slots, latency)
        busy = utilisation(cost.found, latency)
        alone, base = alone or busy, base or cost.workers_bytes
        actions = sum(len(one.steps) for one in cost.found)
        mean_s = latency.median_s * 2.718281828 ** (latency.sigma**2 / 2)
        share, megabytes = busy / alone, (cost.workers_bytes - base) / slots / 1e6
        verdict = "met" if share >= TARGET and megabytes <= TARGET_MB else "missed"
        print(
            f"{slots:>6}{busy * slots / mean_s:>11.1f}{share:>11.3f}{megabytes:>11.2f}"
            f"{1e3 * cost.workers_cpu_s / actions:>11.1f}{1e3 * cost.learner_cpu_s / actions:>12.2f}"
            f"{cost.stored_bytes / actions / 1e3:>11.2f}   {verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
