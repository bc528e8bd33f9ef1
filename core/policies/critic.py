"""The critic: how likely success is, read off the policy's hidden states.

AcceRL's value head (§5.2, eq. 14–16): attention over the hidden states and a step embedding,

    e_i = W·sg(h_i),  α = softmax(e),  V = MLP([Σ_i α_i U·sg(h_i); emb(t)])       (for each of some heads)

The policy already knows which screen it looks at and what is asked; a critic that reads this learns from few
episodes and costs little. Interpretation: sg stands before h_i in the sum too, where the paper has it in e_i
only, since wrong values would ruin the policy's trunk; emb(t) is put beside the pooled vector instead of
added to it; and there are several heads. The paper pools over the states at the action's tokens. Those have
the action in them wherever tokens are written one by one, which makes V(s_t) depend on a_t; here the prompt's
states are pooled, and only Q looks at them with the action in mind.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from distrl.core.policies.base import Critic, Policy, States

MAX_STEPS = 64
MAX_ACTION_TOKENS = 64
HEADS = 4
WIDTH = 64


class FeatureCritic(Critic):
    """V(s_t), V_traj(s, a) and Q(s_t, a_t) by small networks on features of a prompt and its step.

    The action a is read as its tokens, summarised in a vector φ(a).

    Args:
        seed: Seed of the initial weights; those of V and V_traj do not depend on `has_action_values`.
    """

    def __init__(self, policy: Policy, seed: int, has_action_values: bool = False) -> None:
        super().__init__()
        self._has_action_values = has_action_values
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.norm = nn.LayerNorm(policy.state_size)
            self._make_readers(policy.state_size)
            self.steps = nn.Embedding(MAX_STEPS, WIDTH)
            features = HEADS * WIDTH + WIDTH
            self.value = _head(features)
            self.actions = TokenSummary(policy.num_tokens)
            self.outcome = _head(features + WIDTH)
            if has_action_values:
                self._make_aim(policy.state_size)
                self.action_summary = TokenSummary(policy.num_tokens)
                self.action_value = _head(features + WIDTH)

    @abstractmethod
    def _make_readers(self, d: int) -> None:
        """The layers from a hidden state, [d]."""

    def _make_aim(self, d: int) -> None:
        """The layers by which Q's reading depends on the action."""

    @abstractmethod
    def _read(self, states: States, action: Tensor | None) -> Tensor:
        """[N, HEADS · WIDTH] of N prompts; for Q with φ(a), [N, WIDTH]."""

    def _features(self, states: States, steps: Tensor, action: Tensor | None = None) -> Tensor:
        read = self._read(states, action)
        return torch.cat([read, self.steps(steps.clamp(0, MAX_STEPS - 1))], dim=-1)

    def values(self, states: States, steps: Tensor) -> Tensor:
        """Logits of V(s_t), [N]."""
        logits: Tensor = self.value(self._features(states, steps)).squeeze(-1)
        return logits

    def trajectory_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of V_traj(s, a), [N]."""
        features = torch.cat([self._features(states, steps), self.actions(completions, mask)], dim=-1)
        logits: Tensor = self.outcome(features).squeeze(-1)
        return logits

    def action_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of Q(s_t, a_t), [N]. Raises PolicyError if it was built without."""
        if not self._has_action_values:
            return super().action_values(states, steps, completions, mask)
        action = self.action_summary(completions, mask)
        features = torch.cat([self._features(states, steps, action), action], dim=-1)
        logits: Tensor = self.action_value(features).squeeze(-1)
        return logits


class AttentionCritic(FeatureCritic):
    """Attention pooling over all states of a prompt. Q's attention is aware of the action,

        e_i = (W + W_φ φ(a))·sg(h_i),

    so that the value of a tap is read off the place that it touches; W_φ begins at 0.
    """

    def _make_readers(self, d: int) -> None:
        self.weigh = nn.Linear(d, HEADS)
        self.read = nn.Linear(d, WIDTH)

    def _make_aim(self, d: int) -> None:
        self.aim = nn.Linear(WIDTH, HEADS * d, bias=False)
        nn.init.zeros_(self.aim.weight)

    def _read(self, states: States, action: Tensor | None) -> Tensor:
        aim = None if action is None else self.aim(action).view(len(action), HEADS, -1)
        if states.rows is None or states.ends is None:
            return self._pooled(states.hidden, states.mask, aim)
        # Prompts that share sequences, whose states are read once each.
        places = torch.arange(states.mask.shape[1], device=states.rows.device)
        parts, members = [], []
        for row in torch.unique(states.rows).tolist():
            at = torch.nonzero(states.rows == row).flatten()
            mask = states.mask[row] * (places < states.ends[at, None])
            parts.append(self._pooled(states.hidden[row : row + 1], mask, None if aim is None else aim[at]))
            members.append(at)
        return torch.cat(parts)[torch.cat(members).argsort()]

    def _pooled(self, states: Tensor, mask: Tensor, aim: Tensor | None) -> Tensor:
        """[n, HEADS · WIDTH] of states [n, S, d], or of n masks [n, S] of the same [1, S, d]."""
        hidden = self.norm(states.detach().to(self.read.weight.dtype))
        scores = self.weigh(hidden)
        if aim is not None:
            scores = scores + hidden @ aim.transpose(1, 2)
        scores = scores.masked_fill(mask[..., None] == 0, -1e30)  # finite: a prompt may have no token
        pooled: Tensor = scores.softmax(dim=1).transpose(1, 2) @ self.read(hidden)
        return pooled.flatten(1)


class HeadCritic(FeatureCritic):
    """The same values from the state at a prompt's last position alone, which has seen all of the prompt.

    For large models, whose last state says enough: nothing is computed of the thousands of other positions.
    """

    def _make_readers(self, d: int) -> None:
        self.read = nn.Linear(d, HEADS * WIDTH)

    def _read(self, states: States, action: Tensor | None) -> Tensor:
        read: Tensor = self.read(self.norm(states.last.detach().to(self.read.weight.dtype))).relu()
        return read


class TokenSummary(nn.Module):
    """A vector for a short token sequence: each token with its position through a layer, then the mean.

    Positions from `MAX_ACTION_TOKENS` on share the last embedding.
    """

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, WIDTH)
        self.positions = nn.Embedding(MAX_ACTION_TOKENS, WIDTH)
        self.mix = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU(), nn.Conv1d(WIDTH, WIDTH, 1))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[B, L] int64 ids and bool mask → [B, WIDTH]."""
        places = torch.arange(ids.shape[1], device=ids.device).clamp(max=MAX_ACTION_TOKENS - 1)
        keep = mask[..., None].to(self.tokens.weight.dtype)
        embedded = (self.tokens(ids) + self.positions(places)) * keep
        mixed = self.mix(embedded.transpose(1, 2)).transpose(1, 2) * keep
        summary: Tensor = mixed.sum(1) / keep.sum(1).clamp(min=1.0)
        return summary


def _head(features: int) -> nn.Sequential:
    last = nn.Linear(128, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(features, 128), nn.ReLU(), last)
