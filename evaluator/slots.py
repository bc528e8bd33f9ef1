"""The slots of an evaluation: threads that run the worker's own episode code on tasks from a queue.

    tasks ──► [queue] ──► slot 0 … slot N−1: place + agent + policy client ──► [queue] ──► finished

A slot waits until there is a task, for a place, and then takes the task (all until `close`); for its
environment and for the policy (both have deadlines of their own), and for room in the queue of finished
episodes. A place comes before the task, so that no environment that does not start takes any; `Standing` says
how long its slot rests, and when there is no hope: then each task that waits has faulted once.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from distrl.configs.schema import Config
from distrl.core.errors import EnvError
from distrl.core.messages import Lease
from distrl.core.types import (
    NO_PREFIX,
    ChatMessage,
    Completion,
    Fault,
    Prefix,
    Purpose,
    Sampling,
    Task,
    Trajectory,
)
from distrl.core.verdicts import Spent
from distrl.evaluator.standing import Standing
from distrl.workers.agents import build_agent
from distrl.workers.conversation import PolicyClient
from distrl.workers.places import Place, Places, Visit
from distrl.workers.slot import EpisodeRunner
from distrl.workers.worker import SlotPolicy

POLL_S = 0.1
IDLE_S = 0.05
"""Pause between two looks for a task."""

NOTHING = Spent()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attempt:
    """A task, and how often it was tried before.

    Attributes:
        task: What is tried.
        number: Which try, from 0.
        name: Its lease's; by default one made of the other three.
        repetition: The seed of the repetition, where the task's own seed does not tell it.
    """

    task: Task
    number: int = 0
    name: str = ""
    repetition: int = 0

    @property
    def lease_id(self) -> str:
        """The id of its lease."""
        repetition = f"{self.repetition}-" if self.repetition else ""
        return self.name or f"evaluate-{repetition}{self.number}-{self.task.id}"[:200]

    def again(self) -> Attempt:
        """The next one at the same task."""
        return replace(self, number=self.number + 1)


@dataclass(frozen=True)
class Finished:
    """An attempt that ended, faulted or not. `spent`: on a model behind an endpoint, where one acts."""

    attempt: Attempt
    trajectory: Trajectory
    images: Mapping[str, bytes]
    spent: Spent = NOTHING


@runtime_checkable
class Spends(Protocol):
    """A policy client whose calls are counted."""

    def take_spent(self) -> Spent:
        """What was spent since this was last asked."""
        ...


@dataclass(frozen=True)
class HowToAct:
    """Who acts. With `expert_noise` the scripted expert does, with that share of random actions; with
    `randomly` nobody looks, see `RandomActor`. `worker` is what the records say. With `distances` they say
    how far each screen is from the goal, for those who judge what went wrong."""

    temperature: float = 0.0
    max_new_tokens: int = 32
    expert_noise: float | None = None
    randomly: bool = False
    worker: str = "evaluate"
    distances: bool = False


class SlotPool:
    """Runs attempts in up to `num_slots` places at a time.

    Args:
        config: The sections agent and worker are used.
        places: The environments, or devices, that attempts run on; whoever made them closes them.
        policy: Makes the policy client of a slot; called in the slot's thread. None when none is asked.
        act: Who acts.
        num_slots: Threads.
        capacity: The most attempts that wait at any time.
    """

    def __init__(
        self,
        config: Config,
        places: Places,
        policy: Callable[[int], SlotPolicy] | None,
        act: HowToAct,
        num_slots: int,
        capacity: int,
    ) -> None:
        self._config, self._places, self._policy, self._act = config, places, policy, act
        self._agent = build_agent(config.agent)
        # Ground truth is measured, whoever judges in training.
        rewards = config.worker.rewards.model_copy(update={"source": "environment"})
        self._worker = config.worker.model_copy(update={"rewards": rewards})
        self._tasks: queue.Queue[Attempt] = queue.Queue(maxsize=max(1, capacity))
        self._finished: queue.Queue[Finished | BaseException] = queue.Queue(maxsize=2 * num_slots)
        self._stop = threading.Event()
        self._standing = Standing(num_slots)
        self._threads = [
            threading.Thread(target=self._guard, args=(index,), name=f"slot-{index}", daemon=True)
            for index in range(num_slots)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, attempt: Attempt) -> None:
        """Hands in an attempt; there must be room (see `capacity`)."""
        self._tasks.put_nowait(attempt)

    def take(self, timeout_s: float) -> Finished | None:
        """An attempt that ended, None when none did in time.

        Raises:
            DistrlError: What ended a slot for good, such as a missing program.
            Exception: A bug in an environment, an agent or here.
        """
        try:
            item = self._finished.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self, timeout_s: float = 5.0) -> None:
        """Stops the slots. Episodes under way are abandoned before their next step; after `timeout_s` a slot
        that is still inside a step is left behind as a daemon thread."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    # ---- slot threads ----

    def _guard(self, index: int) -> None:
        try:
            self._work(index)
        except BaseException as error:  # noqa: BLE001 - `take` raises it in the main thread
            self._report(error)

    def _work(self, index: int) -> None:
        policy: SlotPolicy = self._policy(index) if self._policy is not None else _NobodyActs()
        try:
            while not self._stop.is_set():
                place = None if self._tasks.empty() else self._enter(index)
                if place is None:
                    self._stop.wait(IDLE_S)
                    continue
                attempt = self._next()
                if attempt is None:  # another slot was quicker
                    self._places.leave(place)
                    continue
                self._run(index, self._places.change(place, attempt.task), policy, attempt)
        finally:
            policy.close()
            self._places.quit(index)

    def _next(self) -> Attempt | None:
        with contextlib.suppress(queue.Empty):
            return self._tasks.get_nowait()
        return None

    def _enter(self, index: int) -> Place | None:
        """A place for the slot, None if none was free. One whose environment does not start makes it rest."""
        try:
            place = self._places.enter(index, POLL_S)
        except EnvError as error:
            self._no_start(index, error)
            return None
        if place is not None:
            self._standing.starts(index)
        return place

    def _no_start(self, index: int, error: EnvError) -> None:
        """Makes the slot rest. It costs tasks a try only where no slot is left that could run them.

        A pool rests its devices by itself, and slots take turns on them: there it costs one task a try.
        """
        if self._places.heals:
            self._charge(self._next(), index, error)
            return
        rest_s, is_hopeless = self._standing.no_start(index)
        _log.warning("slot %d: its environment does not start: %s Next try in %g s.", index, error, rest_s)
        for _ in range(self._tasks.qsize() if is_hopeless else 0):
            self._charge(self._next(), index, error)
        self._stop.wait(rest_s)

    def _charge(self, attempt: Attempt | None, index: int, error: EnvError) -> None:
        if attempt is not None:
            self._report(Finished(attempt, _faulted(attempt.task, index, self._act.worker, error), {}))

    def _run(self, index: int, place: Place, policy: PolicyClient, attempt: Attempt) -> None:
        runner = EpisodeRunner(
            place.env,
            self._agent,
            policy,
            self._worker,
            worker=self._act.worker,
            slot=index,
            stop=self._stop,
            distances=self._act.distances,
            randomly=self._act.randomly,
        )
        episode = runner.run(self._lease(attempt))
        if episode is None:  # abandoned: the evaluation stops
            self._places.leave(place)
            return
        trajectory, images = episode
        visit = Visit(trajectory, images, runner.error)
        self._places.leave(place, visit)
        spent = policy.take_spent() if isinstance(policy, Spends) else NOTHING
        self._report(Finished(attempt, trajectory, images, spent))
        if not visit.is_broken:
            self._standing.works(index)
        elif not self._places.heals:
            self._stop.wait(self._standing.broke(index))

    def _lease(self, attempt: Attempt) -> Lease:
        noise = self._act.expert_noise
        if noise is not None:
            return Lease(id=attempt.lease_id, task=attempt.task, purpose=Purpose.DEMO, noise=noise)
        sampling = Sampling(temperature=self._act.temperature, max_new_tokens=self._act.max_new_tokens)
        return Lease(id=attempt.lease_id, task=attempt.task, purpose=Purpose.EVAL, sampling=sampling)

    def _report(self, item: Finished | BaseException) -> None:
        """Hands over what happened; given up once the evaluation stops, when nobody takes it any more."""
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._finished.put(item, timeout=POLL_S)
                return


class _NobodyActs:
    """The policy client of an evaluation that asks no policy."""

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """Never called."""
        raise AssertionError("the expert or a random agent asked for a policy")

    def close(self) -> None:
        """Nothing to close."""


def _faulted(task: Task, slot: int, worker: str, error: EnvError) -> Trajectory:
    """The record of an episode whose environment did not even start."""
    return Trajectory(
        id=uuid.uuid4().hex,
        task=task,
        purpose=Purpose.EVAL,
        worker=worker,
        slot=slot,
        fault=Fault(error.fault),
        fault_detail=str(error)[:500],
        started_at=time.time(),
    )
