"""Trajectories to learn from, and the linear policy and critic. Needs torch only for those two."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
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


@pytest.fixture
def load_images() -> Callable[[Sequence[str]], dict[str, bytes]]:
    return lambda digests: {d: PIXELS[d] for d in digests}


@pytest.fixture
def toy() -> Any:
    """The helpers of this file, as attributes."""

    class Toy:
        policy, critic = staticmethod(make_policy), staticmethod(make_critic)
        step, trajectory, task = (
            staticmethod(make_step),
            staticmethod(make_trajectory),
            staticmethod(make_task),
        )
        pixels, digests = PIXELS, DIGESTS

    return Toy


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    """Ends the threads of the learners that a test has built."""
    yield
    from learning_world import BUILT

    while BUILT:
        BUILT.pop().updates.close()
