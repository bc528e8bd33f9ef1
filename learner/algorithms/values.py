"""The critic's side of a batch: values of its states, or of its actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.core.policies.base import Critic, Generated, Policy, PromptBatch, States
from distrl.core.types import Sampling
from distrl.learner.algorithms.outputs import Outputs
from distrl.learner.batching import TrajectoryBatch


@dataclass(frozen=True)
class Values:
    """Of N steps in B trajectories; all but `logits` without gradients, and as probabilities.

    Attributes:
        logits: [N] what is fitted to the returns' targets, V(s_t) or Q(s_t, a_t), with gradients.
        taken: [N] what TD errors subtract: V(s_t) or Q(s_t, a_t).
        baseline: [N] V(s_t) or E_{a~π} Q(s_t, a).
        bootstrap: [B] the baseline of the state after a cut, 0 where the episode ended by itself.
    """

    logits: Tensor
    taken: Tensor
    baseline: Tensor
    bootstrap: Tensor


def state_values(batch: TrajectoryBatch, outputs: Outputs, recompute: bool = True) -> Values:
    """V(s_t) by the newest critic; without `recompute`, as it was when each episode came in.

    Recomputation is AcceRL's (§3.3, eq. 3): old values would align advantages with a critic that is no more.
    """
    assert outputs.values is not None
    if not recompute:
        assert batch.old_values is not None, "values were not kept"
        assert batch.old_bootstrap is not None
        return Values(outputs.values, batch.old_values, batch.old_values, batch.old_bootstrap)
    probability = outputs.values.detach().sigmoid()
    return Values(outputs.values, probability, probability, _bootstrap(batch, outputs))


def action_values(batch: TrajectoryBatch, outputs: Outputs) -> Values:
    """Q(s_t, a_t) of the actions taken, and E_{a~π} Q."""
    assert outputs.values is not None
    assert outputs.expected is not None
    taken = outputs.values.detach().sigmoid()
    return Values(outputs.values, taken, outputs.expected, _bootstrap(batch, outputs))


def _bootstrap(batch: TrajectoryBatch, outputs: Outputs) -> Tensor:
    bootstrap = torch.zeros_like(batch.success)
    if batch.final_prompts is not None:
        assert outputs.final is not None
        bootstrap[batch.final_row] = outputs.final.to(bootstrap.dtype)
    return bootstrap


@torch.no_grad()
def expected_value(
    policy: Policy,
    critic: Critic,
    prompts: PromptBatch,
    states: States,
    steps: Tensor,
    temperature: Tensor,
    num_samples: int,
    max_tokens: int,
) -> Tensor:
    """[N] E_{a~π} Q(s, a) as the mean over `num_samples` actions of the policy.

    Args:
        states: The hidden states of `prompts`.
        steps: [N] int64 step index t.
        temperature: [N] what actions are drawn at.
        max_tokens: The longest action that the policy may draw.
    """
    sampling = [Sampling(temperature=t or 1.0, max_new_tokens=max_tokens) for t in temperature.tolist()]
    draws = []
    for _ in range(num_samples):
        completions, mask = _padded(policy.generate(prompts, sampling), steps.device)
        draws.append(critic.action_values(states, steps, completions, mask).sigmoid())
    return torch.stack(draws).mean(dim=0)


def _padded(generated: list[Generated], device: torch.device) -> tuple[Tensor, Tensor]:
    length = max(len(one.token_ids) for one in generated)
    tokens = [[*one.token_ids, *[0] * (length - len(one.token_ids))] for one in generated]
    counts = torch.tensor([len(one.token_ids) for one in generated], device=device)
    return torch.tensor(tokens, device=device), torch.arange(length, device=device) < counts[:, None]
