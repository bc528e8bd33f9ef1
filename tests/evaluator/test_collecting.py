"""Collecting demonstrations: what is stored, faults, interruptions, and what does not go together."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from counting_phone import CountingEnv, Quiet, counting_config, write_suite

from distrl.core.demonstrations import (
    CollectionSpec,
    check_dataset,
    read_collection,
)
from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose, Task
from distrl.evaluator.collecting import collect
from distrl.evaluator.runner import EvaluationStopped
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.suites import load_suite
from distrl.workers.envs.base import Frame

SPEC = CollectionSpec(suite="counting", split="test", agent={"kind": "autoui"}, noise=0.0, seed=3, episodes=5)


@pytest.fixture(autouse=True)
def no_resets() -> None:
    CountingEnv.resets.clear()


def collected(folder: Path, tasks: list[dict[str, object]], **options: object) -> list[EpisodeResult]:
    suite = write_suite(folder, tasks)
    spec = options.pop("spec", SPEC)
    assert isinstance(spec, CollectionSpec)
    rng, known = random.Random(spec.seed), load_suite(str(suite))

    def draw() -> Task:
        return rng.choice(known)

    progress = options.pop("progress", Quiet())
    return collect(counting_config(suite), folder / "out", spec, draw, progress=progress, **options)  # type: ignore[arg-type]


def stored(folder: Path) -> dict[str, str]:
    """The number of the task by that of the draw, of what is stored."""
    store = TrajectoryStore(folder / "out" / "store.sqlite3")
    try:
        assert all(one.purpose is Purpose.DEMO for one in store.iterate())
        return {one.lease_id.split("-")[1]: one.task.id.rpartition("/")[2] for one in store.iterate()}
    finally:
        store.close()


TASKS: list[dict[str, object]] = [{"taps": 2}, {"taps": 3}, {"taps": 1}]


def test_an_interrupted_collection_ends_with_the_same_episodes(tmp_path: Path) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    whole = collected(tmp_path / "whole", TASKS)
    assert [result.success for result in whole] == [True] * 5
    assert read_collection(tmp_path / "whole" / "out") == SPEC
    stop = threading.Event()
    with pytest.raises(EvaluationStopped, match="keeps the finished episodes"):
        collected(tmp_path / "broken", TASKS, stop=stop, progress=Quiet(stop, stop_after=2))
    kept = stored(tmp_path / "broken")
    assert 2 <= len(kept) < 5
    quiet = Quiet()
    results = collected(tmp_path / "broken", TASKS, resume=True, progress=quiet)
    assert quiet.said[0] == f"{len(kept)} of 5"
    assert len(results) == 5 - len(kept)
    assert stored(tmp_path / "broken") == stored(tmp_path / "whole")


def test_a_collection_can_be_added_to_but_not_mixed(tmp_path: Path) -> None:
    collected(tmp_path, TASKS)
    with pytest.raises(RunDirectoryError, match="exists already"):
        collected(tmp_path, TASKS)
    with pytest.raises(RunDirectoryError, match=r"its noise is 0\.0, not 0\.5"):
        collected(tmp_path, TASKS, resume=True, spec=SPEC.model_copy(update={"noise": 0.5}))
    more = SPEC.model_copy(update={"episodes": 8})
    assert len(collected(tmp_path, TASKS, resume=True, spec=more)) == 3
    assert len(stored(tmp_path)) == 8


def test_faults_are_tried_again_and_never_stored(tmp_path: Path) -> None:
    once = collected(tmp_path, [{"taps": 1, "faults": 1}], spec=SPEC.model_copy(update={"episodes": 1}))
    assert [result.success for result in once] == [True]
    (tmp_path / "b").mkdir()
    CountingEnv.resets.clear()
    spec = SPEC.model_copy(update={"episodes": 1})
    lost = collected(tmp_path / "b", [{"taps": 1, "faults": 99}], spec=spec)
    assert [result.fault.value for result in lost] == ["device"]
    assert not (tmp_path / "b" / "out").exists()


class BrokenEnv(CountingEnv):
    """Fails in a way that no retry mends."""

    works: ClassVar[bool] = False

    def reset(self, task: Task) -> Frame:
        if not self.works:
            raise ZeroDivisionError("a bug")
        return super().reset(task)


def test_an_error_before_the_first_episode_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("counting_phone.CountingEnv", BrokenEnv)
    with pytest.raises(ZeroDivisionError):
        collected(tmp_path, TASKS)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(BrokenEnv, "works", True)
    collected(tmp_path, TASKS)
    monkeypatch.setattr(BrokenEnv, "works", False)
    with pytest.raises(ZeroDivisionError):
        collected(tmp_path, TASKS, resume=True, spec=SPEC.model_copy(update={"episodes": 8}))
    assert len(stored(tmp_path)) == 5


def test_a_run_cannot_start_from_what_does_not_fit(tmp_path: Path) -> None:
    collected(tmp_path, TASKS)
    wanted = {"suite": "counting", "split": "test", "agent": SPEC.agent}
    check_dataset(tmp_path / "out", wanted, 5)
    with pytest.raises(ConfigError, match="holds 5"):
        check_dataset(tmp_path / "out", wanted, 6)
    with pytest.raises(ConfigError, match=r"have the agent .*, this run has .*mobile-use"):
        check_dataset(tmp_path / "out", {**wanted, "agent": {"kind": "mobile-use"}}, 5)
    with pytest.raises(ConfigError, match='have the split "test", this run has "train"'):
        check_dataset(tmp_path / "out", {**wanted, "split": "train"}, 5)
    with pytest.raises(RunDirectoryError, match=r"collection\.json is missing"):
        check_dataset(tmp_path, wanted, 5)
