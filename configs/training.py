"""The parts of the section `learner` that every objective reads: the warm start, replay, the optimisers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from distrl.configs.section import Count, Fraction, NonNegative, Positive, Section


class DemonstrationConfig(Section):
    """The warm start: expert episodes, a share `noise` of actions random, cloned for `updates` updates.

    With `dataset`, a directory that `distrl collect` wrote, they come from there and no worker acts them.
    `weights` by task template, 1 for those not named: how often its tasks are demonstrated. With
    `until_loss`, cloning ends earlier, when the mean loss of the last 20 updates is there.

    `rename` is the share of a goal's words that others stand in for while they are cloned, drawn anew each
    time, in prompt and answer alike: a policy that is trained from scratch learns to copy names that it has
    not seen, and not to hang on a single word. Only policies with a token for each word (`tiny`) take it.
    """

    episodes: Annotated[int, Field(ge=0)] = 200
    dataset: str | None = None
    noise: Fraction = 0.1
    weights: dict[str, NonNegative] = {}
    updates: Annotated[int, Field(ge=0)] = 300
    batch_size: Count = 64
    lr: Positive = 1e-3
    until_loss: Positive | None = None
    rename: Fraction = 0.0
    critic_updates: Annotated[int, Field(ge=0)] = 100


class ReplayConfig(Section):
    """Circular trajectory replay. `weights` are DPER's w1 (TD error), w2 (ratio), w3 (entropy).

    `importance` multiplies losses by (N·P)^(−b), with b going from `importance_start` to 1 over the run.
    """

    capacity: Count = 128
    priority: Literal["dper", "uniform"] = "dper"
    alpha: NonNegative = 0.5
    weights: tuple[NonNegative, NonNegative, NonNegative] = (1.0, 0.3, 0.1)
    refresh_every: Count = 20
    refresh_size: Count = 16
    importance: bool = False
    importance_start: Fraction = 0.4


class OptimConfig(Section):
    """AdamW for the policy and for the critic.

    The policy's rate falls linearly from `lr` to `lr` times `final_lr_fraction` over the run (its episodes or
    its time, whichever is further on); the first `warmup_updates` raise it from 0.
    """

    lr: Positive = 1e-4
    final_lr_fraction: Fraction = 1.0
    critic_lr: Positive = 1e-3
    weight_decay: NonNegative = 0.0
    grad_clip: Positive = 1.0
    warmup_updates: Annotated[int, Field(ge=0)] = 0
