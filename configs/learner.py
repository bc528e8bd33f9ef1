"""The section `learner`: the objective, optimisers, replay, the warm start, checkpoints and ranks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from distrl.configs.algorithms import (
    AlgorithmConfig,
    ArideConfig,
    BcConfig,
    CustomConfig,
    DigirlConfig,
    GrpoConfig,
)
from distrl.configs.appo import AppoConfig
from distrl.configs.section import Count, CountOrAuto, Fraction, NonNegative, Positive, Section


class DemonstrationConfig(Section):
    """The warm start: expert episodes, which are cloned before training begins.

    `episodes` is the number of expert episodes. `dataset` is a directory written by `distrl collect` that
    supplies them; null means that workers run the expert. `noise` is the share of random actions in them.
    `weights` maps task templates to how often their tasks are demonstrated, relative to 1 for every other
    template.

    `updates` is the number of cloning updates, `batch_size` the number of steps in one, and `lr` their
    learning rate. `until_loss` ends cloning early, when all demonstrations have arrived and the mean loss of
    20 updates since then has fallen to this value. `critic_updates` is the number of updates that fit the
    critic to the first `learner.min_replay` training episodes before the policy learns from them.

    `dagger` is the share of the demonstrations in which the policy acts, as cloned from the others, while
    the expert labels each step with its own action: this shows the way back from the policy's mistakes
    (DAgger). They begin when all others have arrived. With a `dataset`, `dagger` has no effect.

    `rehearsal` is the weight of the cloning loss that every later update adds to its objective, over
    `batch_size` steps drawn uniformly, so that rare skills are not lost (DAPG). Demonstrations then stay in
    the learner's memory; with 0 they are used for the warm start only.
    """

    episodes: Annotated[int, Field(ge=0)] = 200
    dataset: str | None = None
    noise: Fraction = 0.1
    weights: dict[str, NonNegative] = {}
    updates: Annotated[int, Field(ge=0)] = 300
    batch_size: Count = 64
    lr: Positive = 1e-3
    until_loss: Positive | None = None
    dagger: Fraction = 0.0
    rehearsal: NonNegative = 0.0
    critic_updates: Annotated[int, Field(ge=0)] = 100


class ReplayConfig(Section):
    """Circular replay of trajectories.

    `capacity` is the number of trajectories that replay holds. `priority` selects how they are drawn: by the
    priorities of DPER, or uniformly. `alpha` is the exponent of the priorities, P(τ) ∝ p(τ)^α. `weights` are
    DPER's w1 (TD error), w2 (ratio) and w3 (entropy), and `td_error` selects a trajectory's TD error: the
    mean of |δ| over its steps, or the largest. Trajectories that were never drawn come first; `unseen` is
    their largest share of a batch.
    """

    capacity: Count = 128
    priority: Literal["dper", "uniform"] = "dper"
    alpha: NonNegative = 0.5
    weights: tuple[NonNegative, NonNegative, NonNegative] = (1.0, 0.3, 0.1)
    td_error: Literal["mean", "max"] = "mean"
    unseen: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class OptimConfig(Section):
    """AdamW, for the policy and for the critic.

    `lr` is the learning rate of the policy. `final_lr_fraction` is the fraction of `lr` to which it falls
    linearly over the run (its episodes or its time, whichever is further on). `critic_lr` is the critic's,
    which is constant. `weight_decay` is that of both. `grad_clip` is the largest norm of a gradient, for
    each separately. `warmup_updates` is the number of first updates in which the policy's rate rises from 0.
    """

    lr: Positive = 1e-4
    final_lr_fraction: Fraction = 1.0
    critic_lr: Positive = 1e-3
    weight_decay: NonNegative = 0.0
    grad_clip: Positive = 1.0
    warmup_updates: Annotated[int, Field(ge=0)] = 0


class MismatchConfig(Section):
    """The check that learner and inference servers compute the same probabilities from the same weights.

    `every` is the number of updates from one measurement to the next. `alarm_kl` is the KL divergence of a
    token above which there is an alarm. `on_alarm` selects whether an alarm only warns or ends the run.
    """

    every: Count = 5
    alarm_kl: Positive = 0.05
    on_alarm: Literal["warn", "stop"] = "warn"


OURS = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "managed_gradient_accumulation",
    "gradient_clipping",
    "optimizer",
    "scheduler",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "prescale_gradients",
    "gradient_predivide_factor",
    "bf16",
    "fp16",
    "amp",
    "torch_autocast",
}
"""Keys of `ds_config` that the learner sets itself."""


class RanksConfig(Section):
    """The learner's processes, called ranks.

    `engine` is `torch`, which keeps the whole policy on each rank, `fsdp`, which shards weights, gradients
    and optimiser states by torch's FSDP2, or `deepspeed`, which shards them by ZeRO. `num_processes` is the
    number of ranks; with `auto` `distrl train` divides the GPUs between them and the inference servers, and
    elsewhere, or without a GPU, there is one. `ds_config` is DeepSpeed's own configuration, above all
    `zero_optimization`: `stage` 1, 2 (default) or 3, `offload_optimizer` and `offload_param` to the CPU.
    """

    engine: Literal["torch", "fsdp", "deepspeed"] = "torch"
    num_processes: CountOrAuto = 1
    ds_config: dict[str, Any] = {}

    @model_validator(mode="after")
    def _deepspeed_is_configured_as_far_as_it_works(self) -> RanksConfig:
        value = self.ds_config
        if value and self.engine != "deepspeed":
            raise ValueError(
                f"ds_config has no effect with engine {self.engine!r}; set learner.engine to 'deepspeed', "
                "or remove ds_config"
            )
        if taken := sorted(OURS & value.keys()):
            raise ValueError(
                f"ds_config.{taken[0]} is set by the learner, from learner.optim, "
                "learner.batch_trajectories, learner.micro_batch_tokens and policy.dtype; remove it"
            )
        zero = value.get("zero_optimization", {})
        if not isinstance(zero, dict):
            raise ValueError("ds_config.zero_optimization must be a mapping such as {stage: 2}")
        stage = zero.get("stage", 2)
        if stage not in (1, 2, 3):
            raise ValueError(
                f"ds_config.zero_optimization.stage={stage} is not supported; use 1, 2 or 3, or set "
                "learner.engine to 'torch'"
            )
        types = value.get("data_types", {})
        if stage == 1 and isinstance(types, dict) and types.get("grad_accum_dtype") is not None:
            # With bfloat16 weights DeepSpeed then uses an optimiser whose states cannot be set.
            raise ValueError(
                "ds_config.data_types.grad_accum_dtype with stage 1 does not support --resume; "
                "use stage 2, or remove the key"
            )
        for name in ("offload_optimizer", "offload_param"):
            offload = zero.get(name) or {}
            if not isinstance(offload, dict) or offload.get("device", "none") not in ("none", "cpu"):
                raise ValueError(
                    f"ds_config.zero_optimization.{name}={offload!r} is not supported; use {{device: cpu}}"
                )
        return self

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return 1 if self.num_processes == "auto" else self.num_processes

    @property
    def zero_stage(self) -> int:
        """What is sharded, as ZeRO's stages: 1 optimiser states, 2 also gradients, 3 also weights; 0 none."""
        if self.engine == "deepspeed":
            return int(self.ds_config.get("zero_optimization", {}).get("stage", 2))
        return 3 if self.engine == "fsdp" else 0


class LearnerConfig(RanksConfig):
    """The learner: the run's length, updates, sampling, versions of the weights, checkpoints and leases.

    `episodes` is the number of training episodes after which the run ends. `max_minutes` ends it earlier,
    after this many minutes of the online phase. Demonstrations, cloning and the critic's warm-up do not
    count towards `max_minutes`, and a resumed run continues with the time that is left.

    `updates_per_episode` is the number of updates that each training episode allows, which bounds the
    replay ratio. `batch_trajectories` is the number of trajectories in an update. `min_replay` is the number
    of training episodes that must arrive before the first update. `updates_enabled` set to false measures
    every update without making it, as a control experiment. `value_recompute` computes advantages from
    the newest critic's values; false uses the values as they were when an episode arrived.
    `micro_batch_tokens` is the largest number of tokens in a forward pass, padding included, which bounds
    the memory of an update: gradients are accumulated over as many passes as that takes.

    `temperature` is the sampling temperature of training episodes, which is also used for ratios and
    gradients. `top_p` and `top_k` truncate their sampling to the most likely tokens, by total
    probability and by number; only objectives without importance ratios allow this. `max_new_tokens` is the
    largest number of tokens in an action.

    `time_limit` selects the value of an episode that the step limit, or a full token sequence, has ended:
    `fails` counts it as failed, because the agent gets no more steps; `cut` uses the critic's value of the
    last screen, as if the episode continued.

    `task_sampling` selects how training tasks are drawn: "uniform" draws all equally often, and "weighted"
    prefers tasks that fail (AcceRL's dynamic weighted resampling).

    `publish_every` is the number of updates from one version of the weights to the next. `max_staleness` is
    the largest age of a trajectory, in versions, that the learner plans for when it leases an episode,
    without the policy lag. `policy_lag` is the number of versions by which workers' weights are behind the
    newest, for experiments; it grows from 0 after each start of the learner. `stale` selects the treatment of
    an episode that is older than `max_staleness` when it is trained on: `clip` leaves it to the objective's
    clipping, and `drop` does not use it.

    `transfer` selects how full weights reach vLLM: in `chunks` over the network, or by `nccl` from GPU to
    GPU (docs/models.md), which is not encrypted.

    `checkpoint_every` is the number of updates from one checkpoint to the next, and `keep_checkpoints` how
    many are kept. `keep_best` makes the checkpoint with the best validation success the result of the run
    instead of the last one. `eval_every` is the number of updates from one validation to the next (0: none),
    and `eval_episodes` its number of episodes.

    `lease_ttl_s` is the time after which a lease ends if it is not renewed, in seconds.
    `max_episode_minutes` is the time after which it ends in any case, because an episode that takes longer
    is assumed to hang.

    `compile` compiles the layers of a hub model's language model by torch.compile, when they are first used.

    `device` is the torch device of the learner; "auto" means CUDA if it is available. `threads` is the
    number of CPU threads of the learner, and of each worker that trains.
    """

    algorithm: AlgorithmConfig = ArideConfig()
    value_recompute: bool = True
    optim: OptimConfig = OptimConfig()
    demonstrations: DemonstrationConfig = DemonstrationConfig()
    replay: ReplayConfig = ReplayConfig()
    mismatch: MismatchConfig = MismatchConfig()
    temperature: Annotated[float, Field(ge=0.01, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    max_new_tokens: Annotated[int, Field(ge=1, le=2**17)] = 32
    time_limit: Literal["fails", "cut"] = "fails"
    task_sampling: Literal["uniform", "weighted"] = "uniform"
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
    transfer: Literal["chunks", "nccl"] = "chunks"
    checkpoint_every: Count = 100
    keep_checkpoints: Count = 3
    keep_best: bool = True
    eval_every: Annotated[int, Field(ge=0)] = 100
    eval_episodes: Count = 32
    lease_ttl_s: Positive = 120.0
    max_episode_minutes: Positive = 45.0
    micro_batch_tokens: Count | None = None
    compile: bool = False
    device: str = "auto"
    threads: Count = 1

    @property
    def group_size(self) -> int:
        """Number of episodes of one task that are compared with each other; 1 means no comparison."""
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
    def _sampling_and_lag_fit_the_objective(self) -> LearnerConfig:
        chosen = self.algorithm
        if self.top_p < 1.0 or self.top_k:
            subject: str = chosen.kind
            instead = "set learner.algorithm to digirl, bc or filtered-bc, with invalid 0"
            if isinstance(chosen, DigirlConfig | BcConfig):
                subject = f"the validity term of {chosen.kind}" if chosen.invalid else ""
                instead = "set learner.algorithm.invalid to 0"
            if subject:
                key = f"top_p={self.top_p:g}" if self.top_p < 1.0 else f"top_k={self.top_k}"
                raise ValueError(
                    f"{key} truncates sampling: an action that the behaviour policy can never take has no "
                    f"importance ratio, so {subject}, which weighs by ratios, would be biased. Set "
                    f"learner.top_p to 1 and learner.top_k to 0, or {instead}"
                )
        if self.stale == "drop" and self.policy_lag > self.max_staleness:
            raise ValueError(
                f"policy_lag={self.policy_lag} is larger than max_staleness={self.max_staleness}: stale "
                "'drop' would drop every episode; set learner.stale to 'clip'"
            )
        if self.policy_lag and self.keep_best:
            raise ValueError(
                "learner.keep_best does not work with learner.policy_lag, because validation then measures "
                "older weights than those of the checkpoint; set learner.keep_best to false"
            )
        if isinstance(chosen, ArideConfig) and chosen.critic == "q":
            if not self.value_recompute:
                raise ValueError(
                    "value_recompute=false does not work with learner.algorithm.critic 'q', because its "
                    "values are expectations under the current policy; set value_recompute to true, or "
                    "critic to 'v'"
                )
            if self.zero_stage == 3 and self.num_processes != 1:
                raise ValueError(
                    "learner.algorithm.critic 'q' draws actions, which is not supported with weights sharded "
                    "over ranks (engine 'fsdp', or ZeRO stage 3); use stage 2, or set "
                    "learner.algorithm.critic to 'v'"
                )
        return self
