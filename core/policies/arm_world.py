"""What a motion does, for the policy `arm`: an ensemble that predicts an arm's next state, and success.

    state, sentence, motion ─► K networks ─► the state's change, with a scale of its error; success

Each network's scales are learnt with it (one for each number), so that −log p weighs metres, openings and
quaternions by how well they can be predicted. Where the networks differ by more than their errors, they have
not seen such a state (Lakshminarayanan et al. 2017).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DOUBT = 2.0
"""How far networks may differ, in scales of their errors, averaged over the numbers of a state."""
_UNITS, _CHANGE = 5.0, 0.1  # of states and of their changes: metres of an arm are small numbers
_LEAST, _FIRST = math.log(1e-3), math.log(0.1)  # log scales


class Outlook(NamedTuple):
    """[K, N, S] the networks' next states and the log scales of their errors; [K, N] logits of success."""

    states: Tensor
    log_scales: Tensor
    success: Tensor


class ArmWorld(nn.Module):
    """`size` networks of two layers, on states of `num_state` numbers and motions of `num_motion`."""

    def __init__(self, size: int, width: int, num_words: int, num_state: int, num_motion: int) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, 32, padding_idx=0)
        sizes = (num_state + 32 + num_motion, width, width, num_state + 1)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(size, a, b) / math.sqrt(a)) for a, b in pairwise(sizes)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(size, 1, b)) for b in sizes[1:])
        self.log_scales = nn.Parameter(torch.full((size, 1, num_state), _FIRST))

    def forward(self, state: Tensor, words: Tensor, motion: Tensor) -> Outlook:
        """What follows [N, S] states, under [N, W] words of the sentence and [N, M] numbers in [-1, 1]."""
        count = (words > 0).sum(1, keepdim=True).clamp(min=1)
        sentence = self.words(words).sum(1) / count.sqrt()
        x = torch.cat([_UNITS * state, sentence, motion], dim=1).expand(len(self.log_scales), -1, -1)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, F.gelu(x) if number else x, weight)
        scales = self.log_scales.clamp(min=_LEAST).expand(-1, len(state), -1)
        return Outlook(state + _CHANGE * x[..., :-1], scales, x[..., -1])

    @staticmethod
    def log_density(outlook: Outlook, after: Tensor, success: Tensor) -> tuple[Tensor, Tensor]:
        """[N] log p of `success` or none, and [N, S] of the next states' numbers: the networks' means."""
        error = (after - outlook.states) / outlook.log_scales.exp()
        density = -0.5 * error**2 - outlook.log_scales - 0.5 * math.log(2 * math.pi)
        came = torch.where(success, outlook.success, -outlook.success)
        return F.logsigmoid(came).mean(0), density.mean(0)

    @staticmethod
    def doubt(outlook: Outlook, num_state: int) -> Tensor:
        """[N] how far the networks' first `num_state` numbers differ, in scales of their errors."""
        spread = outlook.states.std(0, correction=0) / outlook.log_scales.exp().mean(0)
        return spread[:, :num_state].mean(1)
