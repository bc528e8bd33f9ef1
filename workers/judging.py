"""Judging between the slots and the learner: a queue on disk, and threads that ask the judge.

    slot threads ── submit() ──► [spool, bounded] ──► judge thread 0 … N−1 ── verdict ──► link.submit()
                                       ▲ asked again later ──┘ none now

No slot waits for a judge. An episode stays in the spool until it is submitted, so a restart costs another
request and nothing else. If the judge has no verdict yet, it is asked again after a pause that doubles; after
`judge.patience_s` the episode is submitted unjudged: it is stored and counted, but not trained on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from distrl.configs.judge import JudgeConfig, RewardConfig
from distrl.core.errors import DistrlError, JudgeError, JudgeUnavailable, StoreError
from distrl.core.importing import import_object
from distrl.core.messages import Lease
from distrl.core.packing import unpack_trajectory
from distrl.core.types import Fault, Outcome, Spent, Trajectory, Verdict
from distrl.workers.rewards import awaits_judge, judged
from distrl.workers.spool import Spool

if TYPE_CHECKING:
    from distrl.workers.client import LearnerLink

MAX_WAITING = 256
"""Finished episodes that may wait on disk for a verdict; no more episodes are leased meanwhile."""

RETRY_S = 5.0  # the first pause before an episode is judged again
MAX_PAUSE_S = 600.0
POLL_S = 0.2
STOP_S = 1.0  # how long judges have to give a verdict when the worker stops; other episodes stay in the spool
_BUILD = "distrl.evaluator.judges:build_judge"
_log = logging.getLogger(__name__)


class Judge(Protocol):
    """What is needed of a judge; see `distrl.evaluator.judges.base`."""

    name: str

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The verdict, which may be undecided. Raises JudgeUnavailable if a later request may succeed."""


def load_judge(config: JudgeConfig | None) -> Judge:
    """The judge that `config` names. Raises ConfigError, JudgeError or MissingDependency."""
    judge: Judge = import_object(_BUILD)(config)
    return judge


@dataclass
class _Waiting:
    since: float
    due: float = 0.0
    tries: int = 0
    is_asked: bool = False
    spent: Spent = field(default_factory=Spent)


class JudgingLink:
    """A worker's link that has episodes judged before they are submitted.

    The judge is called by several threads. Episodes that an earlier process left in the spool are judged too.
    """

    def __init__(
        self, link: LearnerLink, judge: Judge, config: JudgeConfig, rewards: RewardConfig, spool: Spool
    ) -> None:
        self._link, self._judge, self._config, self._rewards = link, judge, config, rewards
        self._spool = spool
        self._condition = threading.Condition()
        self._stopping = threading.Event()
        now = time.monotonic()
        self._waiting = {name: _Waiting(now) for name in spool.ids()}  # guarded by the condition
        self._counts = {"judged": 0, "successes": 0, "unjudged": 0, "retries": 0}  # guarded by the condition
        self._spent = Spent()  # guarded by the condition
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guard, name=f"judge-{i}", daemon=True)
            for i in range(config.threads)
        ]
        self.shutdown = link.shutdown

    @property
    def has_policy(self) -> bool:
        return self._link.has_policy

    def start(self) -> None:
        if wait_by := getattr(self._judge, "wait_by", None):  # its pauses end when judging is closed
            wait_by(self._stopping.wait)
        for thread in self._threads:
            thread.start()

    def close(self) -> bool:
        """Stops judging; episodes without a verdict stay in the spool. Returns whether all threads ended."""
        self._stopping.set()
        with self._condition:
            self._condition.notify_all()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def lease(self, timeout_s: float, slot: int | None = None) -> Lease | None:
        """A lease; None while `MAX_WAITING` episodes wait for a verdict."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._waiting) < MAX_WAITING, timeout_s):
                return None
        return self._link.lease(timeout_s, slot)

    def release(self, lease_id: str) -> None:
        self._link.release(lease_id)

    def submit(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> None:
        """Takes a finished episode: durable on return, and judged in the background if necessary."""
        is_open = trajectory.fault is Fault.NONE and trajectory.outcome is Outcome.UNJUDGED
        if not is_open or not awaits_judge(trajectory.purpose, self._rewards):
            self._link.submit(trajectory, images)
            return
        self._spool.put(trajectory, images, self._link.run_of(trajectory.lease_id))
        with self._condition:
            self._waiting[trajectory.id] = _Waiting(time.monotonic())
            self._condition.notify_all()

    def set_stats(self, stats: Mapping[str, float]) -> None:
        self._link.set_stats({**stats, **self.stats()})

    def stats(self) -> dict[str, float]:
        """Counts of judged and waiting episodes, and the judge's cost."""
        with self._condition:
            counts = {f"judge_{name}": float(count) for name, count in self._counts.items()}
            spent = {f"judge_{name}": float(number) for name, number in self._spent}
            return {**counts, **spent, "judge_waiting": float(len(self._waiting))}

    def check(self) -> None:
        if self._error is not None:
            raise self._error
        self._link.check()

    # ---- judge threads ----

    def _guard(self) -> None:
        try:
            while not self._stopping.is_set():
                name = self._next()
                if name is not None:
                    self._ask(name)
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the main thread
            self._error = error

    def _next(self) -> str | None:
        """Claims the oldest episode that is due for this thread; None if none was within `POLL_S`."""
        with self._condition:
            now = time.monotonic()
            for name, waiting in self._waiting.items():
                if not waiting.is_asked and waiting.due <= now:
                    waiting.is_asked = True
                    return name
            self._condition.wait(POLL_S)
            return None

    def _ask(self, name: str) -> None:
        body, images, run_id = self._spool.packed(name)
        try:
            trajectory = unpack_trajectory(body)
        except StoreError as error:
            _log.error("trajectory %s is set aside in the spool: %s", name, error)
            self._spool.refuse(name, error.message)
            self._forget(name)
            return
        waiting = self._waiting[name]
        look = self._judge.judge if self._config.when == "end" else partial(judge_steps, self._judge)
        try:
            verdict = look(trajectory, images)
            self._pay(waiting, verdict.spent)
        except JudgeError as error:
            self._pay(waiting, error.spent or Spent())
            reason = str(error)
            if isinstance(error, JudgeUnavailable):
                if time.monotonic() - waiting.since < self._config.patience_s:
                    self._postpone(waiting, error)
                    return
                reason = f"No verdict within {self._config.patience_s:g} s: {error.message}"
            verdict = Verdict.none(self._judge.name, reason, error.asked)
        except DistrlError as error:
            verdict = Verdict.none(self._judge.name, str(error))
        if self._stopping.is_set():
            return
        if not verdict.is_decided:
            _log.warning("%s is unjudged: %s", trajectory.task.id, verdict.reason)
        trajectory = judged(trajectory, verdict.model_copy(update=dict(waiting.spent)))
        shown = {digest: images[digest] for digest in trajectory.image_digests}
        self._link.submit(trajectory, shown, run_id)
        self._spool.delete(name)
        with self._condition:
            self._counts["judged" if verdict.is_decided else "unjudged"] += 1
            self._counts["successes"] += verdict.is_decided and verdict.success
        self._forget(name)

    def _forget(self, name: str) -> None:
        """An episode does not wait any more."""
        with self._condition:
            del self._waiting[name]
            self._condition.notify_all()

    def _pay(self, waiting: _Waiting, spent: Spent) -> None:
        """Counts the cost of a request about an episode, with or without a verdict."""
        with self._condition:
            waiting.spent = Spent.total([waiting.spent, spent])
            self._spent = Spent.total([self._spent, spent])

    def _postpone(self, waiting: _Waiting, error: JudgeUnavailable) -> None:
        if waiting.tries == 0:
            _log.warning("no verdict yet; asking again: %s", error)
        with self._condition:
            pause_s = min(
                MAX_PAUSE_S, max(RETRY_S * 2.0 ** min(waiting.tries, 30), error.retry_after_s or 0.0)
            )
            waiting.due = min(time.monotonic() + pause_s, waiting.since + self._config.patience_s)
            waiting.tries += 1
            waiting.is_asked = False
            self._counts["retries"] += 1


def judge_steps(judge: Judge, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
    """The verdict on the first screen that fulfils the task (`step`: after how many steps), else on the last.

    Screens that earlier steps have shown are not judged again. A screen that the judge cannot decide leaves
    the whole episode undecided, because a later verdict could have the wrong step.
    """
    shown: set[str] = set()
    verdict: Verdict | None = None
    spent: list[Spent] = []
    for count in range(1, len(trajectory.steps) + 1):
        part = first_steps(trajectory, count)
        last = part.final.image if part.final is not None else ""
        if last in shown and count < len(trajectory.steps):
            continue
        shown.add(last)
        try:
            verdict = judge.judge(part, images).after(*spent)
        except JudgeError as error:
            error.spent = Spent.total([*spent, error.spent or Spent()])
            raise
        spent = [verdict.spent]
        if verdict.success or not verdict.is_decided:
            return verdict.model_copy(update={"step": count})
    assert verdict is not None, "the episode has no steps"
    return verdict


def first_steps(trajectory: Trajectory, count: int) -> Trajectory:
    """The episode as if it had ended after `count` of its steps."""
    if count >= len(trajectory.steps):
        return trajectory
    final = trajectory.steps[count].observation
    return trajectory.model_copy(update={"steps": trajectory.steps[:count], "final": final})
