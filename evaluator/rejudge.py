"""Judges stored episodes offline, from the store alone.

DIR/verdicts/JUDGE.json     the judge's `identity`; another judge of the same kind is JUDGE-2, JUDGE-3, …
DIR/verdicts/JUDGE.jsonl    one `Judged` per line, written as verdicts arrive; an interrupted session can be
                            continued, and the last line of an episode counts
DIR/agreement-JUDGE.json    the numbers: success rate and agreement with ground truth
DIR/agreement-JUDGE.html    the same with the worst errors

Verdicts of the environment or of other judges stay unchanged.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TextIO

from distrl.configs.judge import JudgeConfig, RewardConfig
from distrl.core.errors import (
    ConfigError,
    DistrlError,
    JudgeError,
    JudgeRefuses,
    QuotaUsed,
    RunDirectoryError,
)
from distrl.core.files import read_records, write_atomically
from distrl.core.types import Fault, Spent, Task, Trajectory, Verdict
from distrl.evaluator.agreement import AgreementReport, Judged, compare
from distrl.evaluator.judges import build_judge, identity
from distrl.evaluator.judges.base import Judge
from distrl.evaluator.judges.vlm.judge import VlmJudge
from distrl.evaluator.report.viewer import Episode, worst, write_agreement_page
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.judging import judge_steps
from distrl.workers.rewards import is_asked_about, truth_after

VERDICTS = "verdicts"
POLL_S = 0.2
STOP_S = 2.0
"""How long pending verdicts have when the session is stopped; later ones are lost."""


class Rejudged:
    """Verdicts on stored episodes.

    Args:
        place: A run's or an evaluation's directory, with all its repetitions, or a store file.
        config: The judge.
        rewards: With `require_complete`, episodes whose agent did not say that it is done fail in any case:
            the judge is not called for them.

    Attributes:
        directory: Where the results are.
        name: The judge's name in file names.
        num_not_asked: Episodes that this session did not judge.
        refusal: The judge's error that ended the session because it applies to every episode; None if none.

    Raises:
        StoreError: There is no store.
        ConfigError: The judge cannot be built; see `build_judge`.
        RunDirectoryError: Existing verdicts are damaged.
    """

    def __init__(self, place: Path, config: JudgeConfig | None, rewards: RewardConfig) -> None:
        if config is None:
            raise ConfigError("No judge is configured.", "Set judge.kind, or give --judge.")
        self._place, self._config, self._rewards = place, config, rewards
        self.num_not_asked = 0
        self._unasked: dict[str, Task | None] = {}  # skipped episodes; their task if they are failures
        self._is_through = False  # whether this session reached the oldest episode
        self.refusal: JudgeRefuses | None = None
        self.directory = place if place.is_dir() else place.parent
        self._judge: Judge = build_judge(config)
        self._store = StoredEpisodes(place)
        self.name = name_of(self.directory / VERDICTS, config)
        self.file = self.directory / VERDICTS / f"{self.name}.jsonl"
        self._judged: dict[str, Judged] = {one.trajectory_id: one for one in read_verdicts(self.file)}

    @property
    def judged(self) -> list[Judged]:
        """The verdicts so far, also undecided ones."""
        return list(self._judged.values())

    def run(
        self, limit: int | None, stop: threading.Event, on_verdict: Callable[[int, int], None]
    ) -> AgreementReport:
        """Judges the remaining episodes, the newest first, and writes the numbers.

        Undecided episodes are judged again in the next session. An error that applies to every episode, such
        as a wrong key, ends the session.

        Args:
            limit: The largest number of episodes to judge; None: all.
            stop: Ends it early; verdicts so far are kept. Quotas are waited for until then.
            on_verdict: Called with the number of verdicts and its maximum, as verdicts arrive.
        """
        known = {one.trajectory_id for one in self.judged if one.verdict.is_decided}
        todo = [name for name in reversed(self._store.ids()) if name not in known]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file.with_suffix(".json"), json.dumps(identity(self._config), indent=2))
        self._write()  # without a torn line
        if isinstance(self._judge, VlmJudge):
            self._judge.wait_for_quota(stop)
        most = len(todo) if limit is None else max(0, limit)
        pool = ThreadPoolExecutor(self._config.threads)
        try:
            with self.file.open("a", encoding="utf-8") as log:
                self._judge_all(todo, most, pool, log, stop, on_verdict)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return self._finish()

    def _judge_all(
        self,
        todo: Sequence[str],
        most: int,
        pool: ThreadPoolExecutor,
        log: TextIO,
        stop: threading.Event,
        on_verdict: Callable[[int, int], None],
    ) -> None:
        """Submits episodes, a few ahead of the judge's threads, and stores each verdict as it arrives."""
        left = self._askable(todo, most)
        waiting: list[Future[Judged | None]] = []
        num_judged = 0
        deadline: float | None = None
        while True:
            if deadline is None and (stop.is_set() or self.refusal is not None):
                deadline = time.monotonic() + STOP_S
            while deadline is None and len(waiting) < 2 * self._config.threads:
                trajectory = next(left, None)
                if trajectory is None:
                    break
                waiting.append(pool.submit(self._one, trajectory, stop))
            if not waiting or (deadline is not None and time.monotonic() >= deadline):
                break
            done = wait(waiting, POLL_S, FIRST_COMPLETED).done
            num_judged += self._keep([future for future in waiting if future in done], log)
            waiting = [future for future in waiting if future not in done]
            if done:
                on_verdict(num_judged, min(most, len(todo) - self.num_not_asked))

    def _askable(self, todo: Sequence[str], most: int) -> Iterator[Trajectory]:
        """At most `most` episodes that need the judge; others are counted."""
        num_found = 0
        for name in todo:
            if num_found >= most:
                return
            trajectory = self._store.get(name)
            if self._is_asked_about(trajectory):
                num_found += 1
                yield trajectory
            else:
                self.num_not_asked += 1
                self._skip(trajectory)
        self._is_through = True

    def _skip(self, trajectory: Trajectory) -> None:
        is_failure = trajectory.fault is Fault.NONE and not self._is_asked_about(trajectory)
        self._unasked[trajectory.id] = trajectory.task if is_failure else None

    def _failed(self) -> list[Task]:
        """The tasks of the episodes that fail in any case, as far back as the verdicts of all sessions go, so
        that both cover the same episodes.
        """
        names = self._store.ids()
        if not self._is_through:
            names = list(itertools.dropwhile(lambda name: name not in self._judged, names))
        passed = [name for name in names if name not in self._judged]
        for name in passed:
            if name not in self._unasked:
                self._skip(self._store.get(name))
        return [task for name in passed if (task := self._unasked[name]) is not None]

    def close(self) -> None:
        """Closes the store."""
        self._store.close()

    def _keep(self, done: Sequence[Future[Judged | None]], log: TextIO) -> int:
        """Stores the verdicts that arrived. Returns their number."""
        found = [judged for future in done if (judged := future.result()) is not None]
        for judged in found:
            self._judged[judged.trajectory_id] = judged
            log.write(judged.model_dump_json() + "\n")
        log.flush()
        return len(found)

    def _is_asked_about(self, trajectory: Trajectory) -> bool:
        is_whole = trajectory.fault is Fault.NONE and bool(trajectory.steps)
        return is_whole and is_asked_about(trajectory, self._rewards)

    def _one(self, trajectory: Trajectory, stop: threading.Event) -> Judged | None:
        """The line of an episode; None if the session was stopped before."""
        earlier = self._judged.get(trajectory.id)
        spent = [earlier.verdict.spent] if earlier else []
        while True:
            if stop.is_set() or self.refusal is not None:
                return None
            try:
                verdict = self._verdict(trajectory).after(*spent)
                break
            except QuotaUsed as error:
                spent.append(error.spent or Spent())
                stop.wait(error.retry_after_s)
        return Judged.of(trajectory.id, trajectory.task, self._truth(trajectory, verdict), verdict)

    def _truth(self, trajectory: Trajectory, verdict: Verdict) -> bool | None:
        """The ground truth of the screen on which the judge decided."""
        by_steps = self._config.when == "steps"
        truth = truth_after(trajectory, verdict.step) if by_steps else trajectory.ground_truth
        return None if truth is None else truth >= 1.0

    def _verdict(self, trajectory: Trajectory) -> Verdict:
        images = self._store.images(trajectory.image_digests)
        try:
            if self._config.when == "steps":
                return judge_steps(self._judge, trajectory, images)
            return self._judge.judge(trajectory, images)
        except QuotaUsed:
            raise
        except JudgeError as error:
            if isinstance(error, JudgeRefuses):
                self.refusal = error
            return Verdict.none(self._judge.name, str(error), error.asked).after(error.spent or Spent())
        except DistrlError as error:
            return Verdict.none(self._judge.name, str(error))

    def _write(self) -> None:
        """Writes each verdict once."""
        write_atomically(self.file, "".join(one.model_dump_json() + "\n" for one in self.judged))

    def _finish(self) -> AgreementReport:
        self._write()
        report = self._report()
        write_atomically(self._path("json"), report.model_dump_json(indent=2))
        return report

    def _report(self) -> AgreementReport:
        return compare(self.judged, self._config.name, str(self._place), self._failed())

    def write_page(self) -> Path:
        """Writes the page with the worst errors.

        Raises:
            MissingDependency: jinja2 is not installed.
        """
        report = self._report()
        page = self._path("html")
        write_agreement_page(page, report, self.judged, stored_episodes(self._store, worst(self.judged)))
        return page

    def _path(self, ending: str) -> Path:
        return self.directory / f"agreement-{self.name}.{ending}"


def name_of(directory: Path, config: JudgeConfig) -> str:
    """The name of this judge's verdicts in `directory`, existing or new.

    Raises:
        RunDirectoryError: One of its files is damaged.
    """
    asked = identity(config)
    for number in itertools.count(1):
        name = config.name if number == 1 else f"{config.name}-{number}"
        file = directory / f"{name}.json"
        if not file.is_file() or _read_identity(file) == asked:
            break
    return name


def _read_identity(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunDirectoryError(f"{file} is damaged.", "Remove it and its verdicts.") from error


def stored_episodes(store: StoredEpisodes, judged: Sequence[Judged]) -> Iterator[tuple[Judged, Episode]]:
    """Each verdict with its episode."""
    for one in judged:
        trajectory = store.get(one.trajectory_id)
        yield one, (trajectory, store.images(trajectory.image_digests))


def read_verdicts(file: Path) -> list[Judged]:
    """The lines of a file of verdicts; a last line that a crash cut off is left out.

    Raises:
        RunDirectoryError: Another line is damaged.
    """
    return read_records(file, Judged, "Remove the file to judge again.")
