"""The task scheduler: which episodes are run, by phase, and no more of them than can still be fresh.

    network thread:  grant, renew, release, finish, tick
    training thread: set_phase, set_updates, start_eval, account, take_evals, state_dict

One lock guards everything; no call blocks. Leases out at a crash are simply granted anew.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from distrl.configs.schema import LearnerConfig
from distrl.core.messages import Lease
from distrl.core.types import Fault, Outcome, Purpose, Sampling, Task, Trajectory
from distrl.learner.leases import LeaseTable
from distrl.learner.task_sampling import TaskSampler, TemplateSampler

DEMONSTRATIONS, WARM_UP, TRAINING, DONE = "demonstrations", "warm-up", "training", "done"


@dataclass
class EvalRound:
    """One measurement on validation tasks with greedy sampling.

    Attributes:
        updates: The learner's updates when it started.
        waiting: Tasks not leased yet.
        leases: Ids of its leases that are not accounted for.
        scores: Success of each finished episode that was judged.
        abandoned: Episodes that faulted again and again.
    """

    updates: int
    waiting: deque[Task]
    leases: set[str] = field(default_factory=set)
    scores: list[float] = field(default_factory=list)
    abandoned: int = 0

    @property
    def success(self) -> float:
        """Mean success, 0 when nothing finished."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every episode has come back or been given up."""
        return not self.waiting and not self.leases


class TaskScheduler:
    """Grants leases; see `distrl.learner.server.Scheduler`.

    Args:
        config: Numbers of episodes, replay ratio, staleness bound, lease time.
        train: Tasks to learn on.
        validation: Tasks to measure on.
        seed: Of the order of tasks.
        incarnation: Unique to this start of the learner, so that lease ids never repeat.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: LearnerConfig,
        train: Sequence[Task],
        validation: Sequence[Task],
        seed: int,
        incarnation: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self._incarnation, self._clock = config, incarnation, clock
        self._sampler = TaskSampler(
            train, config.task_sampling, config.task_sampling_floor, random.Random(seed)
        )
        self._demonstrated = _demonstrated(config, train, seed)
        self._eval_tasks = list(validation)
        random.Random(seed).shuffle(self._eval_tasks)
        self._lock = Lock()
        self._table = LeaseTable()
        self._phase = DEMONSTRATIONS
        self._num_leases = 0
        self._updates = 0
        # Episodes without a fault: as committed (network thread), and as taken by training (what is saved).
        self._finished = dict.fromkeys(Purpose, 0)
        self._accounted = dict.fromkeys(Purpose, 0)
        self._round: EvalRound | None = None
        self._rounds: list[EvalRound] = []

    # ---- network thread ----

    def grant(self, worker: str, count: int) -> list[Lease]:
        """Up to `count` leases: evaluations first, then what the phase asks for."""
        with self._lock:
            leases: list[Lease] = []
            while len(leases) < count:
                lease = self._next(worker)
                if lease is None:
                    break
                leases.append(lease)
            return leases

    def renew(self, worker: str, lease_ids: Sequence[str]) -> None:
        """Prolongs the leases that `worker` holds; others are ignored."""
        with self._lock:
            now = self._clock()
            for lease_id in lease_ids:
                self._table.renew(worker, lease_id, now)

    def release(self, worker: str, lease_ids: Sequence[str]) -> None:
        """Takes back leases that `worker` holds; others are ignored."""
        with self._lock:
            for lease_id in lease_ids:
                self._table.release(worker, lease_id, self._clock())

    def finish(self, lease_id: str, trajectory: Trajectory) -> None:
        """Ends a lease. A faulted episode goes back to be run again, by another worker if there is one.

        An episode of an unknown or expired lease is data like any other and counts.
        """
        with self._lock:
            if trajectory.fault is not Fault.NONE:
                self._give_up(self._table.fault(lease_id, self._clock()))
                return
            self._table.finish(lease_id)
            self._finished[trajectory.purpose] += 1

    def tick(self) -> None:
        """Takes back expired leases."""
        with self._lock:
            for lease in self._table.expire(self._clock()):
                self._give_up(lease)

    # ---- training thread ----

    def set_phase(self, phase: str) -> None:
        """Enters a phase; retries of demonstrations do not outlive theirs."""
        with self._lock:
            self._phase = phase
            if phase != DEMONSTRATIONS:
                self._table.drop(Purpose.DEMO)

    def set_updates(self, updates: int) -> None:
        """Tells how many policy updates have been made."""
        with self._lock:
            self._updates = updates

    def account(self, trajectory: Trajectory, replayed: bool = False) -> None:
        """Training has taken `trajectory`; `replayed` from the store, so that `finish` never saw it."""
        with self._lock:
            if trajectory.fault is not Fault.NONE:
                return
            self._accounted[trajectory.purpose] += 1
            if replayed:
                self._finished[trajectory.purpose] += 1
            is_judged = trajectory.outcome is not Outcome.UNJUDGED
            if trajectory.purpose is Purpose.TRAIN and is_judged:
                self._sampler.record(trajectory.task.id, trajectory.success)
            current = self._round
            if current is not None and trajectory.lease_id in current.leases:
                current.leases.discard(trajectory.lease_id)
                if is_judged:
                    current.scores.append(trajectory.success)
                self._close_round_if_complete()

    def start_eval(self) -> None:
        """Starts a round on the same validation tasks as ever. An unfinished round ends with what it has."""
        with self._lock:
            if self._round is not None and self._round.scores:
                self._rounds.append(self._round)
            self._table.drop(Purpose.EVAL)
            tasks = self._eval_tasks[: self.config.eval_episodes]
            self._round = EvalRound(self._updates, deque(tasks)) if tasks else None

    @property
    def is_evaluating(self) -> bool:
        """Whether a round is under way."""
        with self._lock:
            return self._round is not None

    def take_evals(self) -> list[EvalRound]:
        """The rounds that ended since the last call."""
        with self._lock:
            rounds, self._rounds = self._rounds, []
            return rounds

    def accounted(self, purpose: Purpose) -> int:
        """How many episodes of this purpose training has taken."""
        with self._lock:
            return self._accounted[purpose]

    def task_success(self) -> dict[str, tuple[float, int]]:
        """Mean success and number of the recent training episodes of each task tried."""
        with self._lock:
            return self._sampler.success()

    def metrics(self) -> dict[str, float]:
        """Counters of leases and episodes."""
        with self._lock:
            return {
                "episodes": float(self._accounted[Purpose.TRAIN]),
                "scheduler/leases_out": float(sum(self._table.held(p) for p in Purpose)),
                "scheduler/expired": float(self._table.num_expired),
                "scheduler/faulted": float(self._table.num_faulted),
                "scheduler/abandoned": float(self._table.num_abandoned),
                "scheduler/tasks_tried": float(self._sampler.num_tried),
            }

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able. What training has not taken yet is left out: it comes again.

        So are the draws of demonstrations, which are over when the first checkpoint is written.
        """
        with self._lock:
            return {
                "phase": self._phase,
                "accounted": {purpose.value: n for purpose, n in self._accounted.items()},
                "sampler": self._sampler.state_dict(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        with self._lock:
            self._phase = state["phase"]
            self._accounted = {purpose: int(state["accounted"][purpose.value]) for purpose in Purpose}
            self._finished = dict(self._accounted)
            self._sampler.load_state_dict(state["sampler"])

    # ---- under the lock ----

    def _next(self, worker: str) -> Lease | None:
        if self._phase == DEMONSTRATIONS:
            return self._next_episode(worker, Purpose.DEMO, self.config.demonstrations.episodes)
        if self._phase == WARM_UP:
            return self._next_eval(worker)
        if self._phase != TRAINING:
            return None
        return self._next_eval(worker) or (
            self._next_episode(worker, Purpose.TRAIN, self.config.episodes) if self._stays_fresh() else None
        )

    def _next_eval(self, worker: str) -> Lease | None:
        current = self._round
        if current is None:
            return None
        retry = self._table.take_retry(Purpose.EVAL, worker, self._clock())
        while retry is not None and retry.lease.id not in current.leases:  # of a round that ended before
            retry = self._table.take_retry(Purpose.EVAL, worker, self._clock())
        if retry is not None:
            current.leases.discard(retry.lease.id)
            task, attempt = retry.lease.task, retry.attempt + 1
        elif current.waiting:
            task, attempt = current.waiting.popleft(), 1
        else:
            return None
        lease = self._lease(task, Purpose.EVAL, worker, attempt)
        current.leases.add(lease.id)
        return lease

    def _next_episode(self, worker: str, purpose: Purpose, wanted: int) -> Lease | None:
        retry = self._table.take_retry(purpose, worker, self._clock())
        if retry is not None:
            return self._lease(retry.lease.task, purpose, worker, retry.attempt + 1)
        if self._finished[purpose] + self._table.count(purpose) >= wanted:
            return None
        sampler = self._demonstrated if purpose is Purpose.DEMO else self._sampler
        return self._lease(sampler.draw(), purpose, worker, 1)

    def _stays_fresh(self) -> bool:
        """Whether an episode leased now is trained on within `max_staleness` versions.

        Ahead of it are the episodes that are out and those that came in but have not had their updates; each
        brings `updates_per_episode` updates, and every `publish_every` updates make a version. Until replay
        holds `min_replay` episodes no update is made and nothing goes stale.
        """
        c = self.config
        # Those that wait to be run again are not out: they would keep themselves from being leased.
        out, finished = self._table.held(Purpose.TRAIN), self._finished[Purpose.TRAIN]
        if finished + out < c.min_replay:
            return True
        updates_ahead = (finished + out + 1) * c.updates_per_episode - self._updates
        return updates_ahead <= max(c.max_staleness * c.publish_every, c.updates_per_episode)

    def _lease(self, task: Task, purpose: Purpose, worker: str, attempt: int) -> Lease:
        self._num_leases += 1
        lease = Lease(
            id=f"{self._incarnation}-{self._num_leases}",
            task=task,
            purpose=purpose,
            sampling=Sampling(
                temperature=0.0 if purpose is Purpose.EVAL else self.config.temperature,
                top_p=self.config.top_p,
                top_k=self.config.top_k,
                max_new_tokens=self.config.max_new_tokens,
            ),
            noise=self.config.demonstrations.noise if purpose is Purpose.DEMO else 0.0,
            ttl_s=self.config.lease_ttl_s,
        )
        self._table.hold(lease, worker, self._clock(), attempt)
        return lease

    def _give_up(self, lease: Lease | None) -> None:
        """Notes an evaluation that will not come; other episodes are simply drawn anew."""
        if lease is not None and self._round is not None and lease.id in self._round.leases:
            self._round.leases.discard(lease.id)
            self._round.abandoned += 1
            self._close_round_if_complete()

    def _close_round_if_complete(self) -> None:
        if self._round is not None and self._round.is_complete:
            self._rounds.append(self._round)
            self._round = None


def _demonstrated(config: LearnerConfig, tasks: Sequence[Task], seed: int) -> TaskSampler | TemplateSampler:
    """What draws tasks to demonstrate: spread over all, whatever `task_sampling` is; or by template."""
    weights = config.demonstrations.weights
    if weights:
        return TemplateSampler(tasks, weights, random.Random(seed))
    # Of another seed than training, which would else begin with the same tasks.
    return TaskSampler(tasks, "uniform", config.task_sampling_floor, random.Random(seed + 1))
