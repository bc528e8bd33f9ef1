"""The task scheduler: which episodes are run, by phase, and no more of them than can still be fresh.

    network thread:  grant, renew, release, check, finish, lose, tick
    training thread: set_phase, set_updates, set_elapsed, start_eval, account, remember, join, pop_groups,
                     pop_eval, forgive_updates, state_dict

One lock guards everything; no call blocks. Leases that are out at a crash are granted again.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple

from distrl.configs.learner import LearnerConfig
from distrl.configs.world import WorldConfig
from distrl.core.messages import Lease
from distrl.core.security import Client
from distrl.core.types import Branch, Fault, Outcome, Purpose, Task, Trajectory
from distrl.learner.groups import Closed, EvalRound, Groups
from distrl.learner.leases import LeaseIssuer, LeaseTable
from distrl.learner.task_sampling import BranchSource, Drift, TaskSource, demonstration_sampler

DEMONSTRATIONS, WARM_UP, TRAINING, DONE = "demonstrations", "warm-up", "training", "done"
"""Phases of a run; the present one decides which leases are granted."""


class EvalProgress(NamedTuple):
    """How many episodes of a round are accounted for, of how many, and whether a worker holds one."""

    done: int
    size: int
    is_leased: bool


class TaskScheduler:
    """Grants leases.

    Args:
        incarnation: Unique to this start of the learner, so that lease and group ids never repeat.
        secret: Of the run; signs leases.
        drift: Other tasks to learn on, from a point of the run on.
        world: Whether and how many episodes are imagined.
    """

    def __init__(
        self,
        config: LearnerConfig,
        train: Sequence[Task],
        validation: Sequence[Task],
        seed: int,
        incarnation: str,
        secret: bytes,
        clock: Callable[[], float] = time.monotonic,
        drift: Drift | None = None,
        world: WorldConfig | None = None,
    ) -> None:
        self._world = world or WorldConfig()
        self._branches = BranchSource(self._world, config, seed)
        self.config, self._incarnation, self._clock = config, incarnation, clock
        self._source = TaskSource(config, train, drift, seed)
        self._demonstrated = demonstration_sampler(config, train, seed)
        shuffled = list(validation)
        random.Random(seed).shuffle(shuffled)
        self._validation = shuffled[: config.eval_episodes]
        self._round: EvalRound | None = None  # the validation round under way, or just ended
        self._groups = Groups(config.group_wait_s)
        self._lock = Lock()
        self._issuer = LeaseIssuer(config, secret)
        self._table = LeaseTable(60.0 * config.max_episode_minutes)
        self._phase = DEMONSTRATIONS
        demonstrations = config.demonstrations
        self.num_played_by_policy = round(demonstrations.dagger * demonstrations.episodes)
        self.policy_plays = False  # the demonstrations of now on
        self._num_leases = self._num_groups = 0
        self._updates, self._forgiven, self._elapsed = 0, 0.0, 0.0
        self._withheld = 0  # requests of leases that `_stays_fresh` kept from being granted
        # Episodes without a fault: as committed (network thread), and as taken by training (what is saved).
        self._finished = dict.fromkeys(Purpose, 0)
        self._accounted = dict.fromkeys(Purpose, 0)
        self._void = 0  # imagined episodes that came to nothing, which others do not replace

    # ---- network thread ----

    def grant(
        self, worker: str, count: int, limit: int | None = None, client: Client | None = None
    ) -> list[Lease]:
        """Up to `count` leases: validation first, then those of the phase.

        Args:
            limit: The most leases that the worker may hold. If it requests more, its oldest end: it has
                restarted and lost them, or it hoards.
            client: The one with its key, whose workers hold `slots` leases at most.
        """
        with self._lock:
            now = self._clock()
            if limit is not None:
                count = min(count, limit)
                self._table.make_room(worker, limit - count, now)
            if client is not None and client.slots is not None:
                count = min(count, client.slots - self._table.num_held(client, now))
            leases: list[Lease] = []
            while len(leases) < count:
                lease = self._next(worker)
                if lease is None:
                    break
                leases.append(lease)
            return leases

    def lease_by_hand(self, worker: str, slot: int, task_id: str) -> Lease:
        """A lease of a demonstration that a person plays at a slot: of a training task, of any if unknown."""
        with self._lock:
            task = self._source.tasks.get(task_id) or self._demonstrated.draw()
            return self._lease(task, Purpose.DEMO, worker, by_hand=slot)

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

    def check(self, trajectory: Trajectory) -> str:
        """Why `trajectory` does not fit its lease, perhaps of an earlier process; "" if it does."""
        return self._issuer.check(trajectory)

    def finish(self, trajectory: Trajectory) -> None:
        """Ends its lease. A faulted episode goes back to be run again, by another worker if there is one.

        An episode of an unknown or expired lease is data like any other and counts.
        """
        with self._lock:
            if trajectory.fault is not Fault.NONE:
                abandoned = self._table.fault(trajectory.lease_id, self._clock())
                if abandoned is not None:
                    self._give_up(abandoned.id, abandoned)
                return
            self._table.finish(trajectory.lease_id)
            self._finished[trajectory.purpose] += 1

    def lose(self, trajectory: Trajectory) -> None:
        """A committed trajectory, of which the steps may be missing, will never be handed to training."""
        if trajectory.fault is Fault.NONE:
            with self._lock:
                self._finished[trajectory.purpose] -= 1
                self._give_up(trajectory.lease_id, trajectory)

    def tick(self) -> None:
        with self._lock:
            for lease in self._table.expire(self._clock()):
                self._give_up(lease.id, lease)

    # ---- training thread ----

    def set_phase(self, phase: str) -> None:
        """Enters a phase; retries of demonstrations do not outlive theirs."""
        with self._lock:
            self._phase = phase
            if phase != DEMONSTRATIONS:
                self._table.drop(lambda lease: lease.purpose is Purpose.DEMO)

    def set_updates(self, updates: int) -> None:
        with self._lock:
            self._updates = updates

    def set_elapsed(self, share: float) -> None:
        with self._lock:
            self._elapsed = share

    def account(self, trajectory: Trajectory, replayed: bool = False, is_usable: bool = True) -> None:
        """Training has taken `trajectory`; `replayed` from the store, so that `finish` never saw it.

        A training episode that is not usable does not count towards `learner.episodes`: another takes its
        place.
        """
        with self._lock:
            purpose, is_training = trajectory.purpose, trajectory.purpose is Purpose.TRAIN
            if trajectory.fault is not Fault.NONE:
                return
            if replayed and purpose is Purpose.DEMO:
                self._demonstrated.draw()  # its task was drawn before the restart
            if is_usable or purpose not in (Purpose.TRAIN, Purpose.IMAGINED):
                self._accounted[purpose] += 1
                self._finished[purpose] += replayed
            else:
                self._finished[purpose] -= not replayed
                self._void += not is_training
            score = trajectory.success if trajectory.outcome is not Outcome.UNJUDGED else None
            if is_training and is_usable and score is not None:
                self._source.record(trajectory.task, score)
            if is_training and is_usable and self._world.is_on:
                self._branches.add(trajectory)
            if self._round is not None:
                self._round.account(trajectory, score)

    def remember(self, trajectory: Trajectory) -> None:
        """Replay has had `trajectory` since before a restart: imagined episodes may go on from it."""
        with self._lock:
            if trajectory.purpose is Purpose.TRAIN and self._world.is_on:
                self._branches.add(trajectory)

    def join(self, trajectory: Trajectory, reward: float | None, replayed: bool = False) -> None:
        """A training episode of a group has been taken; `reward` is its R, None if it is of no use.

        Places of a group that only the store has are leased again. If a worker sends an episode of a group
        that is not known any more, others may follow, so the group is kept open for a while.
        """
        with self._lock:
            task = self._source.tasks.get(trajectory.task.id) if replayed else None
            self._groups.join(
                trajectory.group_id, task, self.config.group_size, trajectory.lease_id, trajectory.id, reward,
                self._clock(),
            )  # fmt: skip

    def pop_groups(self) -> list[Closed]:
        with self._lock:
            is_over = self._accounted[Purpose.TRAIN] >= self.config.episodes
            return self._groups.pop_closed(self._clock(), is_over)

    def held_ids(self) -> list[str]:
        """Trajectories that training has taken and that wait for the rest of their group."""
        with self._lock:
            return self._groups.held

    def start_eval(self, min_version: int = -1) -> None:
        """Starts a round on the run's validation tasks; weights older than `min_version` do not count.

        One that is under way ends without a result.
        """
        with self._lock:
            self._table.drop(lambda lease: lease.purpose is Purpose.EVAL)
            size, waiting = len(self._validation), deque(self._validation)
            self._round = EvalRound(self._updates, size, waiting, min_version) if size else None

    @property
    def is_evaluating(self) -> bool:
        return self.eval_progress is not None

    @property
    def eval_progress(self) -> EvalProgress | None:
        """How far the round under way is."""
        with self._lock:
            current = self._round
            if current is None or current.is_complete:
                return None
            done = current.size - len(current.waiting) - len(current.leases)
            return EvalProgress(done, current.size, any(map(self._table.is_held, current.leases)))

    def pop_eval(self) -> EvalRound | None:
        with self._lock:
            if self._round is None or not self._round.is_complete:
                return None
            done, self._round = self._round, None
            return done

    def accounted(self, purpose: Purpose) -> int:
        """How many episodes of this purpose training has taken; not those that wait for their group."""
        with self._lock:
            return self._ready(purpose)

    def updates_due(self) -> float:
        """How many updates the episodes that training has taken pay for; 0 before `min_replay`."""
        with self._lock:
            least = min(self.config.min_replay, self.config.episodes)
            return self._due() if self._ready(Purpose.TRAIN) >= least else 0.0

    def forgive_updates(self) -> None:
        """What they were to be made with has been dropped: updates that are due will not be made.

        Else they would count as work that lies ahead, and nothing new could be leased.
        """
        with self._lock:
            self._forgiven += max(0.0, self._due() - self._updates)

    def metrics(self) -> dict[str, float]:
        with self._lock:
            imagined = {"world/episodes": float(self._accounted[Purpose.IMAGINED])}
            return {
                "episodes": float(self._accounted[Purpose.TRAIN]),
                **(imagined if self._world.is_on else {}),
                "scheduler/withheld": float(self._withheld),
                **self._table.metrics(),
                **self._source.metrics(),
                **self._groups.metrics(),
            }

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able. What training has not taken yet is left out: it comes again.

        Demonstrations are over when the first checkpoint is written.
        """
        with self._lock:
            return {
                "phase": self._phase,
                "accounted": {purpose.value: n for purpose, n in self._accounted.items()},
                "void": self._void,
                "due": self._due(),
                "leases": dict(self._table.counters),
                "sampler": self._source.state_dict(),
                "groups": self._groups.state_dict(),
                "branches": self._branches.state_dict(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with self._lock:
            self._phase = state["phase"]
            self._accounted = {purpose: int(state["accounted"][purpose.value]) for purpose in Purpose}
            self._finished = dict(self._accounted)
            self._void = int(state["void"])
            self._table.counters = dict(state["leases"])
            self._source.load_state_dict(state["sampler"])
            self._groups.load_state_dict(state["groups"], self._source.tasks, self._clock())
            # Under another `updates_per_episode` earlier episodes have paid for as much as before.
            self._forgiven = self._due() - float(state["due"])
            self._branches.load_state_dict(state["branches"])

    # ---- under the lock ----

    def _ready(self, purpose: Purpose) -> int:
        return self._accounted[purpose] - (len(self._groups.held) if purpose is Purpose.TRAIN else 0)

    def _due(self) -> float:
        return self._paid(self._ready(Purpose.TRAIN), self._accounted[Purpose.IMAGINED])

    def _paid(self, num_real: int, num_imagined: int) -> float:
        """How many updates so many episodes pay for."""
        count = num_real + self._world.update_weight * num_imagined
        return count * self.config.updates_per_episode - self._forgiven

    def _next(self, worker: str) -> Lease | None:
        if self._phase == DEMONSTRATIONS:
            return self._next_demonstration(worker)
        if self._phase != TRAINING:
            return None
        return (
            self._next_eval(worker)
            or self._next_imagined(worker)
            or self._next_member(worker)
            or self._next_episode(worker)
        )

    def _next_eval(self, worker: str) -> Lease | None:
        current = self._round
        if current is None:
            return None
        again = self._again(Purpose.EVAL, worker, lambda lease: lease.id in current.leases)
        if again is None and current.waiting:
            return self._lease(current.waiting.popleft(), Purpose.EVAL, worker)
        return again

    def _next_imagined(self, worker: str) -> Lease | None:
        """As many as the real episodes so far entitle to; these are bounded by freshness."""
        if not self._world.is_on:
            return None
        real = self._finished[Purpose.TRAIN] - self._world.min_real
        wanted = int(self._world.imagined_per_real * real) - self._void
        again = self._again(Purpose.IMAGINED, worker)
        if again is not None or not self._is_wanted(Purpose.IMAGINED, wanted):
            return again
        if (drawn := self._branches.draw()) is None:
            return None
        task, branch = drawn
        return self._lease(task, Purpose.IMAGINED, worker, branch=branch)

    def _next_demonstration(self, worker: str) -> Lease | None:
        demonstrations = self.config.demonstrations
        again = self._again(Purpose.DEMO, worker)
        if again is not None or demonstrations.dataset is not None:
            return again
        later = 0 if self.policy_plays else self.num_played_by_policy
        if not self._is_wanted(Purpose.DEMO, demonstrations.episodes - later):
            return None
        return self._lease(self._demonstrated.draw(), Purpose.DEMO, worker)

    def _next_member(self, worker: str) -> Lease | None:
        """The next place of the open groups, which were admitted as a whole.

        Were a member kept back for freshness, the others would wait for it, and updates for them.
        """
        self._table.drop(lambda lease: bool(lease.group_id) and not self._groups.is_open(lease.group_id))
        again = self._again(Purpose.TRAIN, worker, lambda lease: bool(lease.group_id))
        group = self._groups.with_place()
        if again is not None or group is None or group.task is None:
            return again
        if not self._is_wanted(Purpose.TRAIN, self.config.episodes):
            self._groups.cancel_places()
            return None
        return self._lease(group.task, Purpose.TRAIN, worker, group_id=group.id)

    def _next_episode(self, worker: str) -> Lease | None:
        if not self._stays_fresh():
            self._withheld += 1
            return None
        again = self._again(Purpose.TRAIN, worker, lambda lease: not lease.group_id)
        if again is not None or not self._is_wanted(Purpose.TRAIN, self.config.episodes):
            return again
        task, group_id = self._source.draw(self._progress()), ""
        if self.config.group_size > 1:
            self._num_groups += 1
            group_id = f"{self._incarnation}-g{self._num_groups}"
            self._groups.open(group_id, task, self.config.group_size)
        return self._lease(task, Purpose.TRAIN, worker, group_id=group_id)

    def _again(
        self, purpose: Purpose, worker: str, is_wanted: Callable[[Lease], bool] = lambda lease: True
    ) -> Lease | None:
        """A lease of an episode that is to be run again, in place of the one that came to nothing."""
        retry = self._table.pop_retry(purpose, worker, self._clock(), is_wanted)
        if retry is None:
            return None
        old = retry.lease
        return self._lease(
            old.task, purpose, worker, retry.attempt + 1, old.group_id, old.id, branch=old.branch
        )

    def _is_wanted(self, purpose: Purpose, wanted: int) -> bool:
        return self._finished[purpose] + self._table.count(purpose, self._groups.is_open) < wanted

    def _progress(self) -> float:
        return max(self._accounted[Purpose.TRAIN] / self.config.episodes, self._elapsed)

    def _stays_fresh(self) -> bool:
        """Whether an episode, or a whole group, leased now is trained on within `max_staleness` versions.

        Ahead of it are the episodes that are out and those that arrived but have not had their updates; each
        brings `updates_per_episode` updates, and every `publish_every` updates make a version. Until replay
        holds `min_replay` episodes no update is made and nothing goes stale. A group counts with all its
        places from its first lease on. When what lies ahead pays for less than one update the next is always
        admitted: that update would wait for it. (Such a rest is left when a group lost a member, or by a
        replay ratio that does not divide by a group.)
        """
        config = self.config
        # Those that wait to be run again are not out: they would keep themselves from being leased. Members
        # of a group are, as nothing keeps them. Open groups have no places left at this point.
        out = self._table.count(Purpose.TRAIN, self._groups.is_open, is_out=True)
        count = self._finished[Purpose.TRAIN] + out
        imagined = self._finished[Purpose.IMAGINED] + self._table.count(Purpose.IMAGINED, lambda group: True)
        # By `_paid` as `_due`, so that rounding cannot part the two.
        ahead = self._paid(count, imagined) - self._updates
        own = config.group_size * config.updates_per_episode
        is_soon = ahead < 1.0 or ahead + own <= config.max_staleness * config.publish_every
        return count < config.min_replay or is_soon

    def _lease(
        self,
        task: Task,
        purpose: Purpose,
        worker: str,
        attempt: int = 1,
        group_id: str = "",
        former: str = "",
        by_hand: int | None = None,
        branch: Branch | None = None,
    ) -> Lease:
        """A new lease; `former` is the one that it replaces."""
        self._num_leases += 1
        name = f"{self._incarnation}-{self._num_leases}"
        plays = purpose is Purpose.DEMO and self.policy_plays and by_hand is None
        lease = self._issuer.issue(name, worker, task, purpose, group_id, plays, branch)
        lease = lease.model_copy(update={"by_hand": by_hand})
        self._table.hold(lease, worker, self._clock(), attempt)
        if group_id:
            self._groups.lease(group_id, lease.id, former)
        if purpose is Purpose.EVAL and self._round is not None:
            self._round.leases.pop(former, None)
            self._round.leases[lease.id] = task
        return lease

    def _give_up(self, lease_id: str, episode: Lease | Trajectory) -> None:
        """Records an episode that will not come. A demonstration or training episode is drawn again."""
        if self._round is not None:
            self._round.give_up(lease_id)
        self._void += episode.purpose is Purpose.IMAGINED
        if episode.group_id:
            self._groups.give_up(episode.group_id, lease_id)
