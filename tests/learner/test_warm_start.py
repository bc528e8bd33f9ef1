"""The warm start: demonstrations of a dataset, and words that are replaced while they are cloned."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_world import OPTIONS, build

from distrl.configs.policy import policy_config
from distrl.configs.schema import Config
from distrl.core.demonstrations import COLLECTION_FILE, STORE_FILE, CollectionSpec
from distrl.core.errors import ConfigError, PolicyError
from distrl.core.policies.tiny import TinyPolicy
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.learner import warm_start
from distrl.learner.episodes import StepData
from distrl.learner.warm_start import Cloning, renamed, take_dataset, warm_up


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


def test_what_is_cloned_is_renamed_first(
    toy: Any, tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "renamed", lambda step, *more: replace(step, prompt=(5,)))
    monkeypatch.setattr(type(toy.policy()), "word_ids", (1, 2))
    options = {**OPTIONS["demonstrations"], "dataset": str(collection), "rename": 0.1}
    learner, _ = build(toy, tmp_path / "run", demonstrations=options, episodes=16)
    seen: list[Any] = []
    clone = learner.context.train_step.clone
    learner.context.train_step.clone = lambda batch: seen.append(batch.prompts.input_ids) or clone(batch)
    learner.run()
    assert seen
    assert all((ids == 5).all() for ids in seen)


GOAL = "step 3 last none Goal: write a note milk that says two litres at 17"
WORDS = ["write", "a", "note", "that", "says", "milk", "two", "litres", "at", "rye", "bread", "cut", "hedge"]


@pytest.fixture(scope="module")
def policy() -> TinyPolicy:
    return TinyPolicy(policy_config(kind="tiny"), WORDS, seed=0)


def step_of(policy: TinyPolicy, typed: str) -> StepData:
    action = (
        '"action_type": "TYPE", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", '
        f'"typed_text": "{typed}"'
    )
    return StepData(
        prompt=tuple(policy.tokenizer.encode_prompt(GOAL)),
        images=("screen",),
        tokens=tuple(policy.completion_ids(action)),
        logprobs=(),
        temperature=1.0,
        outcome=0.0,
        penalty=0.0,
        invalid=False,
    )


def rename(policy: TinyPolicy, step: StepData, share: float, seed: int) -> StepData:
    return renamed(step, policy.word_ids, share, np.random.default_rng(seed))


def test_a_word_has_the_same_stand_in_in_the_prompt_and_in_the_answer(policy: TinyPolicy) -> None:
    step = step_of(policy, "Two litres")
    for seed in range(20):
        new = rename(policy, step, 0.5, seed)
        other = dict(zip(step.prompt, new.prompt, strict=True))
        assert new.tokens == tuple(other.get(token, token) for token in step.tokens)
        assert new.images == step.images


def test_words_of_goals_are_renamed_and_neither_numbers_nor_what_stands_around_them(
    policy: TinyPolicy,
) -> None:
    words = policy.tokenizer.words
    step = step_of(policy, "Two litres")
    changed: set[int] = set()
    for seed in range(50):
        new = rename(policy, step, 1.0, seed)
        changed |= {old for old, other in zip(step.prompt, new.prompt, strict=True) if old != other}
    assert {words["note"], words["milk"], words["litres"], words["at"]} <= changed
    assert not changed & {words["step"], words["3"], words["last"], words["goal"], words["17"]}


def test_a_policy_whose_words_have_no_tokens_is_refused(toy: Any, tmp_path: Path) -> None:
    learner, _ = build(toy, tmp_path, demonstrations={**OPTIONS["demonstrations"], "rename": 0.2})
    with pytest.raises(ConfigError, match=r"rename=0\.2 needs a policy with a token for each word"):
        learner.run()


def test_a_warm_start_whose_demonstrations_are_all_refused_says_so(toy: Any, tmp_path: Path) -> None:
    learner, _ = build(toy, tmp_path)
    assert learner.context.ingest.demonstrations == []
    with pytest.raises(PolicyError, match=r"demonstrations can be used.*inspect RUN"):
        warm_up(learner.context, Cloning(learner.context), threading.Event())
