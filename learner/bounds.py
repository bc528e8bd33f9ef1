"""What bounds the effect of tokens whose probability differs between learner and inference server.

The ratio is π_prox/μ: of the policy at the start of a batch to what the token came with. It holds mismatch
and policy lag together, which a single token does not tell apart, and it is the same in all gradient steps on
a batch, so that what a batch's steps change is left to the objective's own clip.

    truncate   weigh by min(π_prox/μ, C), clip around π_prox: truncated importance sampling (`clipping`)
    mask       leave out what lies outside [lowest, C]: of the gradient, not of the count it is divided by
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from distrl.configs.mismatch import MismatchConfig
from distrl.learner.batching import TrajectoryBatch
from distrl.learner.losses import RatioLevel, per_action

NO_BOUND = MismatchConfig()


def kept(
    config: MismatchConfig, batch: TrajectoryBatch, proximal: Tensor, level: RatioLevel
) -> Tensor | None:
    """Bool, which actions, [N], or at `level` "token" which tokens, [N, L], the policy learns from.

    Args:
        proximal: [N, L] log π_prox.
        level: What the objective weighs by one ratio.

    Returns:
        None if nothing is masked.
    """
    if config.bound != "mask":
        return None
    mask = batch.steps.token_mask
    log_token = torch.where(mask, proximal.detach() - batch.steps.behaviour_logprobs, 0.0)
    log_ratio = log_token if (config.level or level) == "token" else log_token.sum(dim=1)
    if config.level == "trajectory":
        tokens = batch.grid(mask.sum(dim=1)).sum(dim=1)
        log_ratio = (batch.grid(log_ratio).sum(dim=1) / tokens.clamp(min=1))[batch.row]
    inside = (log_ratio >= math.log(config.min_ratio)) & (log_ratio <= math.log(config.max_ratio))
    return per_action(inside, mask).expand_as(mask) if level == "token" and inside.dim() == 1 else inside
