"""What vLLM is started with, and how its processes end with the server.

vLLM itself is imported by `engine_vllm` only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
from typing import Any

import torch

from distrl.configs.schema import Config, InferenceConfig
from distrl.core.errors import ConfigError, PolicyError
from distrl.core.policies.hub import HubPolicy

ALLOWED_TOKENS = "distrl_allowed_tokens"  # where in `additional_config` the tokens stand that may be sampled
LOGITS_PROCESSOR = "distrl.workers.inference.engine_vllm:AllowedTokens"
SERVER = "DISTRL_VLLM_SERVER"  # the variable with the server's process id, for the processes that vLLM starts
IMAGES_OF_AN_EPISODE = 32
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has room for


def set_environment(config: InferenceConfig) -> None:
    """Sets what vLLM reads from the environment of its process and of those that it starts.

    Call it before vLLM is imported. What the user has set stays, but for the number of threads.
    """
    defaults = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads
    }
    if not torch.cuda.is_available():
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
        defaults["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # other processes of the run need cores too
        defaults["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process beside this one, not two
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    os.environ[SERVER] = str(os.getpid())


def max_adapters(config: Config) -> int:
    return config.inference.vllm.max_adapters or config.learner.max_staleness + 2


def max_model_len(config: Config, longest: int | None = None) -> int:
    """The longest sequence with its answer, in tokens, of which the model takes `longest`.

    Where an episode is one sequence this is `policy.max_context_tokens`; elsewhere a prompt and an answer, if
    they are less.
    """
    if config.inference.vllm.max_model_len is not None:
        return config.inference.vllm.max_model_len
    needed = config.hub_policy.max_context_tokens
    if not _goes_on(config):
        needed = min(needed, config.hub_policy.max_prompt_tokens + config.learner.max_new_tokens)
    return needed if longest is None else min(needed, longest)


def max_images(config: Config) -> int:
    default = IMAGES_OF_AN_EPISODE if _goes_on(config) else 1
    return config.inference.vllm.images_per_prompt or default


def _goes_on(config: Config) -> bool:
    """Whether an episode is one token sequence, with a picture a step."""
    return config.agent.options.get("mode") == "incremental"


def engine_arguments(config: Config, policy: HubPolicy, seed: int) -> dict[str, Any]:
    inference, vllm = config.inference, config.inference.vllm
    on_gpu = torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "model": config.hub_policy.model,
        "dtype": _dtype(config, on_gpu),
        "seed": seed % 2**31,
        "max_model_len": max_model_len(config, policy.longest_sequence),
        "max_num_seqs": inference.num_rows,
        "gpu_memory_utilization": vllm.gpu_memory_utilization,
        "enforce_eager": (not on_gpu) if vllm.enforce_eager is None else vllm.enforce_eager,
        "tensor_parallel_size": vllm.tensor_parallel_size,
        "limit_mm_per_prompt": {"image": max_images(config), "video": 0},
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # as sampled: at the temperature, truncated and masked
        "logits_processors": [LOGITS_PROCESSOR],
        "additional_config": {ALLOWED_TOKENS: policy.allowed_ids},
        "generation_config": "vllm",  # else the model's own sampling settings would mix in
        "disable_log_stats": True,
    }
    cache_gb = vllm.kv_cache_gb if vllm.kv_cache_gb or on_gpu else 1.0
    if cache_gb:
        arguments["kv_cache_memory_bytes"] = int(cache_gb * 2**30)
    arguments |= _image_arguments(policy) | _lora_arguments(config)
    if config.hub_policy.quantization == "nf4":
        arguments["quantization"] = "bitsandbytes"  # the learner's weights, as nearly as vLLM has them
    if config.learner.transfer == "nccl":
        arguments["weight_transfer_config"] = {"backend": "nccl"}
    if config.local.gpus == "colocated":
        arguments["enable_sleep_mode"] = True
    if taken := sorted(arguments.keys() & vllm.options.keys()):
        raise ConfigError(f"inference.engine.options has {taken}, which other keys set.", "Leave them out.")
    return {**arguments, **vllm.options}


def _dtype(config: Config, on_gpu: bool) -> str:
    """The policy's; "auto" means that of the learner on the same kind of device."""
    automatic = "bfloat16" if on_gpu else "float32"
    return automatic if config.hub_policy.dtype == "auto" else config.hub_policy.dtype


def _image_arguments(policy: HubPolicy) -> dict[str, Any]:
    """The policy's bounds of a picture's size, so that vLLM sees as many tokens in it."""
    bounds = {"min_pixels": policy.config.min_pixels, "max_pixels": policy.config.max_pixels}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if given and policy.images.frames > 1:
        return {"mm_processor_kwargs": {"size": policy.images.size}}
    return {"mm_processor_kwargs": given} if given else {}


def _lora_arguments(config: Config) -> dict[str, Any]:
    lora = config.hub_policy.lora
    if lora is None:
        return {}
    rank = next((rank for rank in _RANKS if rank >= lora.rank), None)
    if rank is None:
        raise PolicyError(
            f"vLLM has no room for adapters of rank {lora.rank}; the largest is {_RANKS[-1]}.",
            "Lower policy.lora.rank, or set inference.engine to hf.",
        )
    slots = max_adapters(config)
    return {"enable_lora": True, "max_loras": slots, "max_cpu_loras": slots, "max_lora_rank": rank}


def end_with_server() -> None:
    """Kills this process when its server has ended. Not the server itself; nothing without one."""
    server = int(os.environ.get(SERVER, os.getpid()))
    if server != os.getpid():
        threading.Thread(target=_end_with, args=(server,), name="server-death", daemon=True).start()


def _end_with(server: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        poller = select.poll()
        poller.register(os.pidfd_open(server), select.POLLIN)
        poller.poll()  # returns when the server has ended
    os.kill(os.getpid(), signal.SIGKILL)


def quieten() -> None:
    """Drops vLLM's warnings of weights that were not loaded: what is not trained is not published."""
    for name in ("inplace", "layerwise"):
        logging.getLogger(f"vllm.model_executor.model_loader.reload.{name}").setLevel(logging.ERROR)
