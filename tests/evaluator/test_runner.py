"""The queue of episodes: pauses after failures, and watching for devices that are missing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, EnvError, NothingCameIn
from distrl.core.types import Task, Trajectory
from distrl.evaluator.runner import (
    FIRST_REPORT_S,
    Actor,
    Attempt,
    EpisodeQueue,
    EvaluationStopped,
    Starts,
    _measuring,
)
from distrl.evaluator.statistics import EpisodeResult
from distrl.workers.env_pool import EnvPool, EpisodeEnd

LINE = "1 absent (emulator-5640: adb does not list it)"
TASK = Task(id="t/1", suite="t", template="t", split="test", goal="Go", max_steps=4)


class Devices(EnvPool):
    """Devices of a pool: `busy` is when one is in use, as (from, to); `ready` is how many are free."""

    def __init__(self, has_pool: bool) -> None:
        self.now, self.busy, self.ready, self.has_pool = 0.0, (0.0, 0.0), 0, has_pool

    def stats(self) -> Mapping[str, float]:
        is_busy = self.busy[0] <= self.now < self.busy[1]
        return {"devices_busy": float(is_busy), "devices_ready": float(self.ready)} if self.has_pool else {}

    def line(self) -> str:
        return LINE if self.has_pool else ""


class Watched:
    """A queue that is looked at five times a second."""

    def __init__(self, has_pool: bool = True) -> None:
        self.devices, self.stop = Devices(has_pool), threading.Event()
        self.said: list[tuple[float, str]] = []
        pool = [{"kind": "sim"}] if has_pool else []
        self.queue = EpisodeQueue(
            Config.model_validate({"devices": {"pool": pool}, "worker": {"slots": 1}}),
            [Attempt(TASK)],
            Actor(),
            self.keep,
            self,  # type: ignore[arg-type]
            self.stop,
            Path("out"),
            self.devices,
            clock=lambda: self.devices.now,
        )

    def say(self, text: str) -> None:
        self.said.append((round(self.devices.now), text))

    def add(self, result: Any, is_final: bool) -> None:
        pass

    def keep(self, attempt: Attempt, trajectory: Any, images: object, spent: object) -> EpisodeResult:
        return trajectory  # type: ignore[no-any-return]

    def watch(self, until_s: float = 1000.0) -> None:
        while self.devices.now < until_s:
            self.queue.check()
            self.devices.now += 0.2


def test_a_missing_device_is_reported_and_named_in_the_error() -> None:
    watched = Watched()
    with pytest.raises(DistrlError) as failed:
        watched.watch()
    assert [at for at, _ in watched.said] == [15, 30, 60, 120]
    assert watched.said[0][1] == f"no device available for 15 s: {LINE}"
    assert failed.value.message == f"No episode ended for 240 s; devices: {LINE}."
    assert "devices" in failed.value.remedy


@pytest.mark.parametrize(
    ("has_pool", "ready", "busy", "said"),
    [
        (True, 0, (10.0, 150.0), [165, 180, 210]),  # a device in use is not missing
        (True, 1, (0.0, 0.0), []),
        (False, 0, (0.0, 0.0), []),
    ],
)
def test_other_devices_are_not_missing(
    has_pool: bool, ready: int, busy: tuple[float, float], said: list[int]
) -> None:
    watched = Watched(has_pool)
    watched.devices.ready, watched.devices.busy = ready, busy
    with pytest.raises(DistrlError, match="No episode ended for 240 s"):
        watched.watch()
    assert [at for at, _ in watched.said] == said


def test_an_episode_restarts_the_watch_and_a_stop_ends_it() -> None:
    watched = Watched()
    watched.watch(FIRST_REPORT_S / 2)
    watched.queue.policy(0)
    lease = watched.queue.lease(0.0)
    assert lease is not None
    assert watched.queue.lease(0.0) is None
    watched.queue.release(lease.id)
    assert watched.queue.lease(0.0) == lease
    watched.queue.submit(Trajectory(id="t", task=TASK, lease_id=lease.id), {})
    assert watched.queue.shutdown.is_set()
    assert [one.id for one in watched.queue.results] == ["t"]  # type: ignore[attr-defined]
    watched.watch(FIRST_REPORT_S - 1)
    assert watched.said == []
    watched.stop.set()
    with pytest.raises(EvaluationStopped, match=r"out keeps the finished episodes"):
        watched.queue.check()


def test_the_run_fails_once_no_slot_starts() -> None:
    starts = Starts(2, is_pool=False)
    for slot in (0, 0, 0, 1, 1):
        starts.no_start(slot, EnvError("it does not boot"))
        starts.check()
    starts.no_start(1, EnvError("it does not boot"))
    with pytest.raises(NothingCameIn, match="No environment starts: it does not boot"):
        starts.check()
    starts.ended(0, EpisodeEnd(Trajectory(id="t", task=TASK), {}), "")
    starts.check()


@pytest.mark.parametrize(
    ("changes", "image_format"),
    [
        ([], "none"),  # drawn when someone looks at it
        (["devices.pool=[{kind: sim}]"], "jpeg"),
        (["env.import_path=mine:Env"], "jpeg"),
        (["env.kind=browser"], "jpeg"),
        (["agent.import_path=mine:Agent"], "jpeg"),
    ],
)
def test_screens_are_drawn_unless_they_can_be_drawn_later(changes: list[str], image_format: str) -> None:
    assert _measuring(load_config("quickstart", changes), 1).screenshot_format == image_format
