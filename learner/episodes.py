"""A trajectory as the learner computes with it: token ids, log-probabilities and rewards.

The completions of an episode are spans of token sequences: a chat that continues another is one sequence
with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from distrl.core import world
from distrl.core.actions import ActionKind
from distrl.core.errors import PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import Chat, Fault, Outcome, Purpose, TimeStep, Trajectory, shown_images

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

    prompt: tuple[int, ...]  # () with spans
    images: tuple[str, ...]  # with spans only the pictures that the step added
    tokens: tuple[int, ...]  # all that the policy wrote in this step
    logprobs: tuple[float, ...]
    temperature: float
    outcome: float  # the part of r_t that the critic predicts (the judge's outcome)
    penalty: float  # all other parts: repetition, invalid action, shaping
    invalid: bool  # whether the validity check refused the action
    versions: tuple[int, ...] = ()  # the weight version that wrote each token; () if that is unknown of any
    # Where the tokens are, completion by completion, if the step continues another or has several
    # completions (a summary, then an action).
    spans: tuple[Span, ...] = ()
    server: str = ""  # which inference server wrote the action, if known

    def state(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Token ids and image digests of all that the policy had seen before its first token of this step."""
        if not self.spans:
            return self.prompt, self.images
        first = self.spans[0]
        return first.sequence.ids[: first.start], first.sequence.images[: first.num_images]


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
    # True when nothing follows. With `learner.time_limit: cut` a step limit truncates an episode, unless the
    # judge paid the outcome there: what is paid once cannot be earned again.
    terminated: bool
    final_images: tuple[str, ...]  # of the state after the last action, for a truncated episode
    success: float  # the outcome in [0, 1] that V_traj is fitted to
    oldest_version: int  # the oldest weight version that sampled a token; -1 for a demonstration
    digests: tuple[str, ...] = ()
    # With `learner.value_recompute` off, V of the states and, last, of the state after a cut (0 if
    # terminated), by the critic of when the episode was ingested.
    values: tuple[float, ...] = ()
    group: GroupStats = GroupStats()  # of the group that it was leased in
    is_imagined: bool = False
    first_step: int = 0  # the number of its first step in the episode that an imagined one leaves
    final_step: int = 0  # the number, for the critic, of the state after a cut
    final_prompt: tuple[int, ...] = ()  # of the state after the last action, where it is known
    lessons: tuple[StepData, ...] = ()  # of a real one for a learned model of the world

    @property
    def total_reward(self) -> float:
        """R, the undiscounted sum of all parts."""
        return math.fsum(step.outcome + step.penalty for step in self.steps)


def verify(episode: Episode, policy: Policy, images: Mapping[str, Tensor], max_tokens: int | None) -> None:
    """Rejects an episode that `policy` cannot have played.

    Args:
        images: Its decoded pictures by digest.
        max_tokens: Of a sequence with its completions, if the policy bounds them; demonstrations are text,
            which the wire cannot count.
    """
    read: dict[int, tuple[tuple[int, ...], tuple[str, ...]]] = {}
    for number, step in enumerate(episode.steps):
        if not step.spans:
            read[-1 - number] = ((*step.prompt, *step.tokens), step.images)
        for span in step.spans:
            read[id(span.sequence)] = (span.sequence.ids, span.sequence.images)
    for ids, digests in read.values():
        if max_tokens is not None and len(ids) > max_tokens:
            keys = "learner.max_new_tokens or policy.max_prompt_tokens"
            raise PolicyError(
                f"A sequence has {len(ids)} tokens; at most {max_tokens} are allowed.",
                f"Raise {keys if policy.max_context_tokens is None else 'policy.max_context_tokens'}.",
            )
        policy.verify(ids, [images[digest] for digest in digests])


def compile_episode(
    trajectory: Trajectory, policy: Policy, images: GetImages = lambda digests: {}, bootstraps: bool = True
) -> Episode | None:
    """The learner's view of `trajectory`, or None when nothing can be learnt from it.

    Nothing is learnt from faulted episodes and from training episodes without token ids (an agent without a
    policy). A demonstration has text only: it is tokenised here, by the policy that will imitate it. All
    completions of a step are its tokens; for policies that read one prompt at a time, those of its last chat,
    whose completion is the action.

    What ends at the horizon of a branch has no outcome: its last state, with the prompt that the agent would
    have written next, takes the critic's value.

    Args:
        images: Decoded pictures by digest, for demonstrations and branches to policies that need them.
        bootstraps: Whether something may follow an episode that was cut off (`learner.time_limit`).

    Raises:
        PolicyError: A demonstration does not fit the policy, the policy cannot continue a sequence, or the
            chats of a step had several temperatures.
    """
    if trajectory.fault is not Fault.NONE or not trajectory.steps:
        return None
    chains: list[tuple[list[int], list[str]]] = []  # the token ids and pictures of each sequence so far
    read: list[list[_Read]] = []
    for step in trajectory.steps:
        read.append([])
        for chat in step.chats if policy.reads_sequences else step.chats[-1:]:
            if chat.continues and not policy.reads_sequences:
                raise PolicyError(
                    f"The policy {policy.name!r} reads one prompt at a time, but a chat continues another.",
                    "Choose an agent that writes each prompt from scratch.",
                )
            if not chat.continues:
                chains.append(([], []))
            elif not chains:
                return None
            one = _read(chat, chains, policy, images, trajectory.purpose is Purpose.DEMO)
            if one is None:
                return None
            read[-1].append(one)
        if not read[-1]:
            return None
    sequences = [TokenSequence(tuple(ids), tuple(shown)) for ids, shown in chains]
    sizes = Counter(one.chain for step in read for one in step)
    steps = []
    for step, completions in zip(trajectory.steps, read, strict=True):
        is_alone = len(completions) == 1 and sizes[completions[0].chain] == 1
        spans = [Span(sequences[c.chain], c.stop - len(c.tokens), c.stop, c.num_images) for c in completions]
        steps.append(_compile_step(step, completions, () if is_alone else tuple(spans)))
    outcome = min(1.0, max(0.0, sum(step.outcome for step in steps)))
    is_cut = trajectory.truncated and outcome == 0.0 and trajectory.final is not None
    branch = trajectory.branch
    first_step = len(branch.past) if branch else 0
    at_horizon = bool(branch) and trajectory.outcome is Outcome.UNJUDGED
    terminated = not (is_cut and (bootstraps or at_horizon))
    final_images: tuple[str, ...] = ()
    final_prompt: tuple[int, ...] = ()
    final_shown = shown_images(trajectory.next_prompt)
    if not terminated and trajectory.next_prompt and (at_horizon or not final_shown):
        final_images = final_shown
        final_prompt = tuple(policy.prompt_ids(trajectory.next_prompt, _pictures(images, final_images)))
    elif not terminated and trajectory.final is not None:
        final_images = _final_images([step.state()[1] for step in steps[-2:]], trajectory.final.shown)
    return Episode(
        id=trajectory.id,
        task_id=trajectory.task.id,
        steps=tuple(steps),
        terminated=terminated,
        final_images=final_images,
        success=outcome,
        oldest_version=trajectory.oldest_version,
        digests=tuple(dict.fromkeys([d for s in steps for d in s.images] + list(final_images))),
        is_imagined=trajectory.purpose is Purpose.IMAGINED,
        first_step=first_step,
        # The critic never trains on a step later than the limit's.
        final_step=first_step + len(steps) - (not at_horizon),
        final_prompt=final_prompt,
        lessons=_lessons(trajectory, policy),
    )


def _pictures(images: GetImages, digests: Sequence[str]) -> list[Tensor]:
    """Those that there are."""
    decoded = images(digests)
    return [decoded[digest] for digest in digests if digest in decoded]


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


class _Read(NamedTuple):
    """A sampled completion and what it answers."""

    prompt: tuple[int, ...]  # only the new tokens if it continues a sequence
    images: tuple[str, ...]  # digests of the pictures in them
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]  # () if they are unknown
    temperature: float
    chain: int  # its sequence
    stop: int  # its end there
    num_images: int  # the pictures up to there


def _read(
    chat: Chat,
    chains: Sequence[tuple[list[int], list[str]]],
    policy: Policy,
    images: GetImages,
    is_demonstration: bool,
) -> _Read | None:
    """The completion of a chat, which is added to the last of `chains`; None if it has no tokens."""
    ids, shown = chains[-1]
    completion = chat.completion
    prompt, tokens, logprobs = completion.prompt_token_ids, completion.token_ids, completion.logprobs
    if is_demonstration and not tokens:
        pictures = _pictures(images, chat.images)
        if chat.continues:
            prompt = tuple(policy.continuation_ids(tuple(ids), chat.messages, pictures))
        else:
            prompt = tuple(policy.prompt_ids(chat.messages, pictures))
        tokens = tuple(policy.completion_ids(completion.text, prompt))
        logprobs = (0.0,) * len(tokens)
    if not tokens or len(logprobs) != len(tokens):
        return None
    versions = completion.weight_versions if len(completion.weight_versions) == len(tokens) else ()
    ids += (*prompt, *tokens)
    shown += chat.images
    return _Read(
        prompt, chat.images, tokens, logprobs, versions, completion.sampling.temperature,
        len(chains) - 1, len(ids), len(shown),
    )  # fmt: skip


def _lessons(trajectory: Trajectory, policy: Policy) -> tuple[StepData, ...]:
    if policy.world is None or trajectory.purpose is Purpose.IMAGINED:
        return ()
    found = []
    for question, answer in world.lessons(trajectory):
        prompt = tuple(policy.prompt_ids(question))
        tokens = tuple(policy.completion_ids(answer, prompt))
        found.append(StepData(prompt, (), tokens, (0.0,) * len(tokens), 1.0, 0.0, 0.0, invalid=False))
    return tuple(found)


def _compile_step(step: TimeStep, completions: Sequence[_Read], spans: tuple[Span, ...]) -> StepData:
    temperatures = {one.temperature for one in completions}
    if len(temperatures) > 1:
        raise PolicyError(
            f"The chats of a step were sampled at temperatures {sorted(temperatures)}.", "Use one for all."
        )
    reward = step.reward
    are_known = all(one.versions for one in completions)
    return StepData(
        prompt=() if spans else completions[0].prompt,
        images=tuple(digest for one in completions for digest in one.images),
        tokens=tuple(token for one in completions for token in one.tokens),
        logprobs=tuple(value for one in completions for value in one.logprobs),
        temperature=temperatures.pop(),
        outcome=reward.outcome,
        penalty=reward.total - reward.outcome,
        invalid=step.action.kind == ActionKind.INVALID.value,
        versions=tuple(v for one in completions for v in one.versions) if are_known else (),
        spans=spans,
        server=step.chats[-1].completion.server,
    )
