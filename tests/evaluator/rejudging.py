"""Stored episodes, and a judge behind an endpoint that goes through them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from episode_factory import make_episode, make_task
from judge_endpoint import JudgeEndpoint

from distrl.configs.schema import Config
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Trajectory
from distrl.evaluator.rejudge import Rejudged


def fill(place: Path, *successes: bool) -> list[Trajectory]:
    """A store with episodes that said that they were done, and a faulted and a cut one."""
    store = TrajectoryStore(place / "store.sqlite3")
    found = []
    for number, success in enumerate(successes):
        trajectory, images = make_episode(make_task(number))
        found.append(trajectory.model_copy(update={"success": float(success)}))
        store.add(found[-1], images)
    store.add(*make_episode(make_task(90), fault=Fault.DEVICE))
    store.add(*make_episode(make_task(91), success=False))
    store.close()
    return found


def config(endpoint: JudgeEndpoint, **judge: Any) -> Config:
    vlm = {"url": endpoint.url, "model": "m", "examples": None, "attempts": 1, "timeout_s": 5.0}
    return Config.model_validate({"judge": {"kind": "vlm", **vlm, **judge}})


def run(place: Path, endpoint: JudgeEndpoint, **judge: Any) -> Rejudged:
    loaded = config(endpoint, **judge)
    rejudged = Rejudged(place, loaded.judge, loaded.worker.rewards)
    rejudged.run(None, threading.Event(), lambda done, total: None)
    rejudged.close()
    return rejudged


def command(place: Path, endpoint: JudgeEndpoint) -> list[str]:
    options = ["url=" + endpoint.url, "model=m", "examples=null", "attempts=1"]
    sets = [part for option in options for part in ("--set", f"judge.{option}")]
    return ["evaluate", "quickstart", "--rejudge", str(place), "--judge", "vlm", *sets]
