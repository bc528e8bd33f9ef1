"""The interface of an objective: a forward pass, which collects the networks' outputs for each step; a loss.

    forward  Inputs → NetworkOutputs      step by step: each row depends on its own step only
    loss     batch, NetworkOutputs → Loss  arithmetic on the whole batch

Because rows are independent, the networks may see a batch in parts that fit into memory, while the loss
always sees all of it; `Algorithm.is_separable` says whether that takes one pass or two (see `train_step`).
Every loss is a sum over steps or trajectories divided by the count of the whole batch, so that the losses and
gradients of the shares of several ranks add up to those of the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from distrl.configs.algorithms import ObjectiveConfig
from distrl.configs.learner import LearnerConfig
from distrl.core.policies.base import Critic, Policy, TokenScores
from distrl.learner import losses, off_policy
from distrl.learner.batching import StepBatch, TrajectoryBatch, trimmed
from distrl.learner.losses import RatioLevel
from distrl.learner.off_policy import StepStats

C = TypeVar("C", bound=ObjectiveConfig)


@dataclass(frozen=True)
class Inputs:
    """N steps, and what is wanted of the networks about them."""

    steps: StepBatch  # the states after a cut are steps whose actions have no tokens
    times: Tensor  # [N] int64, the step index t of each
    at_trajectory_value: Tensor  # [N] bool, the steps at which V_traj is read
    with_logprobs: bool = True  # whether the policy scores the actions
    with_expected: bool = True  # whether expectations over the policy's actions are computed

    @classmethod
    def of(cls, batch: TrajectoryBatch, value_index: Tensor, with_logprobs: bool = True) -> Inputs:
        """All steps of `batch`; V_traj is read at `value_index`, [B] int64."""
        marks = torch.zeros_like(batch.row, dtype=torch.bool)
        marks[value_index] = True
        return cls(batch.steps, batch.times, marks, with_logprobs)

    @classmethod
    def of_final_states(cls, batch: TrajectoryBatch) -> Inputs | None:
        """The F states after a cut; None if every episode ended by itself."""
        if batch.final_prompts is None:
            return None
        before = batch.steps[batch.last[batch.final_row]]
        steps = replace(
            before,
            prompts=batch.final_prompts,
            completions=before.completions[:, :0],
            token_mask=before.token_mask[:, :0],
            behaviour_logprobs=before.behaviour_logprobs[:, :0],
            proximal_logprobs=None,
            reference_logprobs=None,
        )
        return cls(steps, batch.final_step, torch.zeros_like(batch.final_step, dtype=torch.bool))

    def __getitem__(self, at: Tensor) -> Inputs:
        """Some of the steps, without the padding that only others need; `at`: [n] int64."""
        at = at.to(self.times.device)
        marks = self.at_trajectory_value[at]
        return replace(self, steps=trimmed(self.steps[at]), times=self.times[at], at_trajectory_value=marks)


@dataclass(frozen=True)
class NetworkOutputs:
    """What the networks say of N steps, and of the F states after a cut; None where nothing was wanted."""

    logprobs: Tensor | None = None  # [N, L] of tokens, with the policy's gradients
    entropy: Tensor | None = None  # [N, L], with the policy's gradients
    values: Tensor | None = None  # [N] logits of V(s_t) or Q(s_t, a_t), with the critic's gradients
    trajectory: Tensor | None = None  # [N] logits of V_traj where it is read, with the critic's gradients
    expected: Tensor | None = None  # [N] E_{a~π} Q(s_t, a)
    final: Tensor | None = None  # [F] the value of the states after a cut, as a probability

    @classmethod
    def join(
        cls, parts: Sequence[tuple[Tensor, NetworkOutputs]], num_steps: int, num_tokens: int
    ) -> NetworkOutputs:
        """The outputs of all parts in their places, which take gradients, 0 elsewhere; without `final`.

        Args:
            parts: Which steps, [n] int64, and what the networks say of them.
            num_steps, num_tokens: N and L.
        """
        joined = {}
        for item in fields(cls):
            pieces = [(rows, getattr(outputs, item.name)) for rows, outputs in parts]
            first = pieces[0][1]
            if first is None:
                continue
            whole = first.new_zeros((num_steps, num_tokens) if first.dim() == 2 else (num_steps,))
            for rows, piece in pieces:
                at = (rows, slice(piece.shape[1])) if piece.dim() == 2 else rows
                whole[at] = piece
            joined[item.name] = whole.requires_grad_(torch.is_grad_enabled() and item.name != "expected")
        return cls(**joined)

    def detached(self) -> NetworkOutputs:
        """The same numbers without gradients."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return NetworkOutputs(**{name: x if x is None else x.detach() for name, x in values.items()})


@dataclass
class Loss:
    """The losses of a batch, and statistics."""

    policy_loss: Tensor  # a scalar whose gradients reach the policy only
    critic_loss: Tensor | None  # a scalar whose gradients reach the critic only; None without a critic
    # [B, 3] DPER's raw components: mean or largest |δ| (without a critic the absolute advantage), mean
    # min(ρ, 1), mean entropy. No gradients.
    priorities: Tensor
    metrics: dict[str, float]  # means over the batch's steps, unless the name is listed in `train_step`
    steps: StepStats  # how far off-policy each step was


class Algorithm(ABC, Generic[C]):
    """An objective on batches of whole trajectories.

    Attributes:
        options: The pydantic model of its options in the configuration.
        has_critic: Whether it learns and uses the critic.
        draws: Whether it draws actions from the policy.
        epochs, minibatches: A batch gives `epochs` · `minibatches` gradient steps.
    """

    options: ClassVar[type[ObjectiveConfig]] = ObjectiveConfig
    has_critic = False
    draws = False
    epochs = 1
    minibatches = 1

    def __init__(self, config: C, learner: LearnerConfig) -> None:
        self.config = config

    @abstractmethod
    def forward(self, policy: Policy, critic: Critic, inputs: Inputs) -> NetworkOutputs:
        """What the networks say of `inputs`, each row from its own step alone."""

    @abstractmethod
    def loss(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> Loss:
        """The losses of `batch`, differentiable in `outputs`, and its statistics."""

    def critic_loss(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> Tensor:
        """Only the critic's loss, for its warm-up: before the first policy update π = μ, so every ρ is 1."""
        raise AssertionError("this objective has no critic to fit")

    def value_index(self, batch: TrajectoryBatch) -> Tensor:
        """[B] int64, the step of each trajectory at which V_traj is read."""
        return batch.last

    def needs_final_values(self, batch: TrajectoryBatch, is_fitting: bool = False) -> bool:
        """Whether the loss uses the values of the states after a cut."""
        return False

    def final_values(self, policy: Policy, critic: Critic, inputs: Inputs) -> Tensor:
        """[F] the value of states after a cut, as a probability, without gradients."""
        raise AssertionError("this objective has no values")

    @property
    def is_separable(self) -> bool:
        """Whether the loss is a sum over steps, each term of which uses the outputs for its step alone.

        Whatever else a term uses, such as an advantage, must follow from the batch. Then a batch in parts
        takes one pass instead of two: `loss` is called once per part, and may sum over ranks only in its
        first call with a batch.
        """
        return False

    @property
    def has_reference(self) -> bool:
        """Whether the loss uses `StepBatch.reference_logprobs`, which cost one forward pass per batch."""
        return False

    @property
    def has_snapshot(self) -> bool:
        """Whether `before_update` has something to do, which costs one forward pass per batch."""
        return False

    def before_update(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> None:
        """Called once per batch, before its first gradient step: stores in `batch` what must not change."""
        raise AssertionError("this objective takes no snapshot")


# ---- what objectives share on the policy's side ----


@dataclass(frozen=True)
class Scored:
    """The policy's outputs for the N steps of a batch."""

    logprobs: Tensor  # [N, L] of tokens, with gradients
    log_pi: Tensor  # [N] log π(a_t|s_t), the sum over an action's tokens, with gradients
    ratios: losses.Ratios  # π / μ, without gradients
    entropy: Tensor  # [N] H_t, the exact one of tokens, averaged over an action's, with gradients

    @classmethod
    def of(cls, steps: StepBatch, outputs: NetworkOutputs) -> Scored:
        logprobs, entropy, mask = outputs.logprobs, outputs.entropy, steps.token_mask
        assert logprobs is not None
        assert entropy is not None
        return cls(
            logprobs,
            losses.per_step(logprobs, mask),
            losses.importance_ratios(logprobs, steps.behaviour_logprobs, mask),
            losses.action_mean(entropy, mask),
        )


@dataclass(frozen=True)
class PolicyTerm:
    """An objective's own term."""

    losses: Tensor  # [N] of each step, to be minimised in the mean
    level: RatioLevel = "action"  # what one ratio weighs: an action, or a token
    # What became of each ratio, by metric name below `off_policy/`: numbers or truth values, [N] or [N, L] as
    # `level` says.
    weighed: Mapping[str, Tensor] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)  # further numbers by metric name


def score(policy: Policy, steps: StepBatch) -> TokenScores:
    return policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)


def complete_loss(
    config: ObjectiveConfig,
    batch: TrajectoryBatch,
    scored: Scored,
    term: PolicyTerm,
    surprise: Tensor,
    advantages: Tensor,
    entropy_weights: Tensor | float = 1.0,
    values: Tensor | None = None,
) -> Loss:
    """L = policy term − β E[H] + λ_inv E[P_invalid], with metrics and priorities; no critic's loss yet.

    The last term is the score-function form, mean_t invalid_t · sg(min(ρ_t, ρ_max)) · log π(a_t|s_t): its
    gradient is that of the probability of the invalid actions that were tried.

    Args:
        surprise: [B] what stands for |δ| in priorities.
        advantages: [N] of each step.
        entropy_weights: [N] or one number.
        values: [N] V(s_t), of an objective that has them.
    """
    rho, mask = scored.ratios.action, batch.steps.token_mask
    terms = {
        "policy": term.losses,
        "entropy": -scored.entropy * entropy_weights,
        "validity": batch.invalid * rho.clamp(max=config.rho_max) * scored.log_pi,
    }
    means = {name: of_steps.sum() / batch.num_steps for name, of_steps in terms.items()}
    noted = {"time": batch.col, "advantage": advantages, **({} if values is None else {"value": values})}
    stats = StepStats.of(batch.row, scored.ratios, mask, term.level, term.weighed, noted)
    with torch.no_grad():
        means_of = [batch.row_mean(component) for component in (rho.clamp(max=1.0), scored.entropy)]
        priorities = torch.stack([surprise, *means_of], dim=1)
    return Loss(
        policy_loss=means["policy"] + config.entropy * means["entropy"] + config.invalid * means["validity"],
        critic_loss=None,
        priorities=priorities,
        metrics={
            **{f"loss/{name}": float(loss.detach()) for name, loss in means.items()},
            **off_policy.metrics(stats),
            "policy/entropy": float(scored.entropy.detach().mean()),
            "batch/imagined": float(batch.imagined.float().mean()),
            "batch/steps": float(len(stats)),
            "advantage/mean": float(advantages.mean()),
            "advantage/std": float(advantages.std(unbiased=False)),
            **term.metrics,
        },
        steps=stats,
    )


class CriticFree(Algorithm[C]):
    """Objectives without a critic. A subclass has `advantages` and `policy_term`."""

    def forward(self, policy: Policy, critic: Critic, inputs: Inputs) -> NetworkOutputs:
        scores = score(policy, inputs.steps)
        return NetworkOutputs(scores.logprobs, scores.entropy)

    @abstractmethod
    def advantages(self, batch: TrajectoryBatch) -> Tensor:
        """[B] of whole trajectories."""

    @abstractmethod
    def policy_term(self, batch: TrajectoryBatch, scored: Scored, advantages: Tensor) -> PolicyTerm:
        """The objective's own term; `advantages`: [B]."""

    def loss(self, batch: TrajectoryBatch, outputs: NetworkOutputs) -> Loss:
        scored, advantages = Scored.of(batch.steps, outputs), self.advantages(batch)
        term = self.policy_term(batch, scored, advantages)
        return complete_loss(self.config, batch, scored, term, advantages.abs(), advantages[batch.row])
