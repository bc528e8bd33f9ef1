"""Judges stored episodes offline, from the store alone.

DIR/verdicts/JUDGE.json     the judge's `identity`; another judge of the same kind is JUDGE-2, JUDGE-3, …
DIR/verdicts/JUDGE.jsonl    one `Judged` per line, written as verdicts arrive; an interrupted session can be
                            continued, and the last line of an episode counts
DIR/verdicts/JUDGE.lock     held by the process that judges
DIR/agreement-JUDGE.json    the numbers: success rate and agreement with ground truth
DIR/agreement-JUDGE.html    the same with the worst errors

Verdicts of the environment or of other judges stay unchanged.
"""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TextIO

from distrl.configs.judge import JudgeConfig, RewardConfig
from distrl.core.errors import ConfigError, DistrlError, JudgeError, JudgeRefuses, RunDirectoryError
from distrl.core.files import read_records, write_atomically
from distrl.core.rundir import lock_directory
from distrl.core.types import Fault, Spent, Task, Trajectory, Verdict
from distrl.evaluator.agreement import AgreementReport, Judged, compare, disagreements
from distrl.evaluator.judges import build_judge, identity
from distrl.evaluator.judges.vlm.judge import VlmJudge
from distrl.evaluator.report.viewer import write_agreement_page
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.judging import judge_steps
from distrl.workers.rewards import is_asked_about, truth_after

POLL_S = 0.2
STOP_S = 2.0
"""How long pending verdicts have when the session is stopped; later ones are lost."""


class Rejudged:
    """Verdicts on stored episodes.

    Args:
        place: A run's or an evaluation's directory, with all its repetitions, or a store file.
        rewards: With `require_complete`, episodes whose agent did not say that it is done fail in any case:
            the judge is not called for them.

    Attributes:
        name: The judge's name in file names.
        refusal: The judge's error that ended the session because it applies to every episode; None if none.
    """

    def __init__(self, place: Path, config: JudgeConfig | None, rewards: RewardConfig) -> None:
        if config is None:
            raise ConfigError("No judge is configured.", "Set judge.kind, or give --judge.")
        self._place, self._config, self._rewards = place, config, rewards
        self._is_through = False  # whether this session reached the oldest episode
        self.refusal: JudgeRefuses | None = None
        self._directory = place if place.is_dir() else place.parent
        self._judge = build_judge(config)
        self._store = StoredEpisodes(place)
        self.name = name_of(self._directory / "verdicts", config)
        self.file = self._directory / "verdicts" / f"{self.name}.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lock = self.file.with_suffix(".lock")
        self._held = lock_directory(lock, f"session of {self.name}", "use another judge")
        self._judged = {one.trajectory_id: one for one in read_verdicts(self.file)}

    @property
    def judged(self) -> list[Judged]:
        """The verdicts so far, also undecided ones."""
        return list(self._judged.values())

    def run(
        self, limit: int | None, stop: threading.Event, on_verdict: Callable[[int], None]
    ) -> AgreementReport:
        """Judges the remaining episodes, the newest first, and writes the numbers.

        Undecided episodes are judged again in the next session. An error that applies to every episode, such
        as a wrong key, ends the session.

        Args:
            limit: The largest number of episodes to judge; None: all.
            stop: Ends it early; verdicts so far are kept.
            on_verdict: Called with the number of verdicts, as they arrive.
        """
        write_atomically(self.file.with_suffix(".json"), json.dumps(identity(self._config), indent=2))
        self._write()  # without a torn line
        if isinstance(self._judge, VlmJudge):
            self._judge.wait_by(stop.wait)
        pool = ThreadPoolExecutor(self._config.threads)
        try:
            with self.file.open("a", encoding="utf-8") as log:
                self._judge_all(self._askable(limit), pool, log, stop, on_verdict)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        self._write()
        report = self._report()
        write_atomically(self._directory / f"agreement-{self.name}.json", report.model_dump_json(indent=2))
        return report

    def _judge_all(
        self,
        left: Iterator[Trajectory],
        pool: ThreadPoolExecutor,
        log: TextIO,
        stop: threading.Event,
        on_verdict: Callable[[int], None],
    ) -> None:
        """Submits episodes, a few ahead of the judge's threads, and stores each verdict as it arrives."""
        waiting: list[Future[Judged | None]] = []
        num_judged, deadline = 0, math.inf
        while True:
            if deadline == math.inf and (stop.is_set() or self.refusal is not None):
                deadline = time.monotonic() + STOP_S
            if deadline == math.inf:
                free = 2 * self._config.threads - len(waiting)
                waiting += [pool.submit(self._one, one, stop) for one in itertools.islice(left, free)]
            if not waiting or time.monotonic() >= deadline:
                return
            done, _ = wait(waiting, POLL_S, FIRST_COMPLETED)
            ended = [future for future in waiting if future in done]  # in the order of submission
            waiting = [future for future in waiting if future not in done]
            for judged in [one for future in ended if (one := future.result()) is not None]:
                num_judged += 1
                self._judged[judged.trajectory_id] = judged
                log.write(judged.model_dump_json() + "\n")
                log.flush()
                on_verdict(num_judged)

    def _askable(self, limit: int | None) -> Iterator[Trajectory]:
        """At most `limit` episodes without a verdict that need the judge, the newest first."""
        known = {one.trajectory_id for one in self.judged if one.verdict.is_decided}
        num_found = 0
        for trajectory in self._store.kept(n for n in reversed(self._store.real_ids()) if n not in known):
            if limit is not None and num_found >= limit:
                return
            if self._is_asked_about(trajectory):
                num_found += 1
                yield trajectory
        self._is_through = True

    def _is_asked_about(self, trajectory: Trajectory) -> bool:
        is_whole = trajectory.fault is Fault.NONE and bool(trajectory.steps)
        return is_whole and is_asked_about(trajectory, self._rewards)

    def _failed(self) -> list[Task]:
        """The tasks of the episodes that fail in any case, as far back as the verdicts of all sessions go, so
        that both cover the same episodes.
        """
        names: Sequence[str] = self._store.real_ids()
        if not self._is_through:
            names = list(itertools.dropwhile(lambda name: name not in self._judged, names))
        others = self._store.kept(name for name in names if name not in self._judged)
        return [one.task for one in others if one.fault is Fault.NONE and not self._is_asked_about(one)]

    def close(self) -> None:
        """Closes the store, and lets other sessions begin."""
        self._store.close()
        self._held.release()

    def _one(self, trajectory: Trajectory, stop: threading.Event) -> Judged | None:
        """The line of an episode; None if the session was stopped before."""
        if stop.is_set() or self.refusal is not None:
            return None
        verdict = self._verdict(trajectory)
        if stop.is_set() and not verdict.is_decided:
            return None  # the judge was interrupted
        if earlier := self._judged.get(trajectory.id):
            verdict = verdict.after(earlier.verdict.spent)
        # The truth is that of the screen on which the judge decided.
        by_steps = self._config.when == "steps"
        truth = truth_after(trajectory, verdict.step) if by_steps else trajectory.ground_truth
        return Judged.of(trajectory.id, trajectory.task, None if truth is None else truth >= 1.0, verdict)

    def _verdict(self, trajectory: Trajectory) -> Verdict:
        images = self._store.shown(trajectory)
        try:
            if self._config.when == "steps":
                return judge_steps(self._judge, trajectory, images)
            return self._judge.judge(trajectory, images)
        except JudgeError as error:
            if isinstance(error, JudgeRefuses):
                self.refusal = error
            return Verdict.none(self._judge.name, str(error), error.asked).after(error.spent or Spent())
        except DistrlError as error:
            return Verdict.none(self._judge.name, str(error))

    def _write(self) -> None:
        """Writes each verdict once."""
        write_atomically(self.file, "".join(one.model_dump_json() + "\n" for one in self.judged))

    def _report(self) -> AgreementReport:
        return compare(self.judged, self._config.name, str(self._place), self._failed())

    def write_page(self) -> Path:
        """Writes the page with the worst errors, with jinja2.

        Episodes that the store has trimmed since are not shown.
        """
        page, stored = self._directory / f"agreement-{self.name}.html", set(self._store.ids())
        left = [one for one in self.judged if one.trajectory_id in stored]
        shown = ((one, self._store.get(one.trajectory_id)) for one in disagreements(left))
        episodes = ((one, (found, self._store.shown(found))) for one, found in shown)
        write_agreement_page(page, self._report(), self.judged, episodes)
        return page


def name_of(directory: Path, config: JudgeConfig) -> str:
    """The name of this judge's verdicts in `directory`, existing or new."""
    asked = identity(config)
    for number in itertools.count(1):
        name = config.name if number == 1 else f"{config.name}-{number}"
        file = directory / f"{name}.json"
        try:
            if not file.is_file() or json.loads(file.read_text(encoding="utf-8")) == asked:
                break
        except ValueError as error:
            raise RunDirectoryError(f"{file} is damaged.", "Remove it and its verdicts.") from error
    return name


def read_verdicts(file: Path) -> list[Judged]:
    """The lines of a file of verdicts; a last line that a crash cut off is left out."""
    return read_records(file, Judged, "Remove the file to judge again.")
