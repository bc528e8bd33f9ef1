"""The warm start: demonstrations of a dataset, and those in which the policy plays."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from learning_world import OPTIONS, build

from distrl.configs.schema import Config
from distrl.core.demonstrations import COLLECTION_FILE, STORE_FILE, CollectionSpec
from distrl.core.errors import ConfigError, PolicyError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.learner.warm_start import Cloning, take_dataset, warm_up


@pytest.fixture
def collection(toy: Any, tmp_path: Path) -> Path:
    """The demonstrations of another run, as `distrl collect` writes them."""
    learner, world = build(toy, tmp_path / "other", phase="demonstrations")
    while learner.context.scheduler.accounted(Purpose.DEMO) < 12:
        world.check()
        learner.context.ingest.drain(0.0)
    folder = tmp_path / "demos"
    folder.mkdir()
    kept = TrajectoryStore(folder / STORE_FILE)
    for trajectory in world.store.iterate(Purpose.DEMO):
        kept.add(trajectory, world.store.images(trajectory.image_digests))
    kept.close()
    spec = CollectionSpec(
        suite=Config().tasks.suite,
        split="train",
        agent=Config().agent.model_dump(mode="json"),
        noise=0.0,
        seed=0,
        episodes=12,
    )
    (folder / COLLECTION_FILE).write_text(spec.model_dump_json())
    return folder


def with_dataset(toy: Any, path: Path, collection: Path, wanted: int = 12, **options: Any) -> Any:
    demonstrations = {**OPTIONS["demonstrations"], "dataset": str(collection), "episodes": wanted}
    return build(toy, path, demonstrations=demonstrations, episodes=16, **options)


def test_nobody_is_asked_for_demonstrations(toy: Any, tmp_path: Path, collection: Path) -> None:
    learner, world = with_dataset(toy, tmp_path / "run", collection, wanted=10)
    learner.run()
    assert world.phases[:2] == ["warm-up", "training"]
    assert world.phases[-1] == "done"
    theirs = TrajectoryStore(collection / STORE_FILE)
    assert world.store.ids(Purpose.DEMO) == theirs.ids()[:10]


def test_each_is_taken_once_after_an_interruption(toy: Any, tmp_path: Path, collection: Path) -> None:
    learner, world = with_dataset(toy, tmp_path / "run", collection)
    ticks = iter(range(100))
    world.check = lambda: world.stop.set() if next(ticks) == 4 else None
    take_dataset(learner.context, world.stop)
    assert learner.context.scheduler.accounted(Purpose.DEMO) == 5
    again, _ = with_dataset(toy, tmp_path / "run", collection, incarnation="i2")
    again.context.ingest.restore()
    world.stop.clear()
    take_dataset(again.context, world.stop)
    assert again.context.scheduler.accounted(Purpose.DEMO) == 12
    assert len(again.context.ingest.demonstrations) == 12


def test_too_few_are_told(toy: Any, tmp_path: Path, collection: Path) -> None:
    learner, _ = with_dataset(toy, tmp_path / "run", collection, wanted=13)
    with pytest.raises(ConfigError, match="holds 12"):
        learner.run()


def test_a_warm_start_whose_demonstrations_are_all_refused_says_so(toy: Any, tmp_path: Path) -> None:
    learner, _ = build(toy, tmp_path)
    assert learner.context.ingest.demonstrations == []
    with pytest.raises(PolicyError, match=r"demonstrations can be used.*inspect RUN"):
        warm_up(learner.context, Cloning(learner.context), threading.Event())


def test_the_policy_plays_its_share_of_the_demonstrations_once_it_has_cloned_the_others(
    toy: Any, tmp_path: Path
) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "dagger": 0.25}
    learner, world = build(toy, tmp_path, demonstrations=demonstrations, episodes=16)
    played: list[tuple[bool, int]] = []
    play = world.play

    def noted(lease: Any) -> Any:
        if lease.purpose is Purpose.DEMO:
            played.append((lease.policy_plays, world.info.version if world.info else 0))
        return play(lease)

    world.play = noted
    before = learner.context.publisher.version
    learner.run()
    assert [plays for plays, _ in played] == [False] * 9 + [True] * 3
    assert {version for plays, version in played if plays} == {before + 1}
    assert world.phases[-1] == "done"


def test_cloning_that_was_good_enough_goes_on_with_what_the_policy_played(toy: Any, tmp_path: Path) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "updates": 80, "until_loss": 1e9, "dagger": 0.25}
    learner, _ = build(toy, tmp_path, demonstrations=demonstrations, episodes=16)
    seen: list[int] = []  # episodes that had arrived, at each cloning update
    clone = learner.context.train_step.clone

    def noted(batch: Any) -> float:
        seen.append(learner.context.scheduler.accounted(Purpose.DEMO))
        return clone(batch)

    learner.context.train_step.clone = noted
    learner.run()
    assert 12 in seen
    assert len(seen) < 80
