"""What a configuration will cost, process by process: memory, disk, network, and about how fast it goes.

Every number is an estimate but those of parameters, which are exact. docs/models.md has the formulas and
where they are from; `how` of each line says what was put in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from distrl.cli.health.subject import (
    SCREEN,
    Subject,
    activation_bytes,
    cache_bytes,
    logit_bytes,
    prefill_flops,
    subject,
    training_flops,
)
from distrl.configs.policy import HubConfig, PretrainedConfig

if TYPE_CHECKING:
    from distrl.configs.learner import LearnerConfig
    from distrl.configs.schema import Config

PEAKS: dict[str, tuple[float, float, float]] = {
    "B200": (2250e12, 8.0e12, 180e9),
    "GH200": (989e12, 4.0e12, 96e9),
    "H200": (989e12, 4.8e12, 141e9),
    "H100 PCIe": (756e12, 2.0e12, 80e9),
    "H100": (989e12, 3.35e12, 80e9),
    "A100 40GB": (312e12, 1.555e12, 40e9),
    "A100": (312e12, 2.0e12, 80e9),
    "A40": (150e12, 0.696e12, 48e9),
    "A30": (165e12, 0.933e12, 24e9),
    "L40S": (362e12, 0.864e12, 48e9),
    "L40": (181e12, 0.864e12, 48e9),
    "L4": (121e12, 0.3e12, 24e9),
    "A10": (125e12, 0.6e12, 24e9),
    "A10G": (70e12, 0.6e12, 24e9),
    "RTX 6000 Ada": (182e12, 0.96e12, 48e9),
    "RTX A6000": (155e12, 0.768e12, 48e9),
    "RTX 5090": (209e12, 1.792e12, 32e9),
    "RTX 4090": (165e12, 1.008e12, 24e9),
    "RTX 3090": (71e12, 0.936e12, 24e9),
}
"""GPU → dense bfloat16 FLOP/s, bytes/s of memory and bytes of it, from the makers' data sheets."""
CPU_THREAD = 3e10, 1e10  # float32 FLOP/s and bytes/s of a thread, of the order of what is measured
UTILISATION, BANDWIDTH = 0.35, 0.6  # the share of the peaks that is reached
BYTES_PER_PIXEL = {"jpeg": 0.17, "png": 0.30}  # of screenshots of a phone
KEPT_VERSIONS = 3  # `distrl.learner.server.KEPT_WEIGHTS`
KEPT_PICTURES = 2**30, 2**27  # `MAX_BYTES` of `distrl.workers.inference`'s decoded_images and held_images
CRITIC_WIDTH, CRITIC_HEADS = 64, 4  # `distrl.core.policies.critic`
STEPS = 15  # of an episode, where the suite's tasks do not say it


@dataclass(frozen=True)
class Line:
    """One number.

    Attributes:
        process: "policy", "learner", "inference", "disk", "network", "speed" or "verdict".
        unit: "B", "B/s", "1/s", "s", "tokens", "FLOP", or "" for a count.
        how: What was put in.
        is_exact: It is no estimate.
    """

    process: str
    what: str
    value: float
    unit: str
    how: str = ""
    is_exact: bool = False


@dataclass(frozen=True)
class Hardware:
    """What computes: FLOP/s, bytes/s of memory, whether it is a GPU, its name, and a GPU's bytes."""

    flops: float
    bandwidth: float
    is_gpu: bool
    name: str
    memory: float = math.inf


def known_gpu(name: str) -> str | None:
    """The one of `PEAKS` whose words are all in `name`, e.g. "NVIDIA A100-SXM4-80GB"; None: there is none."""
    words = set(re.findall(r"\w+", name.lower()))
    return next((known for known in PEAKS if words.issuperset(known.lower().split())), None)


def hardware(gpu: str | None, threads: int, memory: float | None = None) -> Hardware:
    """What the name of a GPU stands for; without one, so many threads of a CPU.

    Args:
        memory: The GPU's bytes, where they are known better than by its name.
    """
    if gpu is None:
        return Hardware(threads * CPU_THREAD[0], threads * CPU_THREAD[1], False, f"{threads} CPU threads")
    known = known_gpu(gpu)
    flops, bandwidth, usual = PEAKS[known or "A100"]
    return Hardware(flops, bandwidth, True, known or f"{gpu}, taken for an A100", memory or usual)


def estimate(
    config: Config,
    where: Hardware,
    steps: float = STEPS,
    screen: tuple[int, int] = SCREEN,
    longest: float | None = None,
) -> list[Line]:
    """All lines.

    Args:
        where: What the learner and the inference servers compute on.
        steps: Of an episode; speed and disk are told for these.
        screen: Width and height of a screenshot in pixels.
        longest: Steps of the longest episode, which memory must have room for; None: `steps`.

    Raises:
        PolicyError: The model's files are not on this machine.
    """
    usual = subject(config, where.is_gpu, steps, screen)
    largest = subject(config, where.is_gpu, longest or steps, screen)
    return [
        *_policy(largest, usual),
        *_learner(config, largest),
        *_inference(config, largest),
        *_disk(config, usual, screen),
        *_speed(config, usual, where),
    ]


def _policy(largest: Subject, usual: Subject) -> Iterator[Line]:
    shape, what = largest.shape, "LoRA" if largest.is_lora else "full training"
    yield Line("policy", "parameters", shape.num_parameters, "", is_exact=True)
    yield Line("policy", "of these for pictures", shape.num_vision, "", is_exact=True)
    yield Line("policy", "trained parameters", largest.trained, "", what, is_exact=True)
    bound = largest.max_pixels or shape.image.max_pixels
    tokens = shape.image.num_tokens(largest.max_pixels)
    yield Line("policy", "tokens of a screenshot, at most", tokens, "tokens", f"of {bound} pixels at most")
    if largest.goes_on:
        how = f"{largest.steps:.0f} steps: one sequence that goes on"
        yield Line("policy", "tokens of an episode, at most", largest.sequence, "tokens", how)
        how = f"its share of an episode of {usual.sequence} tokens"
    else:
        how = "prompt and completion"
        yield Line("policy", "tokens of a step, at most", largest.sequence, "tokens", how)
        how = "at that length"
    yield Line("policy", "computation of a training step", training_flops(usual) / usual.steps, "FLOP", how)


def _learner(config: Config, one: Subject) -> Iterator[Line]:
    learner = config.learner
    frozen = one.shape.num_parameters - (0 if one.is_lora else one.trained)
    weights = frozen * one.bytes_each + one.trained * one.trained_bytes
    gradients = float(one.trained * one.trained_bytes)
    text = one.shape.text
    critic = text.vocabulary * CRITIC_WIDTH + text.hidden * (CRITIC_WIDTH + CRITIC_HEADS)
    share = math.ceil(learner.batch_trajectories / learner.num_processes)
    whole = math.ceil(share * one.sequences_per_episode * one.sequence)
    tokens = max(one.sequence, min(whole, learner.micro_batch_tokens or whole))
    completions = math.ceil(tokens / one.sequence * one.steps)
    stage, zero = learner.zero_stage, learner.ds_config.get("zero_optimization", {})
    moments = (12.0 * one.trained, "float32: AdamW's two moments, a copy of what is trained")
    if not stage:
        moments = (2.0 * gradients, "AdamW: two moments")
    parts = {
        "weights": _sharded(weights, f"{one.bytes_each} B each", learner, 3, zero.get("offload_param")),
        "gradients": _sharded(gradients, f"{one.trained_bytes} B each", learner, 2),
        "optimizer": _sharded(*moments, learner, 1, zero.get("offload_optimizer")),
        "critic": (16.0 * critic, "float32 with gradients and moments"),
        "activations": (
            activation_bytes(one, tokens),
            f"{tokens} tokens in a pass{', recomputed' if one.recomputes else ''}",
        ),
        "logits": (logit_bytes(one, completions), f"{completions} completions in a pass"),
    }
    for what, (value, how) in parts.items():
        yield Line("learner", what, value, "B", how)
    ranks = f", on each of {learner.num_processes} ranks" if learner.num_processes > 1 else ""
    memory = sum(value for value, _ in parts.values())
    yield Line("learner", "device memory", memory, "B", f"the sum{ranks}")
    published = (KEPT_VERSIONS + 1) * one.published_bytes
    yield Line(
        "learner", "memory for published weights", published, "B", f"{KEPT_VERSIONS} versions, and the next"
    )


def _sharded(
    value: float, how: str, learner: LearnerConfig, stage: int, offload: dict[str, Any] | None = None
) -> tuple[float, str]:
    """What a rank has of `value` bytes on its device, which ZeRO shards from `stage` on.

    Args:
        offload: The section that says where it is kept instead.
    """
    if learner.zero_stage < stage:
        return value, how
    if (offload or {}).get("device") == "cpu":
        return 0.0, "offloaded to the CPU"
    ranks = learner.num_processes
    return value / ranks, f"{how}, over {ranks} ranks" if ranks > 1 else how


def _inference(config: Config, one: Subject) -> Iterator[Line]:
    slots = config.inference.max_batch
    weights = one.shape.num_parameters * one.bytes_each + (
        one.trained * one.trained_bytes if one.is_lora else 0
    )
    cache = cache_bytes(one, one.sequence)
    yield Line("inference", "weights", weights, "B", f"{one.bytes_each} B each")
    yield Line("inference", "KV cache of a slot", cache, "B", f"{one.sequence} tokens")
    yield Line("inference", "KV cache", slots * cache, "B", f"inference.max_batch {slots} slots")
    yield Line(
        "inference", "device memory", weights + slots * cache, "B", "the sum, without temporary buffers"
    )
    yield Line("inference", "memory for arriving weights", one.published_bytes, "B", "one version")
    yield Line("inference", "memory for pictures, at most", sum(KEPT_PICTURES), "B", "decoded, and encoded")


def _disk(config: Config, one: Subject, screen: tuple[int, int]) -> Iterator[Line]:
    kind, (width, height) = config.worker.screenshot_format, screen
    picture = width * height * BYTES_PER_PIXEL[kind]
    asked = one.sequence / one.steps - one.completion  # a sequence's ids are stored once
    text = 24.0 * one.completion + 4.0 * asked  # ids and log-probabilities
    per_episode = one.episode_steps * (picture + text)
    how = f"{one.episode_steps:.0f} steps, {kind} of {width}x{height}; never more than store.max_bytes"
    growth = min(1000 * per_episode, float(config.store.max_bytes))
    yield Line("disk", "store, per 1000 episodes", growth, "B", how)
    kept = config.learner.keep_checkpoints + 2
    size = 3.0 * one.published_bytes
    yield Line("disk", "checkpoints", kept * size, "B", f"{kept} of them: what is trained, and its moments")


def _speed(config: Config, one: Subject, where: Hardware) -> Iterator[Line]:
    learner, slots = config.learner, config.inference.max_batch
    flops = where.flops * UTILISATION
    ranks = learner.num_processes
    samples = ranks * flops / training_flops(one) * one.steps
    who = f"{ranks} x {where.name}" if ranks > 1 else where.name
    yield Line("speed", "steps trained", samples, "1/s", f"{who} at {UTILISATION:.0%} of its peak")
    update = learner.batch_trajectories * one.episode_steps / samples
    yield Line("speed", "an update", update, "s", f"{learner.batch_trajectories} trajectories")
    weights = one.shape.num_parameters * one.bytes_each
    is_cached = config.inference.engine.kind == "vllm" and config.inference.vllm.prefix_caching
    prefill = prefill_flops(one, is_cached) / flops
    context = one.mean_context + one.completion
    moved = (weights + slots * cache_bytes(one, context)) / (where.bandwidth * BANDWIDTH)
    computed = 2.0 * slots * (one.shape.num_parameters - one.shape.num_vision) / flops
    token = max(moved, computed)
    length = "the mean length" if one.goes_on else "the full length"
    yield Line("speed", "tokens sampled", slots / token, "1/s", f"one server, {slots} slots, at {length}")
    acting = slots / (slots * prefill + one.completion * token)
    cached = "of prompts what is new" if one.goes_on and is_cached else "nothing cached"
    yield Line("speed", "actions", acting, "1/s", f"one server, {one.completion} tokens each, {cached}")
    yield Line("network", "a version", one.published_bytes, "B", "to each server")
    seconds = update * learner.publish_every
    rate = one.published_bytes / seconds
    yield Line("network", "weights to a server", rate, "B/s", f"a version every {seconds:.3g} s")


def as_text(line: Line) -> str:
    """The line for people."""
    label = "" if line.is_exact else "  (estimate)"
    how = f"  {line.how}" if line.how else ""
    return f"{line.process:<10} {line.what:<32} {shown(line.value, line.unit):>12}{how}{label}"


def shown(value: float, unit: str) -> str:
    """The number with its unit, to three digits."""
    if not unit or unit == "tokens":
        return f"{value:,.0f}"
    if unit == "s":
        return f"{value:.3g} s"
    power = min(5, max(0, int(math.log10(value) // 3))) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {' kMGTP'[power].strip()}{unit}" if unit != "1/s" else f"{value:.3g}/s"


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
    if config.inference.engine.kind != "vllm":
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
    policy, learner, inference = config.chat_policy, config.learner, config.inference
    yield "learner.micro_batch_tokens", int(sequence)
    yield "learner.max_new_tokens", max(1, learner.max_new_tokens // 2)
    yield "policy.max_prompt_tokens", max(1, policy.max_prompt_tokens // 2)
    if isinstance(policy, PretrainedConfig) and policy.lora is None:
        yield "policy.lora", {"rank": 16}
    if isinstance(policy, HubConfig) and policy.max_pixels is not None:
        yield "policy.max_pixels", policy.max_pixels // 2
    if isinstance(policy, PretrainedConfig):
        yield "policy.gradient_checkpointing", True
        yield "policy.dtype", "bfloat16"
    yield "inference.max_batch", max(1, inference.max_batch // 2)
    if inference.engine.kind == "vllm":
        yield "inference.engine.gpu_memory_utilization", round(inference.engine.gpu_memory_utilization / 2, 2)


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
