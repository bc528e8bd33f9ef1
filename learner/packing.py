"""Steps in parts that memory has room for: so many tokens, padding included, in one forward pass.

Tokens, not steps: the memory of activations grows with the tokens of a pass, and steps differ in them by an
order of magnitude, between a thumbnail and a screenshot or between the first step of a chat and its last.
Steps of about the same length are put together, so that little is padding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from distrl.learner.batching import StepBatch


def pack(steps: StepBatch, max_tokens: int | None) -> list[Tensor]:
    """Parts of N steps, [n] int64 each, ascending; every step is in one of them.

    A pass over a part has at most `max_tokens` tokens, prompts, actions and padding together, unless a single
    sequence is longer, which is a part of its own. Steps that share a sequence stay together.

    Args:
        max_tokens: None: everything is one part.
    """
    num_steps = len(steps)
    if max_tokens is None or num_steps == 0:
        return [torch.arange(num_steps)]
    lengths = steps.prompts.attention_mask.sum(dim=1).tolist()
    rows = steps.prompts.token_rows
    if rows is None:
        actions = steps.token_mask.sum(dim=1).tolist()
        units = [Unit([n], 1, p, a) for n, (p, a) in enumerate(zip(lengths, actions, strict=True))]
    else:  # the actions are in the sequences
        units = _units(rows.tolist(), lengths)
    if _tokens(units) <= max_tokens:
        return [torch.arange(num_steps)]
    return [
        torch.tensor(sorted(n for unit in part for n in unit.steps)) for part in _parts(units, max_tokens)
    ]


class Unit(NamedTuple):
    """Steps that must be in one pass, and what they take there: sequences, and the longest one's tokens."""

    steps: list[int]
    num_sequences: int
    prompt: int
    action: int


def _units(rows: list[list[int]], lengths: list[int]) -> list[Unit]:
    """Steps that share a sequence, directly or by others between them, together."""
    found: list[tuple[list[int], set[int]]] = []
    for step, row in enumerate(rows):
        steps, sequences = [step], set(row)
        apart = []
        for unit in found:
            if sequences.isdisjoint(unit[1]):
                apart.append(unit)
            else:
                steps, sequences = unit[0] + steps, sequences | unit[1]
        found = [*apart, (steps, sequences)]
    return [Unit(steps, len(some), max(lengths[row] for row in some), 0) for steps, some in found]


def _tokens(units: list[Unit]) -> int:
    """What a pass over `units` takes, padding included."""
    width = max(unit.prompt for unit in units) + max(unit.action for unit in units)
    return width * sum(unit.num_sequences for unit in units)


def _parts(units: list[Unit], max_tokens: int) -> list[list[Unit]]:
    """Units of about the same length in parts, the longest first."""
    parts: list[list[Unit]] = []
    for unit in sorted(units, key=lambda unit: unit.prompt + unit.action, reverse=True):
        if parts and _tokens([*parts[-1], unit]) <= max_tokens:
            parts[-1].append(unit)
        else:
            parts.append([unit])
    return parts


def trimmed(steps: StepBatch) -> StepBatch:
    """The same steps without the columns of tokens that are padding in all of them."""
    length = int(steps.token_mask.sum(dim=1).max()) if len(steps) else 0
    proximal, prompts = steps.proximal_logprobs, steps.prompts
    rows, places = prompts.token_rows, prompts.token_places
    if rows is not None and places is not None and length:
        prompts = replace(prompts, token_rows=rows[:, :length], token_places=places[:, :length])
    return replace(
        steps,
        prompts=prompts,
        completions=steps.completions[:, :length],
        token_mask=steps.token_mask[:, :length],
        behaviour_logprobs=steps.behaviour_logprobs[:, :length],
        proximal_logprobs=None if proximal is None else proximal[:, :length],
    )
