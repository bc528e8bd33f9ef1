"""Waiting for an episode: it says when no device is there, at growing intervals, and in its error."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from counting_phone import counting_config, write_suite

from distrl.core.errors import DistrlError
from distrl.core.types import Task, Trajectory
from distrl.evaluator import evaluator
from distrl.evaluator.evaluator import EvaluationStopped, Evaluator
from distrl.evaluator.progress import LineProgress
from distrl.evaluator.results import Subject
from distrl.evaluator.slots import Attempt, Finished, SlotPool
from distrl.evaluator.waiting import FIRST_WORD_S, next_episode
from distrl.workers.places import OwnPlaces, Places

LINE = "1 absent (emulator-5640: adb does not list it)"
TASK = Task(id="t/1", suite="t", template="t", split="test", goal="Go")


class World(OwnPlaces):
    """Slots and places whose time passes by being waited for.

    Attributes:
        busy: When a device is in use, as (from, to).
        ready: How many are free.
        ends_at: When an episode ends.
    """

    def __init__(self, has_pool: bool = True) -> None:
        self.now, self.busy, self.ready, self.ends_at = 0.0, (0.0, 0.0), 0, float("inf")
        self.has_pool, self.capacity = has_pool, 1
        self.said: list[tuple[float, str]] = []
        self.stop = threading.Event()

    def take(self, timeout_s: float) -> Finished | None:
        self.now += timeout_s
        return (
            Finished(Attempt(TASK), Trajectory(id="t", task=TASK), {}) if self.now >= self.ends_at else None
        )

    def enter(self, index: int, timeout_s: float) -> Any:
        return None

    def stats(self) -> Mapping[str, float]:
        is_busy = self.busy[0] <= self.now < self.busy[1]
        return {"devices_busy": float(is_busy), "devices_ready": float(self.ready)} if self.has_pool else {}

    def line(self) -> str:
        return LINE if self.has_pool else ""

    def wait(self, patience_s: float = 200.0) -> Finished | None:
        def say(text: str) -> None:
            self.said.append((round(self.now), text))

        pool, places = cast("SlotPool", self), cast("Places", self)
        return next_episode(pool, places, patience_s, self.stop, say, lambda: self.now)


def test_a_device_that_is_not_there_is_told_of_and_stands_in_the_error() -> None:
    world = World()
    with pytest.raises(DistrlError) as failed:
        world.wait()
    assert [at for at, _ in world.said] == [15, 30, 60, 120]
    assert world.said[0][1] == f"waits for a device, 15 s by now: {LINE}"
    assert failed.value.message == f"No episode ended for 200 s; devices: {LINE}."
    assert "devices" in failed.value.remedy


def test_whoever_works_is_not_said_to_wait() -> None:
    world = World()
    world.busy = (10.0, 150.0)
    with pytest.raises(DistrlError):
        world.wait()
    assert [at for at, _ in world.said] == [165, 180]


@pytest.mark.parametrize("has_pool", [True, False])
def test_free_devices_and_environments_of_ones_own_are_not_waited_for(has_pool: bool) -> None:
    world = World(has_pool)
    world.ready = 1
    with pytest.raises(DistrlError, match="No episode ended for 200 s"):
        world.wait()
    assert world.said == []


def test_an_episode_ends_the_wait_and_so_does_a_stop() -> None:
    world = World()
    world.ends_at = FIRST_WORD_S / 2
    finished = world.wait()
    assert finished is not None
    assert finished.attempt.task == TASK
    assert world.said == []
    world.stop.set()
    assert world.wait() is None


def test_an_evaluation_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, said = threading.Event(), []

    class Told(LineProgress):
        def say(self, message: str) -> None:
            if "device" in message:
                said.append(message)
                stop.set()

    def not_patient(*given: Any) -> Finished | None:
        times = iter(range(0, 10_000, 10))  # ten seconds pass between two looks
        return next_episode(*given, clock=lambda: float(next(times)))

    monkeypatch.setattr(evaluator, "open_places", lambda config, slots: World())
    monkeypatch.setattr(evaluator, "next_episode", not_patient)
    config = counting_config(write_suite(tmp_path, [{"taps": 1}]))
    expert = Subject(kind="expert", name="expert")
    with pytest.raises(EvaluationStopped), (tmp_path / "log").open("w") as log:
        Evaluator(config, tmp_path / "out", expert, stop=stop, progress=Told(log)).run()
    assert LINE in said[0]
