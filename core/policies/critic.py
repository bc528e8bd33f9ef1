"""The critic: how likely success is, read off the policy's hidden states.

AcceRL's value head (§5.2, eq. 14–16): attention over the hidden states and a step embedding,

    e_i = W·sg(h_i),  α = softmax(e),  V = MLP([Σ_i α_i U·sg(h_i); emb(t)])       (for each of some heads)

The policy already knows which screen it looks at and what is asked; a critic that reads this learns from few
episodes and costs little. Readings taken: sg stands before h_i in the sum too, where the paper has it in e_i
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
    """V(s_t) and V_traj(s, a) by small networks on features of a prompt and its step."""

    value: nn.Module
    actions: nn.Module
    outcome: nn.Module

    @abstractmethod
    def _features(self, states: States, steps: Tensor) -> Tensor:
        """[N, F]."""

    def values(self, states: States, steps: Tensor) -> Tensor:
        """Logits of V(s_t), [N]."""
        logits: Tensor = self.value(self._features(states, steps)).squeeze(-1)
        return logits

    def trajectory_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of V_traj(s, a), [N]; the action is read as its tokens."""
        features = torch.cat([self._features(states, steps), self.actions(completions, mask)], dim=-1)
        logits: Tensor = self.outcome(features).squeeze(-1)
        return logits


class AttentionCritic(FeatureCritic):
    """V(s_t), V_traj(s, a) and, if asked for, Q(s_t, a_t): attention pooling, a step embedding, a small MLP.

    The action a is read as its tokens, summarised in a vector φ(a). Q's attention is aware of it,

        e_i = (W + W_φ φ(a))·sg(h_i),

    so that the value of a tap is read off the place that it touches; W_φ begins at 0.

    Args:
        policy: Whose hidden states and tokens it reads.
        seed: Seed of the initial weights; those of V and V_traj do not depend on `has_action_values`.
        has_action_values: Whether there is a head for Q.
    """

    def __init__(self, policy: Policy, seed: int, has_action_values: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            d = policy.state_size
            self.norm = nn.LayerNorm(d)
            self.weigh = nn.Linear(d, HEADS)
            self.read = nn.Linear(d, WIDTH)
            self.steps = nn.Embedding(MAX_STEPS, WIDTH)
            features = HEADS * WIDTH + WIDTH
            self.value = _head(features)
            self.actions = TokenSummary(policy.num_tokens, MAX_ACTION_TOKENS)
            self.outcome = _head(features + WIDTH)
            self.aim: nn.Linear | None = None
            if has_action_values:
                self.aim = nn.Linear(WIDTH, HEADS * d, bias=False)
                nn.init.zeros_(self.aim.weight)
                self.action_summary = TokenSummary(policy.num_tokens, MAX_ACTION_TOKENS)
                self.action_value = _head(features + WIDTH)

    def action_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of Q(s_t, a_t), [B].

        Raises:
            PolicyError: It was built without.
        """
        if self.aim is None:
            return super().action_values(states, steps, completions, mask)
        action = self.action_summary(completions, mask)
        aim = self.aim(action).view(len(action), HEADS, -1)
        features = torch.cat([self._features(states, steps, aim), action], dim=-1)
        logits: Tensor = self.action_value(features).squeeze(-1)
        return logits

    def _features(self, states: States, steps: Tensor, aim: Tensor | None = None) -> Tensor:
        """[B, HEADS · WIDTH + WIDTH]; `aim`, [B, HEADS, d], is added to W."""
        if states.rows is None or states.ends is None:
            pooled = self._pooled(states.hidden, states.mask, aim)
        else:
            pooled = self._pooled_prefixes(states, states.rows, states.ends, aim)
        return torch.cat([pooled, self.steps(steps.clamp(0, MAX_STEPS - 1))], dim=-1)

    def _pooled(self, states: Tensor, mask: Tensor, aim: Tensor | None) -> Tensor:
        """[n, HEADS · WIDTH] of states [n, S, d], or of n masks [n, S] of the same [1, S, d]."""
        hidden = self.norm(states.detach().to(self.read.weight.dtype))
        scores = self.weigh(hidden)
        if aim is not None:
            scores = scores + hidden @ aim.transpose(1, 2)
        scores = scores.masked_fill(mask[..., None] == 0, float("-inf"))
        pooled: Tensor = scores.softmax(dim=1).transpose(1, 2) @ self.read(hidden)
        return pooled.flatten(1)

    def _pooled_prefixes(self, states: States, rows: Tensor, ends: Tensor, aim: Tensor | None) -> Tensor:
        """The same of prompts that share sequences, whose states are read once each."""
        places = torch.arange(states.mask.shape[1], device=rows.device)
        parts, members = [], []
        for row in torch.unique(rows).tolist():
            at = torch.nonzero(rows == row).flatten()
            mask = states.mask[row] * (places < ends[at, None])
            parts.append(self._pooled(states.hidden[row : row + 1], mask, None if aim is None else aim[at]))
            members.append(at)
        return torch.cat(parts)[torch.cat(members).argsort()]


class HeadCritic(FeatureCritic):
    """The same values from the state at a prompt's last position alone, which has seen all of the prompt.

    For large models, whose last state says enough: nothing is computed of the thousands of other positions.

    Args:
        policy: Whose hidden states and tokens it reads.
        seed: Seed of the initial weights; those of V and V_traj do not depend on `has_action_values`.
        has_action_values: Whether there is a head for Q.
    """

    def __init__(self, policy: Policy, seed: int, has_action_values: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            features = HEADS * WIDTH + WIDTH
            self.norm = nn.LayerNorm(policy.state_size)
            self.read = nn.Linear(policy.state_size, HEADS * WIDTH)
            self.steps = nn.Embedding(MAX_STEPS, WIDTH)
            self.value = _head(features)
            self.actions = TokenSummary(policy.num_tokens, MAX_ACTION_TOKENS)
            self.outcome = _head(features + WIDTH)
            self.action_value: nn.Sequential | None = None
            if has_action_values:
                self.action_summary = TokenSummary(policy.num_tokens, MAX_ACTION_TOKENS)
                self.action_value = _head(features + WIDTH)

    def action_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of Q(s_t, a_t), [N].

        Raises:
            PolicyError: It was built without.
        """
        if self.action_value is None:
            return super().action_values(states, steps, completions, mask)
        action = self.action_summary(completions, mask)
        features = torch.cat([self._features(states, steps), action], dim=-1)
        logits: Tensor = self.action_value(features).squeeze(-1)
        return logits

    def _features(self, states: States, steps: Tensor) -> Tensor:
        """[N, HEADS · WIDTH + WIDTH]."""
        last = self.norm(states.last.detach().to(self.read.weight.dtype))
        return torch.cat([self.read(last).relu(), self.steps(steps.clamp(0, MAX_STEPS - 1))], dim=-1)


class TokenSummary(nn.Module):
    """A vector for a short token sequence: each token with its position through a layer, then the mean.

    Args:
        vocabulary_size: Number of tokens.
        max_length: Longest sequence; later positions share the last embedding.
    """

    def __init__(self, vocabulary_size: int, max_length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, WIDTH)
        self.positions = nn.Embedding(max_length, WIDTH)
        self.mix = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU(), nn.Conv1d(WIDTH, WIDTH, 1))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[B, L] int64 ids and bool mask → [B, WIDTH]."""
        places = torch.arange(ids.shape[1], device=ids.device).clamp(max=self.positions.num_embeddings - 1)
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
