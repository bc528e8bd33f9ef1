"""The engines of `inference.engine`: transformers and vLLM."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from distrl.configs.section import Count, NonNegative, Positive, Section, one_of

# Set by the engine: log-probabilities, versions and memory depend on them.
_OWN = frozenset(
    {
        "model",
        "dtype",
        "seed",
        "max_model_len",
        "max_num_seqs",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "enforce_eager",
        "tensor_parallel_size",
        "limit_mm_per_prompt",
        "enable_prefix_caching",
        "logprobs_mode",
        "logits_processors",
        "additional_config",
        "generation_config",
        "enable_lora",
        "max_loras",
        "max_cpu_loras",
        "max_lora_rank",
    }
)


class HfConfig(Section):
    """transformers: a batch runs when `inference.max_batch` requests wait or the oldest has waited
    `max_wait_ms`."""

    kind: Literal["hf"] = "hf"
    max_wait_ms: NonNegative = 4.0


class VllmConfig(Section):
    """vLLM (see docs/models.md): requests run as they come.

    At most `inference.max_batch` requests run at a time. A sequence has at most `max_model_len` tokens with
    its answer and shows at most `images_per_prompt` pictures; an episode whose sequence is full ends as at
    its step limit. Null is, where an episode is one sequence (agents in mode incremental),
    policy.max_context_tokens and 32 pictures; elsewhere policy.max_prompt_tokens + learner.max_new_tokens, if
    that is less, and 1. It is never more tokens than the model has positions for.

    On GPUs it takes the share `gpu_memory_utilization` of each one's memory, less if `kv_cache_gb` bounds
    the cache of keys and values; on CPUs the cache has `kv_cache_gb` GiB, 1 when null. `enforce_eager` runs
    the model as it is, null: on CPUs, and compiles it on GPUs. `dtype` "auto" is the learner's,
    policy.dtype, and where that is "auto" too float32 on CPUs and bfloat16 on GPUs.

    So many versions of an adapter are held at a time as `max_adapters` says; null is
    learner.max_staleness + 2. `options` go to vLLM's AsyncEngineArgs as they are.
    """

    kind: Literal["vllm"] = "vllm"
    max_model_len: Count | None = None
    images_per_prompt: Count | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.85
    kv_cache_gb: Positive | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: Count = 1
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    prefix_caching: bool = True
    max_adapters: Annotated[int, Field(ge=2)] | None = None
    options: dict[str, Any] = {}

    @field_validator("options")
    @classmethod
    def _options_are_not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OWN & value.keys()):
            raise ValueError(
                f"{taken} are set from other keys; see inference.engine, inference.max_batch and policy"
            )
        return value


EngineConfig = Annotated[HfConfig | VllmConfig, Field(discriminator="kind"), one_of("hf")]
