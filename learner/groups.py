"""Groups: K episodes of one task that are compared with each other (GRPO), and when one is complete.

    opened ─► places are leased one by one ─► members arrive, or are given up ─► closed: all enter replay

A group closes with what it has when nothing more is to come, when it has waited too long for the rest, or
when the run has all its episodes. A dead or stuck member therefore blocks nothing. A member that arrives
later enters alone, compared with the whole group.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrl.core.types import Task
from distrl.learner.episodes import GroupStats

REMEMBERED = 256  # closed groups whose late members still find them


@dataclass
class Group:
    """A group that is open.

    Attributes:
        task: What its places are leased for; None if no more are to be leased.
        size: How many members it was meant to have.
        members: Total reward R of those that are in, by trajectory id.
        gone: How many will not come, or are of no use.
        out: Ids of its leases: held by a worker, or waiting to be run again.
        since: When the first member arrived.
    """

    id: str
    task: Task | None
    size: int
    members: dict[str, float] = field(default_factory=dict)
    gone: int = 0
    out: set[str] = field(default_factory=set)
    since: float | None = None

    @property
    def num_places(self) -> int:
        """How many places have not been leased yet."""
        if self.task is None:
            return 0
        return max(0, self.size - len(self.members) - self.gone - len(self.out))

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to come."""
        return len(self.members) + self.gone >= self.size


@dataclass(frozen=True)
class Closed:
    """Trajectories that may enter replay now, and the statistics of their group."""

    members: tuple[str, ...]
    stats: GroupStats


class Groups:
    """The open groups, oldest first, and the rewards of those closed last.

    Args:
        wait_s: How long a group waits for the others once its first member is in.

    Attributes:
        num_closed: How many have been closed.
        num_incomplete: How many of those had fewer members than places.
        num_late: Members that arrived after that.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._open: OrderedDict[str, Group] = OrderedDict()
        self._rewards: OrderedDict[str, list[float]] = OrderedDict()
        self._late: list[Closed] = []
        self.num_closed = self.num_incomplete = self.num_late = 0

    @property
    def num_open(self) -> int:
        """How many groups are open."""
        return len(self._open)

    @property
    def num_held(self) -> int:
        """How many trajectories wait for the rest of their group."""
        return sum(len(group.members) for group in self._open.values())

    @property
    def held(self) -> list[str]:
        """Their ids."""
        return [name for group in self._open.values() for name in group.members]

    def is_open(self, group_id: str) -> bool:
        """Whether it waits for members."""
        return group_id in self._open

    # ---- leasing ----

    def open(self, group_id: str, task: Task, size: int) -> Group:
        """Opens a group; its places are to be leased."""
        group = self._open[group_id] = Group(group_id, task, size)
        return group

    def with_place(self) -> Group | None:
        """The oldest group that has a place to give."""
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
            task, size: If the group is unknown, because an earlier process opened it: what the rest of its
                places are leased for (None: they are only waited for), and how many there are in all.
            lease_id: The lease that it fulfils, if still known.
            name: Its trajectory id.
            reward: R, or None if it is of no use.
            now: By the scheduler's clock.
        """
        group = self._open.get(group_id)
        if group is None and group_id in self._rewards:
            self._join_late(group_id, name, reward)
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

    def _join_late(self, group_id: str, name: str, reward: float | None) -> None:
        if reward is not None:
            self.num_late += 1
            self._rewards[group_id].append(reward)
            self._late.append(Closed((name,), GroupStats.of(self._rewards[group_id])))

    def pop_closed(self, now: float, is_over: bool = False) -> list[Closed]:
        """Closes what is complete or has waited long enough; `is_over` closes all.

        Returns:
            What has been closed since the last call, latecomers included.
        """
        closed, self._late = self._late, []
        for group in list(self._open.values()):
            has_waited = group.since is not None and now - group.since >= self._wait_s
            if group.is_complete or has_waited or is_over:
                del self._open[group.id]
                closed += self._close(group)
        return closed

    def _close(self, group: Group) -> list[Closed]:
        self.num_closed += 1
        self.num_incomplete += len(group.members) < group.size
        if not group.members:
            return []
        rewards = list(group.members.values())
        self._rewards[group.id] = rewards
        while len(self._rewards) > REMEMBERED:
            self._rewards.popitem(last=False)
        return [Closed(tuple(group.members), GroupStats.of(rewards))]

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
            "rewards": {name: list(rewards) for name, rewards in self._rewards.items()},
            "counts": [self.num_closed, self.num_incomplete, self.num_late],
        }

    def load_state_dict(self, state: dict[str, Any], tasks: Mapping[str, Task], now: float) -> None:
        """Restores `state_dict`. Leases are lost: the places of missing members are leased again."""
        self._open.clear()
        for name, kept in state["open"].items():
            group = Group(name, tasks.get(kept["task"]), int(kept["size"]), since=now)
            group.members, group.gone = dict(kept["members"]), int(kept["gone"])
            self._open[name] = group
        self._rewards = OrderedDict((name, list(rewards)) for name, rewards in state["rewards"].items())
        self.num_closed, self.num_incomplete, self.num_late = (int(count) for count in state["counts"])

    def metrics(self) -> dict[str, float]:
        """Counters; nothing if there never was a group."""
        if not self.num_closed and not self._open:
            return {}
        return {
            "groups/open": float(self.num_open),
            "groups/held": float(self.num_held),
            "groups/closed": float(self.num_closed),
            "groups/incomplete": float(self.num_incomplete),
            "groups/late": float(self.num_late),
        }
