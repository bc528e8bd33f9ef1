"""The critic's side of a batch: values of its states, or of its actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.core.policies.base import Critic, Generated, Policy, PromptBatch, States
from distrl.core.types import Sampling
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


def state_values(
    policy: Policy, critic: Critic, batch: TrajectoryBatch, states: States, recompute: bool = True
) -> Values:
    """V(s_t) by the newest critic; without `recompute`, as it was when each episode came in.

    Recomputation is AcceRL's (§3.3, eq. 3): old values would align advantages with a critic that is no more.
    """
    logits = critic.values(states, batch.col)
    if not recompute:
        assert batch.old_values is not None, "values were not kept"
        assert batch.old_bootstrap is not None
        return Values(logits, batch.old_values, batch.old_values, batch.old_bootstrap)
    bootstrap = torch.zeros_like(batch.success)
    if batch.final_prompts is not None:
        with torch.no_grad():
            final = critic.values(policy.states(batch.final_prompts), batch.final_step)
        bootstrap[batch.final_row] = final.sigmoid().to(bootstrap.dtype)
    probability = logits.detach().sigmoid()
    return Values(logits, probability, probability, bootstrap)


def action_values(
    policy: Policy, critic: Critic, batch: TrajectoryBatch, states: States, num_samples: int, max_tokens: int
) -> Values:
    """Q(s_t, a_t) of the actions taken, and E_{a~π} Q as the mean over `num_samples` actions of the policy.

    Args:
        max_tokens: The longest action that the policy may draw.
    """
    steps = batch.steps
    logits = critic.action_values(states, batch.col, steps.completions, steps.token_mask)
    expected = _expected(
        policy, critic, steps.prompts, states, batch.col, steps.temperature, num_samples, max_tokens
    )
    bootstrap = torch.zeros_like(batch.success)
    if batch.final_prompts is not None:
        bootstrap[batch.final_row] = _expected(
            policy,
            critic,
            batch.final_prompts,
            policy.states(batch.final_prompts),
            batch.final_step,
            steps.temperature[batch.last[batch.final_row]],
            num_samples,
            max_tokens,
        ).to(bootstrap.dtype)
    return Values(logits, logits.detach().sigmoid(), expected, bootstrap)


@torch.no_grad()
def _expected(
    policy: Policy,
    critic: Critic,
    prompts: PromptBatch,
    states: States,
    steps: Tensor,
    temperature: Tensor,
    num_samples: int,
    max_tokens: int,
) -> Tensor:
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
