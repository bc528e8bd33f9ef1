"""A scheduler with a clock by hand, a store, and training that only notes what would enter replay."""

from __future__ import annotations

import json
from typing import Any

from distrl.configs.learner import LearnerConfig
from distrl.configs.world import WorldConfig
from distrl.core.messages import Lease
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.learner.episodes import GroupStats
from distrl.learner.scheduler import TRAINING, TaskScheduler
from distrl.learner.task_sampling import Drift

OPTIONS: dict[str, Any] = {
    "episodes": 40,
    "demonstrations": {"episodes": 0},
    "updates_per_episode": 0.5,
    "publish_every": 2,
    "max_staleness": 4,
    "min_replay": 4,
    "lease_ttl_s": 60.0,
}


class GroupWorld:
    """One process of a learner; `restart` makes the next one from a saved state and the same store.

    Attributes:
        replay: Group statistics of what has entered replay, by trajectory id.
        store: What has been committed, in order.
        taken: How many of those training has taken.
    """

    def __init__(
        self, toy: Any, incarnation: str = "i0", drift: Drift | None = None, seed: int = 0, **changes: Any
    ) -> None:
        self.toy, self.now, self.changes, self.drift = toy, 0.0, dict(changes), drift
        group_size, wait_s = changes.pop("group_size", 4), changes.pop("group_wait_s", 100.0)
        world = WorldConfig.model_validate(changes.pop("world", {}))
        if group_size > 1:
            changes["algorithm"] = {"kind": "grpo", "group_size": group_size, "group_wait_s": wait_s}
        self.config = LearnerConfig.model_validate({**OPTIONS, **changes})
        tasks, validation = [toy.task(i) for i in range(5)], [toy.task(i, "val") for i in range(4)]
        self.scheduler = TaskScheduler(
            self.config, tasks, validation, seed, incarnation, b"secret", lambda: self.now, drift, world
        )
        self.scheduler.set_phase(TRAINING)
        self.replay: dict[str, GroupStats] = {}
        self.store: list[Trajectory] = []
        self.taken = self.updates = 0

    def lease(self, count: int = 1, worker: str = "w") -> list[Lease]:
        return self.scheduler.grant(worker, count)

    def commit(
        self, lease: Lease, reward: float = 0.0, fault: Fault = Fault.NONE, version: int = 0, **fields: Any
    ) -> Trajectory:
        """What the network thread does with a trajectory."""
        fields.setdefault("outcome", Outcome.SUCCESS if reward > 0 else Outcome.FAILURE)
        trajectory = self.toy.trajectory(
            f"t{len(self.store)}",
            [self.toy.step(0, (1,), (-1.0,), version=version, outcome=reward)],
            lease_id=lease.id,
            group_id=lease.group_id,
            branch=lease.branch,
            purpose=lease.purpose,
            task=lease.task,
            success=min(1.0, max(0.0, reward)),
            fault=fault,
            **fields,
        )
        self.store.append(trajectory)
        self.scheduler.finish(trajectory)
        return trajectory

    def train(self, replayed: bool = False) -> None:
        """What the training thread does with all that came in."""
        for trajectory in self.store[self.taken :]:
            self.taken += 1
            self.scheduler.account(trajectory, replayed)
            if trajectory.fault is not Fault.NONE or trajectory.purpose is not Purpose.TRAIN:
                continue
            is_judged = trajectory.outcome is not Outcome.UNJUDGED
            if trajectory.group_id:
                reward = trajectory.total_reward if is_judged else None
                self.scheduler.join(trajectory, reward, replayed)
            elif is_judged:
                self.replay[trajectory.id] = GroupStats()
            self.release()
        self.release()

    def release(self) -> None:
        for closed in self.scheduler.pop_groups():
            for name in closed.members:
                assert name not in self.replay, "an episode entered replay twice"
                self.replay[name] = closed.stats

    def finish(
        self, lease: Lease, reward: float = 0.0, fault: Fault = Fault.NONE, **fields: Any
    ) -> Trajectory:
        trajectory = self.commit(lease, reward, fault, **fields)
        self.train()
        return trajectory

    def update(self) -> None:
        """Makes the updates that are due, if there is anything to make them with."""
        while self.replay and self.scheduler.updates_due() - self.updates >= 1:
            self.updates += 1
            self.scheduler.set_updates(self.updates)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.scheduler.tick()
        self.release()

    def save(self) -> dict[str, Any]:
        state = {
            "scheduler": self.scheduler.state_dict(),
            "taken": self.taken,
            "updates": self.updates,
            "replay": list(self.replay),
        }
        restored: dict[str, Any] = json.loads(json.dumps(state))
        return restored

    def restart(self, state: dict[str, Any], incarnation: str, **changes: Any) -> GroupWorld:
        """The next process: leases are lost, what came in after `state` is taken from the store."""
        again = GroupWorld(self.toy, incarnation, self.drift, **{**self.changes, **changes})
        again.store, again.taken, again.updates = self.store, state["taken"], state["updates"]
        again.replay = {name: self.replay[name] for name in state["replay"]}
        again.scheduler.load_state_dict(state["scheduler"])
        again.scheduler.set_updates(again.updates)
        again.train(replayed=True)
        return again

    def metric(self, name: str) -> float:
        return self.scheduler.metrics()[name]
