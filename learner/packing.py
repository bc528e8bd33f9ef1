"""Steps in parts that memory has room for: so many tokens, padding included, in one forward pass.

Tokens, not steps: the memory of activations grows with the tokens of a pass, and steps differ in them by an
order of magnitude, between a thumbnail and a screenshot or between the first step of a chat and its last.
Steps of about the same length are put together, so that little is padding.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from distrl.core.policies.base import PromptBatch
from distrl.learner.batching import StepBatch


def pack(steps: StepBatch, max_tokens: int | None) -> list[Tensor]:
    """Parts of N steps, [n] int64 each, ascending; every step is in one of them.

    A pass over a part has at most `max_tokens` tokens, prompts, actions and padding together, unless a single
    sequence is longer, which is a part of its own. Steps that lie in one sequence stay together. Of a step
    whose answers lie in several, the first counts.

    Args:
        max_tokens: None: everything is one part.
    """
    num_steps = len(steps)
    if max_tokens is None or num_steps == 0:
        return [torch.arange(num_steps)]
    prompts = steps.prompts.attention_mask.sum(dim=1).cpu()
    actions = steps.token_mask.sum(dim=1).cpu()
    sequences: Tensor | None = getattr(steps.prompts, "rows", None)
    if sequences is None:
        sequences, widths = (
            torch.arange(num_steps),
            list(zip(prompts.tolist(), actions.tolist(), strict=True)),
        )
    else:  # the actions are in the sequences
        sequences, widths = sequences.cpu(), [(length, 0) for length in prompts.tolist()]
    if len(widths) * (max(p for p, _ in widths) + max(a for _, a in widths)) <= max_tokens:
        return [torch.arange(num_steps)]
    parts = [
        torch.isin(sequences, torch.tensor(part)).nonzero().squeeze(1) for part in _parts(widths, max_tokens)
    ]
    return [part for part in parts if len(part)]  # in some sequences no step begins


def _parts(widths: list[tuple[int, int]], max_tokens: int) -> list[list[int]]:
    """Sequences of about the same length in parts, the longest first."""
    parts: list[list[int]] = []
    prompt = action = 0
    for index in sorted(range(len(widths)), key=lambda i: sum(widths[i]), reverse=True):
        wider = max(prompt, widths[index][0]), max(action, widths[index][1])
        if not parts or (len(parts[-1]) + 1) * sum(wider) > max_tokens:
            parts.append([])
            wider = widths[index]
        parts[-1].append(index)
        prompt, action = wider
    return parts


def trimmed(steps: StepBatch) -> StepBatch:
    """The same steps without the columns that are padding in all of them."""
    length = int(steps.token_mask.sum(dim=1).max()) if len(steps) else 0
    proximal = steps.proximal_logprobs
    return replace(
        steps,
        prompts=_trimmed(steps.prompts),
        completions=steps.completions[:, :length],
        token_mask=steps.token_mask[:, :length],
        behaviour_logprobs=steps.behaviour_logprobs[:, :length],
        proximal_logprobs=None if proximal is None else proximal[:, :length],
    )


def _trimmed(prompts: PromptBatch) -> PromptBatch:
    if getattr(prompts, "rows", None) is not None:
        return prompts
    real = prompts.attention_mask.any(dim=0).nonzero().squeeze(1)
    if not len(real):
        return prompts
    columns = slice(int(real[0]), int(real[-1]) + 1)
    return replace(
        prompts,
        input_ids=prompts.input_ids[:, columns],
        attention_mask=prompts.attention_mask[:, columns],
    )
