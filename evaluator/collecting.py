"""Collects demonstrations: episodes of the scripted expert, stored as a dataset that runs can start from.

The n-th episode's task and noise depend on the seed and on n alone, so an interrupted collection ends with
the same episodes. One that faults is tried again up to `evaluate.retries` times, then reported and left out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.configs.schema import Config
from distrl.core.demonstrations import (
    COLLECTION_FILE,
    LOCK_FILE,
    STORE_FILE,
    CollectionSpec,
    check_collection,
    lease_of,
)
from distrl.core.files import remove_files, write_atomically
from distrl.core.rundir import lock_directory
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Spent, Task, Trajectory
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.results import episode_result
from distrl.evaluator.runner import Actor, Attempt, run_episodes
from distrl.evaluator.statistics import EpisodeResult

_FILES = (COLLECTION_FILE, STORE_FILE, LOCK_FILE)


def collect(
    config: Config,
    output: Path,
    spec: CollectionSpec,
    draw: Callable[[], Task],
    resume: bool = False,
    stop: threading.Event | None = None,
    progress: EvaluationProgress | None = None,
) -> list[EpisodeResult]:
    """Collects the missing ones of `spec.episodes` demonstrations.

    Args:
        output: The directory to write; see `distrl.core.demonstrations`.
        draw: Draws the next task; each collection draws the same sequence.

    Returns:
        Their results, without those collected before.

    Raises:
        EvaluationStopped: `stop` was set; `resume` continues from here.
    """
    stop = stop or threading.Event()
    progress = progress or EvaluationProgress("collecting", "demonstrations")
    check_collection(output, spec, resume)
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        lock = lock_directory(output / LOCK_FILE, "collection", "name another directory with --output")
        held.enter_context(lock)
        is_void = is_new = not (output / COLLECTION_FILE).exists()
        held.callback(lambda: remove_files(output, _FILES) if is_void else None)
        write_atomically(output / COLLECTION_FILE, spec.model_dump_json(indent=2))
        store = held.enter_context(contextlib.closing(TrajectoryStore(output / STORE_FILE)))
        held.callback(progress.close)
        done = {trajectory.lease_id for trajectory in store.iterate()}
        tasks = [draw() for _ in range(spec.episodes)]
        wanted = [Attempt(task, name=lease_of(place, task.id)) for place, task in enumerate(tasks)]
        todo = [attempt for attempt in wanted if attempt.lease_id not in done]
        progress.start(len(wanted), len(wanted) - len(todo))

        def keep(
            attempt: Attempt, trajectory: Trajectory, images: Mapping[str, bytes], spent: Spent
        ) -> EpisodeResult:
            if trajectory.fault is Fault.NONE:
                store.add(trajectory, images)
            return episode_result(trajectory, attempt.number)

        actor = Actor(expert_noise=spec.noise)
        try:
            return run_episodes(config, todo, actor, keep, progress, stop, output, "collect")
        finally:
            is_void = is_new and store.count() == 0
