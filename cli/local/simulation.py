"""A run in virtual time, from its directory to its summary; see `distrl.learner.virtual`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from distrl.cli.run_kind import task_sets
from distrl.configs.schema import Config
from distrl.core.checkpoints import resolve
from distrl.core.rundir import RunDir
from distrl.evaluator.measure import Measured, measure
from distrl.evaluator.run_state import arms
from distrl.workers.virtual import Moment, World

if TYPE_CHECKING:
    from distrl.learner.virtual import Counts, VirtualLearner

SAY_S = 10.0
Say = Callable[[str], None]

SUMMARY = {
    "workers/actions_per_s": ("actions per second", "{:.2f}"),
    "simulation/episodes_per_h": ("episodes per hour", "{:,.0f}"),
    "simulation/updates_per_h": ("updates per hour", "{:,.0f}"),
    "simulation/learner_idle_share": ("learner waits for episodes", "{:.0%}"),
    "workers/idle_share": ("slots wait for a lease", "{:.0%}"),
    "inference/busy_share": ("servers busy", "{:.0%}"),
    "inference/queue_wait_p50_ms": ("wait of a request, median (ms)", "{:,.0f}"),
    "inference/queue_wait_p99_ms": ("wait of a request, 99th percentile (ms)", "{:,.0f}"),
    "simulation/staleness_mean": ("staleness in updates, mean (versions)", "{:.1f}"),
    "simulation/staleness_p90": ("staleness in updates, 90th percentile (versions)", "{:.0f}"),
    "simulation/received_mb_per_s": ("learner receives trajectories (MB/s)", "{:.3f}"),
    "simulation/sent_mb_per_s": ("learner sends weights (MB/s)", "{:.3f}"),
    "simulation/stored_gb_per_day": ("store grows, until store.max_bytes (GB a day)", "{:.2f}"),
}
"""The numbers of a simulation's online phase that a plan needs: in words, and their format."""


def train(config: Config, run: RunDir, stop: threading.Event, say: Say) -> dict[str, float] | None:
    """Trains in virtual time and returns the numbers of `SUMMARY`; None if it was stopped."""
    from distrl.core.policies import use_threads
    from distrl.learner.context import LAST_ROUND
    from distrl.learner.scheduler import DONE, TRAINING
    from distrl.learner.virtual import VirtualPeers, open_virtual_learner
    from distrl.workers.inference.serve import build_engine

    tasks = task_sets(config)
    with contextlib.ExitStack() as stack:
        engine = build_engine(config, tasks.words, "virtual")
        stack.callback(engine.close)
        use_threads(config.learner.threads)

        worlds: list[World] = []

        def make_world(peers: VirtualPeers) -> World:
            worlds.append(stack.enter_context(contextlib.closing(World(config, engine, peers))))
            return worlds[0]

        opened = stack.enter_context(open_virtual_learner(config, run, tasks, stop, make_world))
        learner, world = opened.learner, worlds[0]
        starts: list[tuple[Moment, Counts]] = []
        summary: dict[str, float] = {}

        def on_phase(phase: str) -> None:
            say(f"{world.now / 60:.1f} min: {phase}")
            if phase == TRAINING and not starts:
                starts.append((world.moment(), opened.counts()))
            elif phase in (LAST_ROUND, DONE) and starts and not summary:
                summary.update(summarise(opened, world, *starts[0]))
                learner.context.report.write(summary)

        opened.peers.on_phase = on_phase
        opened.peers.show = _Lines(world, say)
        learner.run()
        return None if stop.is_set() else summary


def summarise(opened: VirtualLearner, world: World, start: Moment, before: Counts) -> dict[str, float]:
    """The numbers of `SUMMARY` and others, since the online phase began at `start`, with `before` counted.

    The learner receives what it stores; each screenshot travels once. It sends every version to each server.
    """
    staleness = sorted(opened.updates.staleness) or [0]
    seconds = max(1e-9, world.now - start.at)
    found = world.since(start)
    updates, now = opened.learner.progress.updates, opened.counts()
    received = (now.stored_bytes - before.stored_bytes) / seconds / 1e6
    sent = (now.published_bytes - before.published_bytes) / seconds / 1e6
    return {
        **found,
        "simulation/hours": seconds / 3600.0,
        "simulation/episodes_per_h": 3600.0 * found.get("workers/episodes_per_s", 0.0),
        "simulation/updates_per_h": 3600.0 * updates / seconds,
        "simulation/learner_idle_share": (now.waited_s - before.waited_s) / seconds,
        "simulation/staleness_mean": fmean(staleness),
        "simulation/staleness_p90": float(staleness[len(staleness) * 9 // 10]),
        "simulation/received_mb_per_s": received,
        "simulation/sent_mb_per_s": sent * world.num_servers,
        "simulation/stored_gb_per_day": received * 86.4,
    }


class _Lines:
    """Shows the newest metrics as a line, every `SAY_S` seconds of real time."""

    def __init__(self, world: World, say: Say) -> None:
        self._world, self._say, self._due = world, say, time.monotonic() + SAY_S

    def __call__(self, metrics: Mapping[str, float]) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + SAY_S
        parts = [f"{self._world.now / 60:.1f} min", f"{metrics.get('updates', 0.0):.0f} updates"]
        if "train/success" in metrics:
            parts.append(f"success of the last 100 episodes {metrics['train/success']:.0%}")
        self._say(" · ".join(parts))


def evaluate(config: Config, run: RunDir, stop: threading.Event) -> dict[str, Path]:
    """Measures the warm start and the result on the test splits, where nothing takes time."""
    results: dict[str, Path] = {}
    for label, checkpoint in arms(run, config).items():
        path = resolve(run.checkpoints, checkpoint)
        results[label] = run.evaluations / path.name
        measure(config, Measured(checkpoint=path), results[label], resume=True, stop=stop)
    return results


def lines(summary: Mapping[str, float]) -> list[str]:
    """The summary for people."""
    width = max(len(words) for words, _ in SUMMARY.values())
    return [
        f"{words.ljust(width)}  {form.format(summary[name])}"
        for name, (words, form) in SUMMARY.items()
        if name in summary
    ]
