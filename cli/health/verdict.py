"""The last line of `doctor --estimate`: whether the run has room on its GPU, and which keys make it smaller.

On a machine with one GPU `distrl train` starts the learner and its inference servers there. A key is named
only if the estimate with another value of it is lower, and with that estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from distrl.cli.health.estimate import Hardware, Line, shown

if TYPE_CHECKING:
    from distrl.configs.schema import Config

Estimate = Callable[["Config"], list[Line]]
SPARE = 0.1  # of a GPU's memory, which buffers and fragments may take; the estimate does not count them
MIN_SAVING = 0.01  # of the sum: what saves less is not named
MOST_NAMED = 4


def verdict(config: Config, where: Hardware, estimate: Estimate) -> Line:
    """Whether learner and inference servers have room on one GPU.

    Args:
        where: The GPU.
        estimate: All lines for a configuration.
    """
    parts = device_bytes(config, estimate(config), where.memory)
    total = sum(parts.values())
    said = [" + ".join(f"{name} {shown(value, 'B')}" for name, value in parts.items())]
    if total <= where.memory * (1 - SPARE):
        said[0] += ": fits"
    elif total <= where.memory:
        said[0] += ": fits barely, as buffers and fragments are not counted"
    else:
        said[0] += ": does not fit"
    if total > where.memory * (1 - SPARE):
        if len(parts) > 1:
            said.append(f"on a GPU of its own {', '.join(_alone(config, parts, where.memory))}")
        said.append(_advice(config, total, where, estimate))
    what = f"one {where.name} of {shown(where.memory, 'B')}"
    return Line("verdict", what, total, "B", "; ".join(said))


def _alone(config: Config, parts: dict[str, float], memory: float) -> Iterator[str]:
    """Whether each process has room on a GPU that no other uses."""
    for name, value in parts.items():
        servers = 1 if name == "learner" else config.local.inference_servers
        who = "each server" if servers > 1 else name
        yield f"{who} {'fits' if value / servers <= memory else 'does not fit'}"


def device_bytes(config: Config, lines: list[Line], memory: float) -> dict[str, float]:
    """What is on a GPU of so much memory: the learner (of several ranks one), and the inference servers."""
    found = {(line.process, line.what): line.value for line in lines}
    parts: dict[str, float] = {}
    if not config.learner.device.startswith("cpu"):
        parts["learner"] = found["learner", "device memory"]
    if not config.policy.device.startswith("cpu"):
        servers = config.local.inference_servers
        name = "inference" if servers == 1 else f"{servers} inference servers"
        parts[name] = servers * _server_bytes(config, found, memory)
    return parts


def _server_bytes(config: Config, found: dict[tuple[str, str], float], memory: float) -> float:
    """vLLM takes a share of the GPU whatever it needs, and at least its weights and one sequence."""
    if config.inference.engine != "vllm":
        return found["inference", "device memory"]
    vllm = config.inference.vllm
    weights = found["inference", "weights"] / vllm.tensor_parallel_size
    least = weights + found["inference", "KV cache of a slot"] / vllm.tensor_parallel_size
    share = vllm.gpu_memory_utilization * memory
    bound = share if vllm.kv_cache_gb is None else min(share, weights + vllm.kv_cache_gb * 2**30)
    return max(least, bound)


def _advice(config: Config, total: float, where: Hardware, estimate: Estimate) -> str:
    """Which keys help, the most first, and what is left with all of them."""

    def bytes_of(one: Config) -> float:
        return sum(device_bytes(one, estimate(one), where.memory).values())

    saved: list[tuple[float, str, Any]] = []
    for key, value in _smaller(config, estimate(config)):
        changed = _with(config, key, value)
        if changed is not None and (now := bytes_of(changed)) < total * (1 - MIN_SAVING):
            saved.append((now, key, value))
    saved.sort(key=lambda one: one[0])
    named, whole = saved[:MOST_NAMED], config
    for _, key, value in named:
        whole = _with(whole, key, value) or whole
    if not named:
        return "take a larger GPU or a smaller model"
    advice = ", ".join(f"{key} {_written(value)} ({shown(now, 'B')})" for now, key, value in named)
    left = bytes_of(whole)
    then = "" if left <= where.memory else ": take a larger GPU or a smaller model"
    return f"lower it with {advice}" + (
        f"; with all of these {shown(left, 'B')}{then}" if named[1:] else then
    )


def _smaller(config: Config, lines: list[Line]) -> Iterator[tuple[str, Any]]:
    """Keys that may save memory, with a value that would."""
    found = {line.what: line.value for line in lines if line.process == "policy"}
    sequence = found.get("tokens of an episode, at most") or found["tokens of a step, at most"]
    policy, learner, inference = config.policy, config.learner, config.inference
    yield "learner.micro_batch_tokens", int(sequence)
    yield "learner.max_new_tokens", max(1, learner.max_new_tokens // 2)
    yield "policy.max_prompt_tokens", max(1, policy.max_prompt_tokens // 2)
    yield "policy.gradient_checkpointing", True
    if policy.lora is None:
        yield "policy.lora", {"rank": 16}
    if policy.max_pixels is not None:
        yield "policy.max_pixels", policy.max_pixels // 2
    yield "policy.dtype", "bfloat16"
    yield "inference.max_batch", max(1, inference.max_batch // 2)
    yield "inference.vllm.gpu_memory_utilization", round(inference.vllm.gpu_memory_utilization / 2, 2)


def _with(config: Config, key: str, value: Any) -> Config | None:
    """The configuration with another value of `key`; None if it would be refused."""
    fields = config.model_dump()
    *sections, name = key.split(".")
    section = fields
    for part in sections:
        section = section[part]
    section[name] = value
    try:
        return type(config).model_validate(fields)
    except ValidationError:
        return None


def _written(value: Any) -> str:
    """As YAML writes it in a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_written(one)}" for name, one in value.items()) + "}"
    return str(value).lower()
