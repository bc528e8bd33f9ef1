"""Behaviour cloning: the warm start from demonstrations."""

from __future__ import annotations

from torch import Tensor

from distrl.core.policies.base import Policy
from distrl.learner import losses
from distrl.learner.batching import StepBatch


def cloning_loss(policy: Policy, batch: StepBatch) -> Tensor:
    """−mean log π of the demonstrated actions, at temperature 1."""
    ones = batch.temperature.new_ones(len(batch))
    scores = policy.score(batch.prompts, batch.completions, batch.token_mask, ones)
    return losses.cloning(scores.logprobs, batch.token_mask)
