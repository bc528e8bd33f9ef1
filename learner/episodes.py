"""A trajectory as the learner computes with it: token ids, log-probabilities and rewards.

A step is one chat and its completion. A chat that continues the one before it is one token sequence with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from distrl.core.actions import ActionKind
from distrl.core.errors import PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import Chat, Purpose, TimeStep, Trajectory

GetImages = Callable[[Sequence[str]], Mapping[str, Tensor]]


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A chat and those that continue it: prompts and completions in turn, each token once."""

    ids: tuple[int, ...]
    images: tuple[str, ...]  # digests of the pictures in order of appearance


@dataclass(frozen=True)
class Span:
    """A completion in a sequence: `sequence.ids[start:stop]`, written after `num_images` pictures."""

    sequence: TokenSequence
    start: int
    stop: int
    num_images: int


@dataclass(frozen=True)
class StepData:
    """One step: the state (prompt, images), the action as tokens, log μ of them, and the rewards."""

    prompt: tuple[int, ...]  # () with a span
    images: tuple[str, ...]  # with a span only the pictures that the step added
    tokens: tuple[int, ...]  # what the policy wrote
    logprobs: tuple[float, ...]
    temperature: float
    outcome: float  # the part of r_t that the critic predicts (the judge's outcome)
    penalty: float  # all other parts: repetition, invalid action, shaping
    invalid: bool  # whether the validity check refused the action
    versions: tuple[int, ...] = ()  # the weight version that wrote each token; () if that is unknown
    span: Span | None = None  # where the tokens are, if the step continues another or is continued
    server: str = ""  # which inference server wrote the action, if known

    def state(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids and image digests of all that the policy had seen before its first token of this step."""
        if self.span is None:
            return self.prompt, self.images
        sequence = self.span.sequence
        return sequence.ids[: self.span.start], sequence.images[: self.span.num_images]


@dataclass(frozen=True)
class GroupStats:
    """The total rewards R = Σ_t (outcome_t + penalty_t) of a group's members (GRPO); not discounted."""

    mean: float = 0.0
    std: float = 0.0  # of the population
    count: int = 1  # 1 for an episode that has no group

    @classmethod
    def of(cls, rewards: Sequence[float]) -> GroupStats:
        """The statistics of `rewards`, at least one."""
        mean = math.fsum(rewards) / len(rewards)
        if max(rewards) == min(rewards):  # rounding must not make a spread where there is none
            return cls(rewards[0], 0.0, len(rewards))
        return cls(mean, math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards)), len(rewards))


@dataclass(frozen=True)
class Episode:
    """One trajectory."""

    id: str
    task_id: str
    steps: tuple[StepData, ...]
    # True when the episode ended by itself. A step limit truncates it, unless the judge paid the outcome
    # there: what is paid once cannot be earned again, so nothing is left to bootstrap.
    terminated: bool
    final_images: tuple[str, ...]  # of the state after the last action, for a truncated episode
    success: float  # the outcome in [0, 1] that V_traj is fitted to
    oldest_version: int  # the oldest weight version that sampled a token; -1 for a demonstration
    digests: tuple[str, ...] = ()
    # With `learner.value_recompute` off, V of the states and, last, of the state after a cut (0 if
    # terminated), by the critic of when the episode was ingested.
    values: tuple[float, ...] = ()
    group: GroupStats = GroupStats()  # of the group that it was leased in

    @property
    def total_reward(self) -> float:
        """R, the undiscounted sum of all parts."""
        return math.fsum(step.outcome + step.penalty for step in self.steps)


def verify(
    episode: Episode, policy: Policy, images: Mapping[str, Tensor], max_tokens: int | None = None
) -> None:
    """Rejects an episode that `policy` cannot have played.

    Args:
        images: Its decoded pictures by digest.
        max_tokens: Of a sequence with its completions; demonstrations are text, which the wire cannot count.

    Raises:
        PolicyError: A sequence is too long, or see `Policy.verify`.
    """
    read: dict[int, tuple[tuple[int, ...], tuple[str, ...]]] = {}
    for number, step in enumerate(episode.steps):
        if step.span is None:
            read[-1 - number] = ((*step.prompt, *step.tokens), step.images)
        else:
            read[id(step.span.sequence)] = (step.span.sequence.ids, step.span.sequence.images)
    for ids, digests in read.values():
        if max_tokens is not None and len(ids) > max_tokens:
            raise PolicyError(
                f"A sequence has {len(ids)} tokens; at most {max_tokens} are allowed.",
                "Raise learner.max_new_tokens.",
            )
        policy.verify(ids, [images[digest] for digest in digests])


def compile_episode(
    trajectory: Trajectory, policy: Policy, images: GetImages | None = None
) -> Episode | None:
    """The learner's view of `trajectory`, or None when nothing can be learnt from it.

    Nothing is learnt from faulted episodes, from steps without token ids (an agent without a policy) and from
    steps of several chats. A demonstration has text only: it is tokenised here, by the policy that will
    imitate it.

    Args:
        trajectory: As the worker sent it.
        policy: Tokenises demonstrations.
        images: Decoded pictures by digest, for demonstrations to policies that need them.

    Raises:
        PolicyError: A demonstration does not fit the policy, or the policy cannot continue a sequence.
    """
    if trajectory.fault.value != "none" or not trajectory.steps:
        return None
    is_demonstration = trajectory.purpose is Purpose.DEMO
    chains: list[tuple[list[int], list[str]]] = []  # the token ids and pictures of each sequence
    found: list[tuple[int, StepData, int, int]] = []  # with its sequence, the end there, and the pictures
    for step in trajectory.steps:
        if len(step.chats) != 1:
            return None
        (chat,) = step.chats
        if chat.continues and not policy.reads_sequences:
            raise PolicyError(
                f"The policy {policy.name!r} reads one prompt at a time, but a chat continues another.",
                "Choose an agent that writes each prompt from scratch.",
            )
        if not chat.continues:
            chains.append(([], []))
        elif not chains:
            return None
        ids, shown = chains[-1]
        one = _read_step(step, chat, ids, policy, images, is_demonstration)
        if one is None:
            return None
        ids += (*one.prompt, *one.tokens)
        shown += one.images
        found.append((len(chains) - 1, one, len(ids), len(shown)))
    sequences = [TokenSequence(tuple(ids), tuple(shown)) for ids, shown in chains]
    sizes = Counter(chain for chain, *_ in found)
    steps = [
        one
        if sizes[chain] == 1
        else replace(one, prompt=(), span=Span(sequences[chain], stop - len(one.tokens), stop, num_images))
        for chain, one, stop, num_images in found
    ]
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


def _read_step(
    step: TimeStep,
    chat: Chat,
    before: Sequence[int],
    policy: Policy,
    images: GetImages | None,
    is_demonstration: bool,
) -> StepData | None:
    """A step with the new tokens of its prompt; None if its completion has no tokens.

    Args:
        before: The tokens that `chat` continues.
        policy, images: Tokenise a demonstration; see `compile_episode`.
    """
    completion = chat.completion
    prompt, tokens, logprobs = completion.prompt_token_ids, completion.token_ids, completion.logprobs
    if is_demonstration and not tokens:
        decoded = {} if images is None else images(chat.images)
        pictures = [decoded[digest] for digest in chat.images if digest in decoded]
        if chat.continues:
            prompt = tuple(policy.continuation_ids(tuple(before), chat.messages, pictures))
        else:
            prompt = tuple(policy.prompt_ids(chat.messages, pictures))
        tokens = tuple(policy.completion_ids(completion.text))
        logprobs = (0.0,) * len(tokens)
    if not tokens or len(logprobs) != len(tokens):
        return None
    versions = completion.weight_versions
    return StepData(
        prompt=prompt,
        images=chat.images,
        tokens=tokens,
        logprobs=logprobs,
        temperature=completion.sampling.temperature,
        outcome=step.reward.outcome,
        penalty=step.reward.total - step.reward.outcome,
        invalid=step.action.kind == ActionKind.INVALID.value,
        versions=versions if len(versions) == len(tokens) else (),
        server=completion.server,
    )
