"""Trajectories to learn from, and the linear policy and critic. Needs torch only for those two."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from distrl.core.types import (
    ActionRecord,
    Chat,
    ChatMessage,
    Completion,
    ImagePart,
    Observation,
    Outcome,
    Purpose,
    RewardParts,
    Sampling,
    Task,
    TextPart,
    TimeStep,
    Trajectory,
    image_digest,
)

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]

if TYPE_CHECKING:
    from linear_policy import LinearCritic, LinearPolicy

    from distrl.learner.batching import Batcher, TrajectoryBatch


def png(value: int) -> bytes:
    """A 2x2 picture of one grey value."""
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2), (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


PIXELS = {image_digest(png(v)): png(v) for v in range(0, 256, 15)}
DIGESTS = list(PIXELS)


def make_task(number: int, split: str = "train") -> Task:
    """A task of a suite named "toy"."""
    return Task(id=f"toy/{split}/{number}", suite="toy", template="t", split=split, goal="g", max_steps=5)


def make_step(
    prompt: int,
    tokens: tuple[int, ...],
    logprobs: tuple[float, ...],
    image: int = 0,
    version: int = 0,
    temperature: float = 1.0,
    kind: str = "tap",
    **reward: float,
) -> TimeStep:
    """A step whose prompt is one number and one picture."""
    digest = DIGESTS[image % len(DIGESTS)]
    message = ChatMessage(role="user", parts=(TextPart(text=str(prompt)), ImagePart(digest=digest)))
    completion = Completion(
        text=" ".join(map(str, tokens)),
        prompt_token_ids=(prompt,),
        token_ids=tokens,
        logprobs=logprobs,
        weight_versions=(version,) * len(tokens),
        sampling=Sampling(temperature=temperature),
    )
    return TimeStep(
        observation=Observation(image=digest, width=2, height=2),
        chats=(Chat(messages=(message,), completion=completion),),
        action=ActionRecord(kind=kind),
        reward=RewardParts(**reward),
    )


def make_trajectory(name: str, steps: Sequence[TimeStep], **changes: Any) -> Trajectory:
    """A trajectory of `steps`; `truncated=True` adds a final observation."""
    if changes.get("truncated"):
        changes.setdefault("final", Observation(image=DIGESTS[3], width=2, height=2))
    changes.setdefault("task", make_task(0))
    changes.setdefault("purpose", Purpose.TRAIN)
    won = any(step.reward.outcome > 0 for step in steps)
    changes.setdefault("outcome", Outcome.SUCCESS if won else Outcome.FAILURE)
    return Trajectory(id=name, steps=tuple(steps), **changes)


def make_policy() -> LinearPolicy:
    from linear_policy import LinearPolicy

    return LinearPolicy()


def make_critic() -> LinearCritic:
    from linear_policy import LinearCritic

    return LinearCritic()


@pytest.fixture
def policy() -> LinearPolicy:
    return make_policy()


@pytest.fixture
def critic() -> LinearCritic:
    import torch

    torch.manual_seed(0)
    return make_critic()


def make_batcher(policy: LinearPolicy) -> Batcher:
    from distrl.learner.batching import Batcher, ImageCache

    return Batcher(policy, ImageCache(policy.image, lambda digests: {d: PIXELS[d] for d in digests}))


def make_batch(policy: LinearPolicy, *trajectories: Trajectory) -> TrajectoryBatch:
    from distrl.learner.episodes import compile_episode

    return make_batcher(policy).trajectories([compile_episode(one, policy) for one in trajectories])


@pytest.fixture
def toy() -> Any:
    """The helpers of this file."""
    return SimpleNamespace(
        policy=make_policy,
        critic=make_critic,
        step=make_step,
        trajectory=make_trajectory,
        task=make_task,
        batcher=make_batcher,
        batch=make_batch,
        pixels=PIXELS,
        digests=DIGESTS,
    )


@pytest.fixture
def batch(toy: Any, policy: LinearPolicy) -> TrajectoryBatch:
    """Four trajectories: won in two steps, lost by an invalid action, cut off after three, won at once."""
    first = toy.step(1, (1,), (-1.5,), image=1, repetition=-0.1)
    cut = [toy.step(3, (5, 1, 2), (-1.9, -3.0, -2.0), image=k) for k in range(3)]
    return make_batch(
        policy,
        toy.trajectory("won", [first, toy.step(1, (2, 3), (-2.0, -1.0), image=2, outcome=1.0)]),
        toy.trajectory("lost", [toy.step(2, (4,), (-2.5,), image=3, kind="invalid", invalid=-0.2)]),
        toy.trajectory("cut", cut, truncated=True),
        toy.trajectory("quick", [toy.step(4, (6, 6), (-2.2, -1.7), image=5, outcome=1.0)]),
    )


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    """Ends the threads of the learners that a test has built."""
    yield
    from learning_world import BUILT

    while BUILT:
        BUILT.pop().updates.close()
