"""A trajectory as the learner computes with it: token ids, log-probabilities and rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from distrl.core.actions import ActionKind
from distrl.core.policies.base import Policy
from distrl.core.types import Chat, Purpose, TimeStep, Trajectory


@dataclass(frozen=True)
class StepData:
    """One step: the state (prompt ids, image digests), the action as tokens, log μ of them, and the rewards.

    Attributes:
        outcome: The part of r_t that the critic predicts (the judge's outcome).
        penalty: All other parts: repetition, invalid action, shaping.
        invalid: Whether the validity check refused the action.
    """

    prompt: tuple[int, ...]
    images: tuple[str, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    temperature: float
    outcome: float
    penalty: float
    invalid: bool


@dataclass(frozen=True)
class GroupStats:
    """The total rewards R = Σ_t (outcome_t + penalty_t) of a group's members (GRPO); not discounted.

    Attributes:
        mean, std: Their mean and (population) standard deviation.
        count: How many there are; 1 for an episode that has no group.
    """

    mean: float = 0.0
    std: float = 0.0
    count: int = 1

    @classmethod
    def of(cls, rewards: Sequence[float]) -> GroupStats:
        """The statistics of `rewards`, at least one."""
        mean = math.fsum(rewards) / len(rewards)
        if max(rewards) == min(rewards):  # rounding must not make a spread where there is none
            return cls(rewards[0], 0.0, len(rewards))
        return cls(mean, math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards)), len(rewards))


@dataclass(frozen=True)
class Episode:
    """One trajectory.

    Attributes:
        terminated: True when the episode ended by itself. A step limit truncates it, unless the judge
            paid the outcome there: what is paid once cannot be earned again, so nothing is left to
            bootstrap.
        final_images: The images of the state after the last action, for a truncated episode, else ().
        success: The outcome in [0, 1] that V_traj is fitted to.
        oldest_version: The oldest weight version that sampled a token; -1 for a demonstration.
        ended_at: Unix time, by the worker's clock.
        group: Statistics of the group that it was leased in.
        values: With `learner.value_recompute` off, V of the states and, last, of the state after a cut (0 if
            terminated), as the critic saw them when the episode came in; else ().
    """

    id: str
    task_id: str
    steps: tuple[StepData, ...]
    terminated: bool
    final_images: tuple[str, ...]
    success: float
    oldest_version: int
    digests: tuple[str, ...] = field(default=())
    values: tuple[float, ...] = field(default=())
    group: GroupStats = GroupStats()
    ended_at: float = 0.0

    @property
    def total_reward(self) -> float:
        """R, the undiscounted sum of all parts."""
        return math.fsum(step.outcome + step.penalty for step in self.steps)


GetImages = Callable[[Sequence[str]], Mapping[str, Tensor]]


def compile_episode(
    trajectory: Trajectory, policy: Policy, images: GetImages | None = None
) -> Episode | None:
    """The learner's view of `trajectory`, or None when nothing can be learnt from it.

    Nothing is learnt from faulted episodes and from training episodes without token ids (an agent without a
    policy). A demonstration has text only: it is tokenised here, by the policy that will imitate it.

    A step with several calls is represented by its last call, the one whose answer is the action. The prompt
    of a step that goes on with a sequence is the whole sequence before its answer.

    Args:
        trajectory: As the worker sent it.
        policy: Who tokenises demonstrations.
        images: Decoded pictures by digest, for demonstrations to policies that need them.

    Raises:
        PolicyError: A demonstration does not fit the policy.
    """
    steps: list[StepData] = []
    for step in trajectory.steps:
        if not step.chats:
            return None
        before = steps[-1] if steps else None
        is_demo = trajectory.purpose is Purpose.DEMO
        data = _compile_step(step, step.chats[-1], policy, images, is_demo, before)
        if not data.tokens:
            return None
        steps.append(data)
    if not steps or trajectory.fault.value != "none":
        return None
    outcome = min(1.0, max(0.0, sum(step.outcome for step in steps)))
    terminated = not trajectory.truncated or outcome > 0.0 or trajectory.final is None
    final_images: tuple[str, ...] = ()
    if not terminated and trajectory.final is not None:
        final_images = (*steps[-1].images[:-1], trajectory.final.image) if steps[-1].images else ()
    return Episode(
        id=trajectory.id,
        task_id=trajectory.task.id,
        steps=tuple(steps),
        terminated=terminated,
        final_images=final_images,
        success=outcome,
        oldest_version=trajectory.oldest_version,
        ended_at=trajectory.started_at + trajectory.duration_s,
        digests=tuple(dict.fromkeys([d for s in steps for d in s.images] + list(final_images))),
    )


def _compile_step(
    step: TimeStep,
    chat: Chat,
    policy: Policy,
    get: GetImages | None,
    demonstration: bool,
    before: StepData | None,
) -> StepData:
    completion = chat.completion
    prefix: tuple[int, ...] = ()
    images = chat.images
    if chat.continues and before is not None:
        prefix, images = (*before.prompt, *before.tokens), (*before.images, *images)
    if demonstration and not completion.token_ids:
        decoded = get(chat.images) if get is not None else {}
        pictures = [decoded[digest] for digest in chat.images if digest in decoded]
        ids = policy.continuation_ids(prefix, chat.messages, pictures) if prefix else None
        prompt = tuple(ids if ids is not None else policy.prompt_ids(chat.messages, pictures))
        tokens = tuple(policy.completion_ids(completion.text))
        logprobs: tuple[float, ...] = (0.0,) * len(tokens)
    else:
        prompt, tokens, logprobs = completion.prompt_token_ids, completion.token_ids, completion.logprobs
        if len(logprobs) != len(tokens):
            tokens, logprobs = (), ()
    reward = step.reward
    return StepData(
        prompt=(*prefix, *prompt),
        images=images,
        tokens=tokens,
        logprobs=logprobs,
        temperature=completion.sampling.temperature,
        outcome=reward.outcome,
        penalty=reward.total - reward.outcome,
        invalid=step.action.kind == ActionKind.INVALID.value,
    )
