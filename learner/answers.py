"""The answers of an episode, and the token sequences that they are parts of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Policy
from distrl.core.types import Chat

GetImages = Callable[[Sequence[str]], Mapping[str, Tensor]]


@dataclass(frozen=True, eq=False)
class Answer:
    """One completion and what it answers.

    Attributes:
        prompt, images: Token ids and digests of the pictures; only the new ones if it goes on.
        tokens, logprobs: What was written, and log μ of it.
        versions: The weight version that wrote each token; () if that is unknown.
        temperature: At which it was sampled.
        before: The answer that its sequence goes on from, or None.
    """

    prompt: tuple[int, ...]
    images: tuple[str, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    temperature: float
    before: Answer | None

    def prefix(self) -> tuple[int, ...]:
        """The whole sequence up to this answer's end."""
        earlier = () if self.before is None else self.before.prefix()
        return (*earlier, *self.prompt, *self.tokens)


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A chat that went on: prompts and answers in turn, each token once.

    Attributes:
        ids: All tokens.
        images: Digests of the pictures in order of appearance.
    """

    ids: tuple[int, ...]
    images: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """An answer in a sequence: `sequence.ids[start:stop]`, written after seeing `num_images` pictures."""

    sequence: TokenSequence
    start: int
    stop: int
    num_images: int


def read_answer(
    chat: Chat, last: Answer | None, policy: Policy, images: GetImages | None, is_demonstration: bool
) -> Answer | None:
    """The answer of a chat, or None if it has no tokens (or goes on from one that has none).

    Args:
        last: The answer of the chat before it.
        policy: Who tokenises a demonstration.
        images: Decoded pictures by digest, for demonstrations.

    Raises:
        PolicyError: A demonstration does not fit the policy, or the policy cannot go on with a sequence.
    """
    if chat.continues and not policy.reads_sequences:
        raise PolicyError(
            f"The policy {policy.name!r} reads one prompt at a time, but a chat goes on with another.",
            "Choose an agent that writes each prompt from scratch.",
        )
    before = last if chat.continues else None
    if chat.continues and before is None:
        return None
    completion = chat.completion
    prompt, tokens, logprobs = completion.prompt_token_ids, completion.token_ids, completion.logprobs
    shown = chat.images
    if is_demonstration and not tokens:
        decoded = {} if images is None else images(shown)
        pictures = [decoded[digest] for digest in shown if digest in decoded]
        if before is None:
            prompt = tuple(policy.prompt_ids(chat.messages, pictures))
        else:
            prompt = tuple(policy.continuation_ids(before.prefix(), chat.messages, pictures))
        tokens = tuple(policy.completion_ids(completion.text))
        logprobs = (0.0,) * len(tokens)
    if not tokens or len(logprobs) != len(tokens):
        return None
    versions = completion.weight_versions if len(completion.weight_versions) == len(tokens) else ()
    return Answer(prompt, shown, tokens, logprobs, versions, completion.sampling.temperature, before)


def spans(steps: Sequence[Sequence[Answer]]) -> list[tuple[Span, ...]]:
    """Where the answers of each step are; () for a step that is one prompt and one answer, and no more."""
    chains: list[list[Answer]] = []
    for answer in (answer for step in steps for answer in step):
        if answer.before is None:
            chains.append([])
        chains[-1].append(answer)
    places = {id(answer): span for chain in chains for answer, span in zip(chain, _spans(chain), strict=True)}
    alone = {id(chain[0]) for chain in chains if len(chain) == 1}
    return [
        () if len(step) == 1 and id(step[0]) in alone else tuple(places[id(answer)] for answer in step)
        for step in steps
    ]


def _spans(chain: Sequence[Answer]) -> list[Span]:
    """Of answers that go on from each other, the first one's prompt being the beginning."""
    sequence = TokenSequence(
        tuple(token for answer in chain for token in (*answer.prompt, *answer.tokens)),
        tuple(digest for answer in chain for digest in answer.images),
    )
    found, end, num_images = [], 0, 0
    for answer in chain:
        start, end = end + len(answer.prompt), end + len(answer.prompt) + len(answer.tokens)
        num_images += len(answer.images)
        found.append(Span(sequence, start, end, num_images))
    return found
