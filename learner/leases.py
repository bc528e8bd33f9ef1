"""The table of leases: which worker holds which episode until when, and which must be run again.

Not thread-safe: the scheduler holds its lock around every call.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from distrl.configs.learner import LearnerConfig
from distrl.core.messages import Lease
from distrl.core.security import Client
from distrl.core.types import Branch, Purpose, Sampling, Task, Trajectory

MAX_ATTEMPTS = 3
AVOID_S = 10.0
REMEMBERED = 2**16  # fulfilled leases that a second trajectory is refused for


def sampling_for(config: LearnerConfig, purpose: Purpose) -> Sampling:
    """How an episode's actions are drawn: greedily for validation, else as configured for training."""
    if purpose is Purpose.EVAL:
        return Sampling(temperature=0.0, max_new_tokens=config.max_new_tokens)
    return Sampling(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_new_tokens=config.max_new_tokens,
    )


class LeaseIssuer:
    """Makes leases, and compares trajectories with them.

    A lease's id ends with an HMAC of what was granted: the worker, the task but for its goal, which an
    environment may word, the purpose, the group, the branch and, but for demonstrations, the sampling. So the
    learner need not remember leases to know later, and after a restart, whether a trajectory fits one that
    was granted in this run.
    """

    def __init__(self, config: LearnerConfig, secret: bytes) -> None:
        self._config, self._secret = config, secret
        self._fulfilled: OrderedDict[str, str] = OrderedDict()  # trajectories by lease

    def issue(
        self,
        name: str,
        worker: str,
        task: Task,
        purpose: Purpose,
        group_id: str,
        policy_plays: bool,
        branch: Branch | None = None,
    ) -> Lease:
        """The lease `name` of an episode of `task` for `worker`."""
        config, sampling = self._config, sampling_for(self._config, purpose)
        return Lease(
            id=f"{name}-{self._seal(name, worker, task, purpose, group_id, sampling, branch)}",
            task=task,
            purpose=purpose,
            group_id=group_id,
            sampling=sampling,
            noise=config.demonstrations.noise if purpose is Purpose.DEMO and not policy_plays else 0.0,
            policy_plays=policy_plays,
            branch=branch,
            ttl_s=config.lease_ttl_s,
        )

    def check(self, trajectory: Trajectory) -> str:
        """Why `trajectory` does not fit the lease that it names; "" if it does, which fulfils the lease."""
        answers = [chat.completion for step in trajectory.steps for chat in step.chats]
        used = {_drawn(answer.sampling): answer.sampling for answer in answers if answer.token_ids}
        if len(used) > 1:
            return f"its completions were sampled in {len(used)} ways, and its lease allows one"
        task, purpose, lease_id = trajectory.task, trajectory.purpose, trajectory.lease_id
        if used and purpose is Purpose.DEMO:
            return "a demonstration has no sampled tokens"
        sampling = next(iter(used.values()), sampling_for(self._config, purpose))
        name, _, seal = lease_id.rpartition("-")
        try:
            group_id, branch = trajectory.group_id, trajectory.branch
            wanted = self._seal(name, trajectory.worker, task, purpose, group_id, sampling, branch)
        except (ValueError, RecursionError):
            return "the parameters of its task are not plain data"
        if not hmac.compare_digest(seal.encode(), wanted.encode()):
            return (
                f"lease {lease_id[:80]!r} was not granted for this: worker {trajectory.worker[:80]!r}, "
                f"task {task.id[:80]!r}, seed {task.seed}, purpose {purpose.value}, "
                f"group {trajectory.group_id[:80]!r}, "
                f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}"
            )
        first = self._fulfilled.setdefault(lease_id, trajectory.id)
        if first != trajectory.id:
            return f"lease {lease_id} was fulfilled by the trajectory {first}"
        if len(self._fulfilled) > REMEMBERED:
            self._fulfilled.popitem(last=False)
        return ""

    def _seal(
        self,
        name: str,
        worker: str,
        task: Task,
        purpose: Purpose,
        group_id: str,
        sampling: Sampling,
        branch: Branch | None,
    ) -> str:
        drawn = None if purpose is Purpose.DEMO else _drawn(sampling)
        plain = task.model_dump(mode="json", exclude={"goal"})
        left = None if branch is None else branch.model_dump(mode="json")
        granted = [name, worker, plain, purpose.value, group_id, drawn, left]
        text = json.dumps(granted, sort_keys=True).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:32]


def _drawn(sampling: Sampling) -> tuple[float, float, int]:
    """How tokens are drawn; without `max_new_tokens`, which a full context lowers."""
    return sampling.temperature, sampling.top_p, sampling.top_k


@dataclass
class Held:
    """A lease that a worker holds until `deadline`; renewals move that, but never beyond `limit`."""

    lease: Lease
    worker: str
    deadline: float
    limit: float
    attempt: int


class Retry(NamedTuple):
    """An episode to be run again. For a while it is kept from `worker`, where it failed, if it did."""

    lease: Lease
    worker: str
    attempt: int
    since: float


class LeaseTable:
    """Active leases by id, and retries by the id of the lease that failed, in order of failure."""

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._held: dict[str, Held] = {}
        self._retries: OrderedDict[str, Retry] = OrderedDict()
        self.counters = {"expired": 0, "faulted": 0, "abandoned": 0}

    def count(self, purpose: Purpose, is_open: Callable[[str], bool], is_out: bool = False) -> int:
        """How many leases of this purpose are out or wait to be given out again.

        Without members of groups that are not `is_open` any more: they may hang, and others take their place.

        Args:
            is_out: Leave out what waits and has no group: it may have to wait for training itself.
        """
        again = [r.lease for r in self._retries.values() if r.lease.group_id or not is_out]
        leases = [*(held.lease for held in self._held.values()), *again]
        return sum(x.purpose is purpose and (not x.group_id or is_open(x.group_id)) for x in leases)

    def hold(self, lease: Lease, worker: str, now: float, attempt: int = 1) -> None:
        limit = now + self._max_s
        self._held[lease.id] = Held(lease, worker, min(now + lease.ttl_s, limit), limit, attempt)

    def is_held(self, lease_id: str) -> bool:
        return lease_id in self._held

    def num_held(self, client: Client, now: float) -> int:
        return sum(client.owns(held.worker) and held.deadline > now for held in self._held.values())

    def make_room(self, worker: str, most: int, now: float) -> None:
        """Ends the oldest leases of `worker` that are more than `most`."""
        held = [h for h in self._held.values() if h.worker == worker]
        for one in sorted(held, key=lambda one: one.deadline)[: max(0, len(held) - most)]:
            one.deadline = now

    def renew(self, worker: str, lease_id: str, now: float) -> None:
        """Prolongs a lease that `worker` holds, up to its limit."""
        held = self._held.get(lease_id)
        if held is not None and held.worker == worker:
            held.deadline = min(now + held.lease.ttl_s, held.limit)

    def finish(self, lease_id: str) -> None:
        """Ends a lease, also one that expired and still waits for its retry."""
        if self._held.pop(lease_id, None) is None:
            self._retries.pop(lease_id, None)

    def fault(self, lease_id: str, now: float) -> Lease | None:
        """Ends a lease whose episode faulted. Returns it if it will not be tried again."""
        self.counters["faulted"] += 1
        held = self._held.pop(lease_id, None)
        return self._again(held, now) if held else None

    def release(self, worker: str, lease_id: str, now: float) -> None:
        """Takes back a lease that `worker` holds and has not failed at: the next worker may have it."""
        held = self._held.get(lease_id)
        if held is not None and held.worker == worker:
            del self._held[lease_id]
            if held.lease.by_hand is None:
                self._retries[lease_id] = Retry(held.lease, "", held.attempt - 1, now)

    def expire(self, now: float) -> list[Lease]:
        """Takes back what is overdue. Returns what of it will not be tried again."""
        overdue = [held for held in self._held.values() if held.deadline <= now]
        self.counters["expired"] += len(overdue)
        for held in overdue:
            del self._held[held.lease.id]
        abandoned = [self._again(held, now) for held in overdue]
        return [lease for lease in abandoned if lease is not None]

    def _again(self, held: Held, now: float) -> Lease | None:
        if held.attempt >= MAX_ATTEMPTS or held.lease.by_hand is not None:  # a person plays once
            self.counters["abandoned"] += 1
            return held.lease
        self._retries[held.lease.id] = Retry(held.lease, held.worker, held.attempt, now)
        return None

    def pop_retry(
        self, purpose: Purpose, worker: str, now: float, is_wanted: Callable[[Lease], bool]
    ) -> Retry | None:
        """The oldest wanted retry of this purpose that `worker` may have."""
        for lease_id, retry in self._retries.items():
            kept_away = retry.worker == worker and now - retry.since < AVOID_S
            if retry.lease.purpose is purpose and not kept_away and is_wanted(retry.lease):
                return self._retries.pop(lease_id)
        return None

    def drop(self, is_unwanted: Callable[[Lease], bool]) -> None:
        for lease_id in [i for i, retry in self._retries.items() if is_unwanted(retry.lease)]:
            del self._retries[lease_id]

    def metrics(self) -> dict[str, float]:
        """How many leases are out, and the counters."""
        counts = {"leases_out": len(self._held), **self.counters}
        return {f"scheduler/{name}": float(count) for name, count in counts.items()}
