"""The section `learner`: the objective, optimisers, replay, the warm start, checkpoints and ranks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from distrl.configs.algorithms import (
    AlgorithmConfig,
    ArideConfig,
    BcConfig,
    CustomConfig,
    DigirlConfig,
    GrpoConfig,
)
from distrl.configs.appo import AppoConfig
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


class MismatchConfig(Section):
    """What the learner computes with the weights that a server named, against what the server computed.

    Measured every `every` updates. There is an alarm when the KL divergence of a token is above `alarm_kl`;
    with `on_alarm: stop` it ends the run.
    """

    every: Count = 5
    alarm_kl: Positive = 0.05
    on_alarm: Literal["warn", "stop"] = "warn"


OURS = {
    "train_batch_size": "batches are learner.batch_trajectories",
    "train_micro_batch_size_per_gpu": "memory is bounded by learner.micro_batch_tokens",
    "gradient_accumulation_steps": "memory is bounded by learner.micro_batch_tokens",
    "managed_gradient_accumulation": "memory is bounded by learner.micro_batch_tokens",
    "gradient_clipping": "it is learner.optim.grad_clip",
    "optimizer": "it is AdamW with learner.optim",
    "scheduler": "the learning rate is learner.optim's",
    "zero_allow_untested_optimizer": "the optimiser is torch's AdamW",
    "zero_force_ds_cpu_optimizer": "the optimiser is torch's AdamW",
    "prescale_gradients": "losses are divided by the counts of the whole batch",
    "gradient_predivide_factor": "losses are divided by the counts of the whole batch",
    "bf16": "the type is that of the policy's weights",
    "fp16": "the type is that of the policy's weights",
    "amp": "the type is that of the policy's weights",
    "torch_autocast": "the type is that of the policy's weights",
}
"""Keys of `ds_config` that the learner sets itself, and why."""


class RanksConfig(Section):
    """`engine: torch` keeps the whole policy on each of `num_processes` ranks; `deepspeed` shards it by ZeRO.

    `ds_config` is DeepSpeed's own configuration, for `zero_optimization` above all: `stage` 1, 2 (default) or
    3, `offload_optimizer` and `offload_param` to the CPU. A rank waits `rank_timeout_s` for the others.
    """

    engine: Literal["torch", "deepspeed"] = "torch"
    num_processes: Count = 1
    ds_config: dict[str, Any] = {}
    rank_timeout_s: Positive = 1800.0

    @field_validator("ds_config")
    @classmethod
    def _leaves_ours_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in value:
            if key in OURS:
                raise ValueError(f"ds_config.{key} is the learner's to set: {OURS[key]}; leave it out")
        zero = value.get("zero_optimization", {})
        if not isinstance(zero, dict):
            raise ValueError("ds_config.zero_optimization must be a section; give it a stage, 1 to 3")
        stage = zero.get("stage", 2)
        if stage not in (1, 2, 3):
            raise ValueError(
                f"ds_config.zero_optimization.stage={stage} shards nothing; take 1, 2 or 3, or engine 'torch'"
            )
        types = value.get("data_types", {})
        if stage == 1 and isinstance(types, dict) and types.get("grad_accum_dtype") is not None:
            # With bfloat16 weights DeepSpeed then takes an optimiser whose states nobody can set.
            raise ValueError(
                "ds_config.data_types.grad_accum_dtype with stage 1 could not continue after --resume; "
                "take stage 2, which has it too, or leave it out"
            )
        for name in ("offload_optimizer", "offload_param"):
            device = (zero.get(name) or {}).get("device", "none")
            if device not in ("none", "cpu"):
                raise ValueError(
                    f"ds_config.zero_optimization.{name}.device={device!r} is not supported; take 'cpu'"
                )
        return value

    @model_validator(mode="after")
    def _ds_config_needs_deepspeed(self) -> RanksConfig:
        if self.ds_config and self.engine != "deepspeed":
            raise ValueError(
                "ds_config does nothing with engine 'torch'; set learner.engine to 'deepspeed', "
                "or leave ds_config out"
            )
        return self

    @property
    def zero_stage(self) -> int:
        """What is sharded: 1 optimiser states, 2 gradients too, 3 weights too; 0 with `engine: torch`."""
        zero = self.ds_config.get("zero_optimization", {})
        return int(zero.get("stage", 2)) if self.engine == "deepspeed" else 0


class LearnerConfig(RanksConfig):
    """The learner.

    It stops after `episodes` training episodes, or earlier after `max_minutes` of the online phase if that is
    set. The clock starts when the policy begins to practise: demonstrations, cloning and the critic's warm-up
    do not count, and a run that is resumed continues with the time that is left. `updates_per_episode` bounds
    the replay ratio; `max_staleness` (in versions) bounds, at lease time, how old a trajectory can become; it
    does not count `policy_lag`, so many versions behind the newest workers act, for experiments. With
    `keep_best` the result is the checkpoint with the best validation success, else the last.

    `temperature` is that of training episodes; ratios and gradients are taken at the same one. `top_p` and
    `top_k` truncate it, which only objectives without importance ratios allow. An action has at most
    `max_new_tokens`; one that goes on repeating itself would weigh that many tokens in its gradient. With
    `value_recompute` off, advantages are taken from values as they were when an episode came in.
    `task_sampling` "weighted" tries failing tasks more often, P ∝ 1 − success + floor; "learnable" those that
    sometimes fail, P ∝ 4 success (1 − success) + floor.

    An episode that is older than `max_staleness` when it is trained on is left to the objective's clipping
    (`stale: clip`) or not used (`drop`).

    `micro_batch_tokens` bounds the memory of an update: at most so many tokens, padding included, are in one
    forward pass, and gradients are accumulated over as many passes as that takes. Null: one pass.

    A lease ends `lease_ttl_s` after its last renewal, and after `max_episode_minutes` in any case: whoever
    works longer on one episode hangs. The default leaves a phone's 30 steps a minute each.
    """

    algorithm: AlgorithmConfig = ArideConfig()
    value_recompute: bool = True
    optim: OptimConfig = OptimConfig()
    demonstrations: DemonstrationConfig = DemonstrationConfig()
    replay: ReplayConfig = ReplayConfig()
    mismatch: MismatchConfig = MismatchConfig()
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    max_new_tokens: Count = 32
    task_sampling: Literal["uniform", "weighted", "learnable"] = "uniform"
    task_sampling_floor: Positive = 0.15
    episodes: Count = 2000
    max_minutes: Positive | None = None
    batch_trajectories: Count = 16
    updates_per_episode: Positive = 0.25
    min_replay: Count = 32
    updates_enabled: bool = True
    publish_every: Count = 2
    policy_lag: Annotated[int, Field(ge=0, le=1024)] = 0
    max_staleness: Count = 16
    stale: Literal["clip", "drop"] = "clip"
    checkpoint_every: Count = 100
    keep_checkpoints: Count = 3
    keep_best: bool = True
    eval_every: Annotated[int, Field(ge=0)] = 100
    eval_episodes: Count = 32
    lease_ttl_s: Positive = 120.0
    max_episode_minutes: Positive = 45.0
    micro_batch_tokens: Count | None = None
    device: str = "auto"
    threads: Count = 1

    @property
    def group_size(self) -> int:
        """How many episodes of one task are compared with each other; 1: none."""
        return self.algorithm.group_size if isinstance(self.algorithm, GrpoConfig | CustomConfig) else 1

    @property
    def group_wait_s(self) -> float:
        """How long a group waits for its members after the first one arrived."""
        return self.algorithm.group_wait_s if isinstance(self.algorithm, GrpoConfig | CustomConfig) else 1.0

    @property
    def appo(self) -> AppoConfig:
        """The objective of continuous control."""
        assert isinstance(self.algorithm, AppoConfig)
        return self.algorithm

    @model_validator(mode="after")
    def _ratios_need_untruncated_sampling(self) -> LearnerConfig:
        if self.top_p >= 1.0 and self.top_k == 0:
            return self
        chosen = self.algorithm
        who: str = chosen.kind
        instead = "set learner.algorithm to digirl, bc or filtered-bc, with invalid 0"
        if isinstance(chosen, DigirlConfig | BcConfig):
            if not chosen.invalid:
                return self
            who, instead = f"the validity term of {chosen.kind}", "set learner.algorithm.invalid to 0"
        key = f"top_p={self.top_p:g}" if self.top_p < 1.0 else f"top_k={self.top_k}"
        raise ValueError(
            f"{key} truncates sampling: an action that the behaviour policy can never take has no importance "
            f"ratio, so {who}, which weighs by ratios, would be biased. Set learner.top_p to 1 and "
            f"learner.top_k to 0, or {instead}"
        )

    @model_validator(mode="after")
    def _what_lags_is_not_dropped(self) -> LearnerConfig:
        if self.stale == "drop" and self.policy_lag > self.max_staleness:
            raise ValueError(
                f"policy_lag={self.policy_lag} is more than max_staleness={self.max_staleness}: stale 'drop' "
                "would drop every episode; set learner.stale to 'clip'"
            )
        return self

    @model_validator(mode="after")
    def _expectations_need_the_present_policy(self) -> LearnerConfig:
        chosen = self.algorithm
        if isinstance(chosen, ArideConfig) and chosen.critic == "q" and not self.value_recompute:
            raise ValueError(
                "value_recompute=false keeps values as they were, but those of learner.algorithm.critic 'q' "
                "are expectations under the present policy; set one of the two otherwise"
            )
        return self
