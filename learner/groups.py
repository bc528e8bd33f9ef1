"""Episodes that belong together: groups of one task that are compared (GRPO), and rounds of validation.

    opened ─► places are leased one by one ─► members arrive, or are given up ─► closed: all enter replay

A group closes with what it has when nothing more is to come, when it has waited too long for the rest, or
when the run has all its episodes. A dead or stuck member therefore blocks nothing. Members that arrive later
are a group of their own.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrl.core.types import RewardParts, Task, Trajectory
from distrl.learner.episodes import GroupStats


@dataclass
class Group:
    """A group that is open."""

    id: str
    task: Task | None  # what its places are leased for; None if no more are to be leased
    size: int  # how many members it was meant to have
    members: dict[str, float] = field(default_factory=dict)  # R of those that are in, by trajectory id
    gone: int = 0  # how many will not come, or are of no use
    out: set[str] = field(default_factory=set)  # its leases: held by a worker, or waiting to be run again
    since: float | None = None  # when the first member arrived

    @property
    def num_places(self) -> int:
        if self.task is None:
            return 0
        return max(0, self.size - len(self.members) - self.gone - len(self.out))

    @property
    def is_complete(self) -> bool:
        return len(self.members) + self.gone >= self.size


@dataclass(frozen=True)
class Closed:
    """Trajectories that may enter replay now, and the statistics of their group."""

    members: tuple[str, ...]
    stats: GroupStats


class Groups:
    """The open groups, oldest first.

    Args:
        wait_s: How long a group waits for the others once its first member is in.

    Attributes:
        counters: Groups that were closed, and those of them with fewer members than places.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._open: OrderedDict[str, Group] = OrderedDict()
        self.counters = {"closed": 0, "incomplete": 0}

    @property
    def held(self) -> list[str]:
        """The ids of trajectories that wait for the rest of their group."""
        return [name for group in self._open.values() for name in group.members]

    def is_open(self, group_id: str) -> bool:
        return group_id in self._open

    # ---- leasing ----

    def open(self, group_id: str, task: Task, size: int) -> None:
        """Opens a group; its places are to be leased."""
        self._open[group_id] = Group(group_id, task, size)

    def with_place(self) -> Group | None:
        return next((group for group in self._open.values() if group.num_places), None)

    def lease(self, group_id: str, lease_id: str, instead_of: str = "") -> None:
        """A place is given out under `lease_id`; `instead_of` is the lease that came to nothing, if any."""
        group = self._open[group_id]
        group.out.discard(instead_of)
        group.out.add(lease_id)

    def give_up(self, group_id: str, lease_id: str) -> None:
        """The member with this lease will not come."""
        group = self._open.get(group_id)
        if group is not None and lease_id in group.out:
            group.out.discard(lease_id)
            group.gone += 1

    def cancel_places(self) -> None:
        """No more episodes are wanted: places that were not leased are given up."""
        for group in self._open.values():
            group.gone += group.num_places

    # ---- members ----

    def join(
        self, group_id: str, task: Task | None, size: int, lease_id: str, name: str, reward: float | None,
        now: float,
    ) -> None:  # fmt: skip
        """A member has arrived.

        Args:
            task, size: If the group is not open (it was closed, or an earlier process opened it): what the
                rest of its places are leased for (None: they are only waited for), and how many there are.
            reward: R, or None if it is of no use.
        """
        group = self._open.get(group_id)
        if group is None and reward is None:
            return
        if group is None:
            group = self._open[group_id] = Group(group_id, task, size)
        group.out.discard(lease_id)
        if reward is None:
            group.gone += 1
            return
        group.members[name] = reward
        if group.since is None:
            group.since = now

    def pop_closed(self, now: float, is_over: bool = False) -> list[Closed]:
        """Closes what is complete or has waited long enough; `is_over` closes all."""
        closed = []
        for group in list(self._open.values()):
            has_waited = group.since is not None and now - group.since >= self._wait_s
            if group.is_complete or has_waited or is_over:
                del self._open[group.id]
                self.counters["closed"] += 1
                self.counters["incomplete"] += len(group.members) < group.size
                if group.members:
                    closed.append(Closed(tuple(group.members), GroupStats.of(list(group.members.values()))))
        return closed

    # ---- restarts ----

    def state_dict(self) -> dict[str, Any]:
        """What a restart needs, JSON-able: groups with members. Of the others nothing would be left."""
        return {
            "open": {
                group.id: {
                    "task": group.task.id if group.task else None,
                    "size": group.size,
                    "members": dict(group.members),
                    "gone": group.gone,
                }
                for group in self._open.values()
                if group.members
            },
            "counters": dict(self.counters),
        }

    def load_state_dict(self, state: dict[str, Any], tasks: Mapping[str, Task], now: float) -> None:
        """Restores `state_dict`. Leases are lost: the places of missing members are leased again."""
        self._open.clear()
        for name, kept in state["open"].items():
            group = Group(name, tasks.get(kept["task"]), int(kept["size"]), since=now)
            group.members, group.gone = dict(kept["members"]), int(kept["gone"])
            self._open[name] = group
        self.counters = dict(state["counters"])

    def metrics(self) -> dict[str, float]:
        """Counters; nothing if there never was a group."""
        if not self.counters["closed"] and not self._open:
            return {}
        counts = {"open": len(self._open), "held": len(self.held), **self.counters}
        return {f"groups/{name}": float(count) for name, count in counts.items()}


# ---- validation ----


@dataclass
class EvalRound:
    """One measurement on validation tasks with greedy sampling."""

    updates: int  # the learner's when it started
    size: int  # how many episodes it has
    waiting: deque[Task]  # not leased yet
    min_version: int = -1  # episodes acted with older weights, if only for a token, are run again
    leases: dict[str, Task] = field(default_factory=dict)  # those that are not accounted for, by id
    scores: list[float] = field(default_factory=list)  # success of each finished episode that was judged
    rewards: list[RewardParts] = field(default_factory=list)  # their parts, summed over the steps
    abandoned: int = 0  # episodes that faulted again and again

    @property
    def success(self) -> float | None:
        """Mean success; None when nothing was measured."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def mean_rewards(self) -> dict[str, float]:
        """The mean of each part of the reward over the scored episodes."""
        count = len(self.rewards)
        names = RewardParts.model_fields if count else ()
        return {name: sum(getattr(parts, name) for parts in self.rewards) / count for name in names}

    @property
    def is_complete(self) -> bool:
        return not self.waiting and not self.leases

    def account(self, trajectory: Trajectory, score: float | None) -> None:
        """An episode has arrived; its score is None if it has no verdict. Other leases do not count."""
        task = self.leases.pop(trajectory.lease_id, None)
        if task is not None and 0 <= trajectory.oldest_version < self.min_version:
            self.waiting.append(task)
        elif task is not None and score is not None:
            self.scores.append(score)
            self.rewards.append(trajectory.reward_parts)

    def give_up(self, lease_id: str) -> None:
        """The episode of this lease will not come."""
        if self.leases.pop(lease_id, None) is not None:
            self.abandoned += 1
