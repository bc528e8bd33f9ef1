"""Collecting demonstrations: episodes of the scripted expert, stored as a dataset that runs can start from.

    main thread ── attempts ──► SlotPool (N slot threads) ── finished episodes ──► main: store, count

The n-th episode's task and noise depend on the seed and on n alone, so a collection that was interrupted ends
with the same episodes. One that faults is tried again up to `evaluate.retries` times, then left out and told.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
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
from distrl.core.rundir import RunLock
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Task
from distrl.evaluator.ended import is_over, verdict_on
from distrl.evaluator.evaluator import STEP_S, EvaluationStopped
from distrl.evaluator.judges.ground_truth import GroundTruthJudge
from distrl.evaluator.progress import EvaluationProgress, make_progress
from distrl.evaluator.results import episode_result
from distrl.evaluator.slots import Attempt, Finished, HowToAct, SlotPool
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.waiting import next_episode
from distrl.workers.places import Places, open_places

_FILES = (COLLECTION_FILE, STORE_FILE, LOCK_FILE)


class Collector:
    """Collects `spec.episodes` demonstrations.

    Args:
        config: The sections env, devices, agent, worker and evaluate are used.
        output: The directory to write; see `distrl.core.demonstrations`.
        spec: What is collected.
        draw: The next task; the same sequence whenever it starts anew.
        resume: Go on with the collection in `output`.
        stop: Ends it early when set.
        progress: Who is told; by default a bar on a terminal and lines in a log.

    Raises:
        RunDirectoryError: `output` holds something else.
    """

    def __init__(
        self,
        config: Config,
        output: Path,
        spec: CollectionSpec,
        draw: Callable[[], Task],
        resume: bool = False,
        stop: threading.Event | None = None,
        progress: EvaluationProgress | None = None,
    ) -> None:
        self._config, self._output, self._spec, self._draw = config, output, spec, draw
        self._stop = stop or threading.Event()
        self._progress = progress or make_progress(doing="collecting", what="demonstrations")
        self._judge = GroundTruthJudge()
        check_collection(output, spec, resume)

    def run(self) -> list[EpisodeResult]:
        """Collects what is missing. Returns what became of it; what was collected before is not told again.

        Raises:
            EvaluationStopped: `stop` was set; `resume` goes on from here.
            DistrlError: Something that no retry mends, or another process collects into this directory.
                Without any episode no directory is left behind.
        """
        self._output.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            lock = RunLock(self._output / LOCK_FILE, "collection", "name another directory with --output")
            held.enter_context(lock)
            is_void = is_new = not (self._output / COLLECTION_FILE).exists()
            held.callback(lambda: remove_files(self._output, _FILES) if is_void else None)
            write_atomically(self._output / COLLECTION_FILE, self._spec.model_dump_json(indent=2))
            store = held.enter_context(contextlib.closing(TrajectoryStore(self._output / STORE_FILE)))
            held.callback(self._progress.close)
            try:
                return self._collect_missing(store)
            finally:
                is_void = is_new and store.count() == 0 and not self._stop.is_set()

    def _collect_missing(self, store: TrajectoryStore) -> list[EpisodeResult]:
        done = {trajectory.lease_id for trajectory in store.iterate()}
        wanted = [self._attempt(place) for place in range(self._spec.episodes)]
        todo = [attempt for attempt in wanted if attempt.lease_id not in done]
        self._progress.start(len(wanted), len(wanted) - len(todo))
        return self._collect(todo, store) if todo else []

    def _attempt(self, place: int) -> Attempt:
        task = self._draw()
        return Attempt(task, name=lease_of(place, task.id))

    def _collect(self, todo: Sequence[Attempt], store: TrajectoryStore) -> list[EpisodeResult]:
        num_slots = min(self._config.evaluate.slots, len(todo))
        results: list[EpisodeResult] = []
        act = HowToAct(expert_noise=self._spec.noise, worker="collect")
        with contextlib.closing(open_places(self._config, num_slots)) as places:
            pool = SlotPool(self._config, places, None, act, num_slots, capacity=len(todo))
            try:
                for attempt in todo:
                    pool.submit(attempt)
                pool.start()
                longest = max(attempt.task.max_steps for attempt in todo)
                while len(results) < len(todo):
                    result = self._keep(self._take(pool, places, longest * STEP_S), pool, store)
                    results.extend([result] if result is not None else [])
            finally:
                pool.close()
        return results

    def _take(self, pool: SlotPool, places: Places, patience_s: float) -> Finished:
        finished = next_episode(pool, places, patience_s, self._stop, self._progress.say)
        if finished is None:
            raise EvaluationStopped(
                f"Interrupted; {self._output} keeps what was collected.", "Continue with --resume."
            )
        return finished

    def _keep(self, finished: Finished, pool: SlotPool, store: TrajectoryStore) -> EpisodeResult | None:
        """Stores an episode. None if it faulted and is tried again."""
        verdict = verdict_on(finished, self._judge)
        if finished.trajectory.fault is Fault.NONE:
            store.add(finished.trajectory, finished.images)
        result = episode_result(finished.trajectory, verdict, finished.attempt.number)
        retries = self._config.evaluate.retries
        return result if is_over(finished, result, pool, self._progress, retries) else None
