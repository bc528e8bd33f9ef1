"""How collection scales with slots in one worker process, and with worker processes.

Set-up as in `async_vs_sync.py`, with durations drawn evenly from ±50% around the mean. A slot's utilisation
is the share of the time between the starts of its first and its last episode in which its device was at work
on an episode (the drawn durations, without any overhead). Rates are utilisation · slots / mean duration, so
the share of linear scaling is a pool's utilisation over that of one slot alone. Start-up and the tail do not
enter.

    python benchmarks/scaling.py
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from async_vs_sync import collect

from distrl.core.types import Trajectory

TARGET = 0.95
EPISODES_PER_SLOT = 5
POOLS = ((1, 1), (1, 16), (1, 64), (4, 16))


def utilisation(workers: int, slots: int, mean_s: float, steps: int) -> float:
    """The share of their time that devices are at work."""
    count = workers * slots * EPISODES_PER_SLOT
    durations = np.random.default_rng(0).uniform(0.5 * mean_s, 1.5 * mean_s, count)
    by_slot: dict[tuple[str, int], list[Trajectory]] = defaultdict(list)
    for trajectory in collect([float(d) for d in durations], slots, steps, barrier=False, workers=workers):
        by_slot[trajectory.worker, trajectory.slot].append(trajectory)
    assert len(by_slot) == workers * slots, "a slot had nothing to do"
    busy_s = sum(t.task.params["duration_s"] for of_slot in by_slot.values() for t in of_slot[:-1])
    total_s = sum(of_slot[-1].started_at - of_slot[0].started_at for of_slot in by_slot.values())
    return float(busy_s / total_s)


def main() -> None:
    """Prints the share of linear scaling that each pool reaches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mean", type=float, default=4.0, help="seconds that an episode takes its device")
    parser.add_argument("--steps", type=int, default=8, help="per episode")
    args = parser.parse_args()
    print(f"episodes of {args.steps} steps in {0.5 * args.mean:g} to {1.5 * args.mean:g} s")
    print(f"{'workers':>8}{'slots each':>12}{'a minute':>11}{'of linear':>11}")
    alone = 0.0
    for workers, slots in POOLS:
        busy = utilisation(workers, slots, args.mean, args.steps)
        alone = alone or busy
        per_minute, share = 60 * busy * workers * slots / args.mean, busy / alone
        verdict = "met" if share >= TARGET else "missed"
        print(f"{workers:>8}{slots:>12}{per_minute:>11.1f}{share:>11.3f}  (target {TARGET}: {verdict})")


if __name__ == "__main__":
    main()
