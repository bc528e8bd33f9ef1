"""A trajectory as the learner computes with it: token ids, log-probabilities and rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from distrl.core.actions import ActionKind
from distrl.core.errors import PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import Purpose, TimeStep, Trajectory
from distrl.learner.answers import Answer, GetImages, Span, read_answer, spans


@dataclass(frozen=True)
class StepData:
    """One step: the state (prompt ids, image digests), the action as tokens, log μ of them, and the rewards.

    Attributes:
        prompt, images: The state. Of a step with spans only the pictures that it added.
        tokens, logprobs: All that the policy wrote in this step.
        temperature: At which it wrote them.
        outcome: The part of r_t that the critic predicts (the judge's outcome).
        penalty: All other parts: repetition, invalid action, shaping.
        invalid: Whether the validity check refused the action.
        versions: The weight version that wrote each token; () if that is unknown of any.
        spans: Where the tokens are, answer by answer, if the step goes on with another or has several
            answers (a summary, then an action); else ().
        server: Which inference server wrote the action; "" if that is unknown.
    """

    prompt: tuple[int, ...]
    images: tuple[str, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    temperature: float
    outcome: float
    penalty: float
    invalid: bool
    versions: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    server: str = ""

    def state(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids and image digests of all that the policy knew before its first token of this step."""
        if not self.spans:
            return self.prompt, self.images
        first = self.spans[0]
        return first.sequence.ids[: first.start], first.sequence.images[: first.num_images]


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


def verify(
    episode: Episode, policy: Policy, images: Mapping[str, Tensor], max_tokens: int | None = None
) -> None:
    """Refuses an episode that `policy` cannot have played.

    Args:
        images: Its decoded pictures by digest.
        max_tokens: Of a sequence with its answers; demonstrations come as text, which the wire cannot count.

    Raises:
        PolicyError: A sequence is too long, or see `Policy.verify`.
    """
    read: dict[int, tuple[tuple[int, ...], tuple[str, ...]]] = {}
    for number, step in enumerate(episode.steps):
        if not step.spans:
            read[-1 - number] = ((*step.prompt, *step.tokens), step.images)
        for span in step.spans:
            read[id(span.sequence)] = (span.sequence.ids, span.sequence.images)
    for ids, digests in read.values():
        if max_tokens is not None and len(ids) > max_tokens:
            raise PolicyError(
                f"A sequence has {len(ids)} tokens, and it may have {max_tokens}.",
                "Raise learner.max_new_tokens.",
            )
        policy.verify(ids, [images[digest] for digest in digests])


def compile_episode(
    trajectory: Trajectory, policy: Policy, images: GetImages | None = None
) -> Episode | None:
    """The learner's view of `trajectory`, or None when nothing can be learnt from it.

    Nothing is learnt from faulted episodes and from training episodes without token ids (an agent without a
    policy). A demonstration has text only: it is tokenised here, by the policy that will imitate it.

    All answers of a step are its tokens. For policies that read one prompt at a time, a step is its last
    chat, the one whose answer is the action.

    Args:
        trajectory: As the worker sent it.
        policy: Who tokenises demonstrations.
        images: Decoded pictures by digest, for demonstrations to policies that need them.

    Raises:
        PolicyError: A demonstration does not fit the policy, or the chats of a step had several temperatures.
    """
    if trajectory.fault.value != "none" or not trajectory.steps:
        return None
    answers: list[list[Answer]] = []
    last: Answer | None = None
    for step in trajectory.steps:
        answers.append([])
        for chat in step.chats if policy.reads_sequences else step.chats[-1:]:
            last = read_answer(chat, last, policy, images, trajectory.purpose is Purpose.DEMO)
            answers[-1] += [] if last is None else [last]
        if last is None or not answers[-1]:
            return None
    where = spans(answers)
    steps = [_compile_step(*parts) for parts in zip(trajectory.steps, answers, where, strict=True)]
    outcome = min(1.0, max(0.0, sum(step.outcome for step in steps)))
    terminated = not trajectory.truncated or outcome > 0.0 or trajectory.final is None
    final_images: tuple[str, ...] = ()
    if not terminated and trajectory.final is not None:
        final_images = _final_images([step.state()[1] for step in steps[-2:]], trajectory.final.image)
    return Episode(
        id=trajectory.id,
        task_id=trajectory.task.id,
        steps=tuple(steps),
        terminated=terminated,
        final_images=final_images,
        success=outcome,
        oldest_version=trajectory.oldest_version,
        ended_at=trajectory.ended_at,
        digests=tuple(dict.fromkeys([d for s in steps for d in s.images] + list(final_images))),
    )


def _final_images(shown: Sequence[tuple[str, ...]], final: str) -> tuple[str, ...]:
    """The pictures of the state after the last action, in the places of those that the last step showed.

    Of prompts that show the newest few, each drops the oldest of the one before: so does this state. Where
    pictures are only ever added there is no place for one more, and the final one takes the last.
    """
    *before, last = shown
    if not last:
        return ()
    slides = bool(before) and len(before[0]) == len(last) and before[0][1:] == last[:-1]
    return (*(last[1:] if slides else last[:-1]), final)


def _compile_step(step: TimeStep, answers: Sequence[Answer], where: tuple[Span, ...]) -> StepData:
    temperatures = {answer.temperature for answer in answers}
    if len(temperatures) > 1:
        raise PolicyError(
            f"The chats of a step were sampled at temperatures {sorted(temperatures)}.", "Use one for all."
        )
    reward = step.reward
    are_known = all(answer.versions for answer in answers)
    return StepData(
        prompt=() if where else answers[0].prompt,
        images=tuple(digest for answer in answers for digest in answer.images),
        tokens=tuple(token for answer in answers for token in answer.tokens),
        logprobs=tuple(value for answer in answers for value in answer.logprobs),
        temperature=temperatures.pop(),
        outcome=reward.outcome,
        penalty=reward.total - reward.outcome,
        invalid=step.action.kind == ActionKind.INVALID.value,
        versions=tuple(v for answer in answers for v in answer.versions) if are_known else (),
        spans=where,
        server=step.chats[-1].completion.server if step.chats else "",
    )
