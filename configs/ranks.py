"""The keys of a learner of several processes (ranks); what each does is in docs/models.md."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator, model_validator

from distrl.configs.section import Count, Positive, Section

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
                "ds_config.data_types.grad_accum_dtype with stage 1 could not go on after --resume; "
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
