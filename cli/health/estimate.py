"""What a configuration will cost, process by process: memory, network, and about how fast it runs.

Every number but those of parameters is an estimate; `how` of each line says what was put in. Sources:
adapters Hu et al. 2021, arXiv 2106.09685, §4; ZeRO Rajbhandari et al. 2020, arXiv 1910.02054, §3 and §5;
activations Korthikanti et al. 2022, arXiv 2205.05198, §4.1 and §5, counted again for transformers' layers and
PEFT's adapters; FLOP Kaplan et al. 2020, arXiv 2001.08361, §2.1. Shares of peaks and the times of
`engine: hf` are measured (docs/performance.md).

mode history        a step is a sequence: prompt, completion
mode incremental    an episode is one: prompt, completion, question with picture, completion, question, ...
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distrl.configs.policy import AutoUIConfig, HubConfig, PretrainedConfig
from distrl.core.errors import ConfigError
from distrl.core.model_points import ImageShape, smart_resize

if TYPE_CHECKING:
    from distrl.configs.learner import LearnerConfig
    from distrl.configs.schema import Config
    from distrl.core.policies.model_shapes import ModelShape

PEAKS: dict[str, tuple[float, float, float]] = {
    "B200": (2250e12, 8.0e12, 180e9),
    "GH200": (989e12, 4.0e12, 96e9),
    "H200": (989e12, 4.8e12, 141e9),
    "H100 PCIe": (756e12, 2.0e12, 80e9),
    "H100": (989e12, 3.35e12, 80e9),
    "A100 40GB": (312e12, 1.555e12, 40e9),
    "A100": (312e12, 2.0e12, 80e9),
    "A40": (150e12, 0.696e12, 48e9),
    "L40S": (362e12, 0.864e12, 48e9),
    "L4": (121e12, 0.3e12, 24e9),
    "A10G": (70e12, 0.6e12, 24e9),
    "RTX A6000": (155e12, 0.768e12, 48e9),
    "RTX 5090": (209e12, 1.792e12, 32e9),
    "RTX 4090": (165e12, 1.008e12, 24e9),
    "RTX 3090": (71e12, 0.936e12, 24e9),
}
"""GPU → dense bfloat16 FLOP/s, bytes/s of memory and bytes of it, from the makers' data sheets."""
CPU_THREAD = 4e10, 1e10  # float32 FLOP/s and bytes/s of a thread, of the order of what is measured
UTILISATION, BANDWIDTH = 0.25, 0.6  # the share of the peaks that is reached
FLOAT32 = 0.1  # how fast a GPU computes in float32, where bfloat16 is 1
LAUNCHES, ADAPTER_LAUNCHES = 1.5e-3, 2.2e-3
"""Seconds per layer and token with `engine: hf` on a GPU to launch kernels, and those of adapters."""
NF4_BYTES = 0.516  # of a weight with its share of the scales (Dettmers et al. 2023, "QLoRA", §3)
KEPT = ("weights", "gradients", "optimizer", "critic")  # of the learner's memory, between updates
SPARE = 0.1  # of a GPU's memory, which buffers and fragments may take; the estimate does not count them
CRITIC_WIDTH, CRITIC_HEADS = 64, 4  # `distrl.core.policies.critic`
TRAINED_WHOLE = ("image_dense.", "mha_layer.", "gate_dense.", "stem.")
"""What AutoUI trains beside adapters: the fusion and the small encoder."""
SCREEN, DRAWN = (1080, 2400), {"phone": (540, 1200), "two_screens": (320, 640)}
"""Screens of a phone, and of environments that draw theirs."""
MAX_LOGITS = 2**26  # at a time: `distrl.core.policies.sampling`; they take 20 bytes each
QUESTION = 24  # tokens around the picture of a question in a sequence that continues


@dataclass(frozen=True)
class Line:
    """One number, in "B", "1/s", "s", "tokens", "FLOP" or "" for a count; `how` says what was put in."""

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
    """The first of `PEAKS` whose words are all in `name`, e.g. "NVIDIA A100-SXM4-80GB"."""
    words = set(re.findall(r"\w+", name.lower()))
    return next((known for known in PEAKS if words.issuperset(known.lower().split())), None)


def hardware(gpu: str | None, threads: int, memory: float | None = None) -> Hardware:
    """A GPU by its name (`memory`: its bytes, if known better), or that many threads of a CPU."""
    if gpu is None:
        return Hardware(threads * CPU_THREAD[0], threads * CPU_THREAD[1], False, f"{threads} CPU threads")
    known = known_gpu(gpu)
    flops, bandwidth, usual = PEAKS[known or "A100"]
    return Hardware(flops, bandwidth, True, known or f"{gpu}, taken for an A100", memory or usual)


class Subject:
    """A policy as the formulas need it, for episodes of `steps` steps on such a screen."""

    def __init__(
        self,
        config: Config,
        is_gpu: bool,
        steps: float,
        screen: tuple[int, int],
        shape: ModelShape | None = None,
    ) -> None:
        from distrl.learner.algorithms import build_algorithm

        policy = _pretrained(config)
        hub, lora = policy if isinstance(policy, HubConfig) else None, policy.lora
        self.shape = shape or shape_of(config)
        self.is_lora = lora is not None
        self.recomputes = policy.gradient_checkpointing
        self.trains_vision = hub is not None and hub.train_vision if lora is None else lora.vision
        has_cache = hub is None or (not self.shape.image.is_fixed and hub.vision_cache_gb != 0)
        self.keeps_features = not self.trains_vision and has_cache
        self.is_sharded = config.learner.zero_stage == 3  # then the tower runs in every pass of the learner
        self.trained = _num_trained(config, self.shape, self.trains_vision)
        # Bytes of a frozen parameter, and of one that is trained.
        self.bytes_each = {"float32": 4, "bfloat16": 2}.get(policy.dtype, 2 if is_gpu else 4)
        self.trained_bytes = 4 if self.is_lora else self.bytes_each
        self.is_nf4 = hub is not None and hub.quantization == "nf4"
        self.adapter_inputs = self.shape.lora_inputs(lora) if lora is not None else 0
        self.is_gpu = is_gpu
        self.max_pixels = hub.max_pixels if hub is not None else None
        self.picture = _picture_tokens(hub, self.shape.image, screen)  # tokens of a screenshot
        self.completion = config.learner.max_new_tokens
        self.prompt = policy.max_prompt_tokens
        if hub is not None:
            self.prompt = min(self.prompt, max(1, hub.max_context_tokens - self.completion))
        # Whether an episode is one sequence, to which each step adds `added` tokens besides its answer;
        # steps that a sequence has room for, sequences of an episode, and pictures of the first prompt.
        self.goes_on = config.agent.options.get("mode") == "incremental"
        self.added, self.steps, self.sequences_per_episode = 0, 1.0, steps
        self.num_pictures = int(config.agent.options.get("images", 1))
        if self.goes_on:
            self.added, self.sequences_per_episode, self.num_pictures = self.picture + QUESTION, 1.0, 1
            room = (hub.max_context_tokens - self.prompt if hub is not None else 0) - self.completion
            self.steps = max(1.0, min(steps, 1.0 + room // (self.added + self.completion)))
        self.episode_steps = self.steps * self.sequences_per_episode
        self.sequence = math.ceil(self.asked_before(self.steps - 1.0)) + self.completion  # tokens, at most
        self.published_bytes = self.trained * self.trained_bytes  # a version of the weights on the wire
        learner = config.learner
        share = math.ceil(learner.batch_trajectories / learner.num_ranks)
        whole = math.ceil(share * self.sequences_per_episode * self.sequence)
        most = learner.micro_batch_tokens or whole
        self.pass_tokens, is_split = max(self.sequence, min(whole, most)), whole > most
        # Of a batch: passes with gradients, and those without.
        algorithm = build_algorithm(learner)
        self.passes = algorithm.epochs
        self.scorings = self.passes * (is_split and not algorithm.is_separable)
        self.scorings += algorithm.has_snapshot + algorithm.has_reference

    def frozen_bytes(self, count: int) -> float:
        """What so many parameters take that are not trained; some of them may be in 4 bits."""
        in_four_bits = min(count, self.shape.num_in_blocks) if self.is_nf4 else 0
        return (count - in_four_bits) * self.bytes_each + in_four_bits * NF4_BYTES

    def asked_before(self, step: float) -> float:
        """Tokens before the answer of a step of the sequence, from 0."""
        return self.prompt + step * (self.added + self.completion)

    def activation_bytes(self, tokens: int) -> float:
        """What a training pass keeps of so many tokens until their gradients are taken."""
        text, size = self.shape.text, self.bytes_each
        heads = (text.heads + text.kv_heads) * text.head_dim
        norms = 8.0 * text.hidden  # their inputs in float32
        if any(".q_norm." in name for name in self.shape.shapes):
            norms += 4.0 * heads
        # Queries, keys, values and what attention makes of them; in the feed-forward layer both projections,
        # and the activation of one. Trained linear layers keep their inputs, adapters a copy in float32.
        inner = size * (2 * heads + 3 * text.intermediate) + norms
        if self.is_lora:
            inner += 4.0 * self.adapter_inputs / text.layers
        else:
            inner += size * (4 * text.hidden + text.intermediate)
        each = size * text.layers * text.hidden + inner if self.recomputes else text.layers * inner
        if self.is_gpu and size == 4 and text.heads > text.kv_heads:
            # In float32 torch's only kernel for groups of heads is the one that keeps all scores: four copies
            # in the layer that it computes, one in the others unless they are recomputed.
            copies = 4.0 if self.recomputes else 3.0 + text.layers
            return tokens * (each + 4.0 * copies * text.heads * self.sequence)
        return tokens * each

    def logit_bytes(self, completions: int) -> float:
        """Logits, their log-probabilities, and the gradients of both, which are made in pieces."""
        each = self.shape.text.vocabulary * float(self.bytes_each * 2 + 8)
        needed = completions * (self.completion + 1) * each
        return min(needed, 20.0 * MAX_LOGITS)

    def cache_bytes(self, tokens: int) -> float:
        """Keys and values of so many tokens."""
        text = self.shape.text
        return 2.0 * text.layers * text.kv_heads * text.head_dim * self.bytes_each * tokens

    def forward_flops(self, tokens: float, pictures: float) -> tuple[float, float]:
        """FLOP of a pass over a sequence of `tokens`, in the language model and for its pictures."""
        shape, text = self.shape, self.shape.text
        dense = 2.0 * (shape.num_active - self._num_embedded) * tokens
        attention = 2.0 * tokens**2 * text.heads * text.head_dim * text.layers
        patches = self.picture * shape.image.merge**2
        return dense + attention, 2.0 * shape.num_vision * patches * pictures

    @property
    def _num_embedded(self) -> int:
        """Parameters of the embeddings, which are looked up, and of the output layer, which reads answers."""
        size = (self.shape.text.vocabulary, self.shape.text.hidden)
        return sum(math.prod(size) for shape in self.shape.shapes.values() if shape == size)

    def training_flops(self) -> float:
        """FLOP of a sequence in an update, with the passes that only score a batch."""
        text, vision = self.forward_flops(self.sequence, self.num_pictures + self.steps - 1.0)
        text += 2.0 * self.shape.text.vocabulary * self.shape.text.hidden * self.completion * self.steps
        forward = float(self.passes + self.scorings)
        factor = forward + self.passes * ((1.0 if self.is_lora else 2.0) + self.recomputes)
        looked = 1.0 if self.keeps_features and not self.is_sharded else forward
        return factor * text + (factor if self.trains_vision else looked) * vision

    def prefill_flops(self, is_cached: bool) -> float:
        """FLOP to read what a step's answer follows, mean over steps.

        Args:
            is_cached: Only what is new is read. Otherwise prompts are padded to the longest, and a frozen
                tower looks at the new picture only.
        """
        if is_cached and self.goes_on:
            return sum(self.forward_flops(self.sequence, self.num_pictures + self.steps - 1.0)) / self.steps
        longest, pictures = self.asked_before(self.steps - 1.0), self.num_pictures + (self.steps - 1.0) / 2.0
        return sum(self.forward_flops(longest, 1.0 if self.keeps_features else pictures))

    def prefill_bytes(self) -> float:
        """What transformers holds of the longest prompt while reading it: a layer's inner states, a mask."""
        text, tokens = self.shape.text, self.asked_before(self.steps - 1.0)
        return tokens * (self.bytes_each * (4.0 * text.intermediate + 12.0 * text.hidden) + 3.0 * tokens)

    def token_bytes(self, slots: int, context: float, is_copied: bool) -> float:
        """Bytes moved to sample a token in each slot: the weights and, after `context` tokens, the cache.

        Args:
            is_copied: As by transformers, which copies the cache to append, and then for each group's heads.
        """
        text = self.shape.text
        times = 3.0 + 2.0 * text.heads / text.kv_heads if is_copied else 1.0
        cache = times * slots * self.cache_bytes(math.ceil(context))
        return self.shape.num_parameters * self.bytes_each + cache


def shape_of(config: Config) -> ModelShape:
    """The sizes of the policy's model.

    Raises:
        ConfigError: The policy is no model of transformers.
        PolicyError: The model's files are not on this machine.
    """
    from distrl.core.policies.model_shapes import read_autoui, read_model

    policy = _pretrained(config)
    if isinstance(policy, AutoUIConfig):
        return read_autoui(policy.model, policy.image_features, policy.image_size)
    return read_model(policy.model)


def _pretrained(config: Config) -> PretrainedConfig:
    if not isinstance(config.policy, PretrainedConfig):
        raise ConfigError(
            f"policy.kind is {config.policy.kind!r}, but estimates need hub or autoui.",
            "Measure a short run of this policy.",
        )
    return config.policy


def _num_trained(config: Config, shape: ModelShape, trains_vision: bool) -> int:
    from distrl.core.policies.model_shapes import count

    lora = getattr(config.policy, "lora", None)
    if lora is None:
        return shape.num_parameters - (0 if trains_vision else shape.num_vision)
    trained: int = shape.num_lora(lora)
    if isinstance(config.policy, AutoUIConfig):
        trained += count({n: x for n, x in shape.shapes.items() if n.startswith(TRAINED_WHOLE)})
    return trained


def _picture_tokens(hub: HubConfig | None, image: ImageShape, screen: tuple[int, int]) -> int:
    """Tokens of a screenshot of that size."""
    if image.is_fixed:
        return image.num_tokens()
    factor = image.patch * image.merge
    most = (hub and hub.max_pixels) or image.max_pixels
    least = min(most, (hub and hub.min_pixels) or image.min_pixels)
    width, height = smart_resize(*screen, factor, least, most)
    return (width // factor) * (height // factor)


def screen_of(config: Config) -> tuple[int, int]:
    """Width and height of a screenshot, as far as the configuration says it."""
    env = config.env
    if env.kind not in DRAWN or env.import_path is not None or config.devices.pool:
        return SCREEN
    width, height = DRAWN[env.kind]
    return int(env.options.get("width", width)), int(env.options.get("height", height))


def estimate(
    config: Config,
    where: Hardware,
    steps: float,
    screen: tuple[int, int] = SCREEN,
    shape: ModelShape | None = None,
) -> list[Line]:
    """All lines, for servers and a learner that compute on `where`, and episodes of at most `steps` steps.

    Args:
        shape: That of `shape_of`, if it is known already.
    """
    one = Subject(config, where.is_gpu, steps, screen, shape)
    lines = [
        *_policy(one),
        *_learner(config, one),
        *_inference(config, one),
        *_speed(config, one, where),
    ]
    return [*lines, verdict(config, where, lines)] if where.is_gpu else lines


def _policy(one: Subject) -> Iterator[Line]:
    shape, what = one.shape, "LoRA" if one.is_lora else "full training"
    yield Line("policy", "parameters", shape.num_parameters, "", is_exact=True)
    yield Line("policy", "of these, vision tower", shape.num_vision, "", is_exact=True)
    yield Line("policy", "trained parameters", one.trained, "", what, is_exact=True)
    tokens = shape.image.num_tokens(one.max_pixels)
    how = f"of {one.max_pixels or shape.image.max_pixels} pixels at most"
    yield Line("policy", "tokens of a screenshot, at most", tokens, "tokens", how)
    how = f"{one.steps:.0f} steps" if one.goes_on else "prompt and completion"
    yield Line("policy", "tokens of a sequence, at most", one.sequence, "tokens", how)
    flops = one.training_flops() / one.steps
    yield Line("policy", "computation of a training step", flops, "FLOP", "at that length")


def _learner(config: Config, one: Subject) -> Iterator[Line]:
    learner = config.learner
    frozen = one.shape.num_parameters - (0 if one.is_lora else one.trained)
    is_fsdp = learner.engine == "fsdp"  # whose parts are float32, whatever type computes
    trained_bytes = 4 if is_fsdp else one.trained_bytes
    trained = float(one.trained * trained_bytes)
    weights = one.frozen_bytes(frozen) + trained
    text = one.shape.text
    critic = text.vocabulary * CRITIC_WIDTH + text.hidden * (CRITIC_WIDTH + CRITIC_HEADS)
    tokens = one.pass_tokens
    completions = math.ceil(tokens / one.sequence * one.steps)
    zero = learner.ds_config.get("zero_optimization", {})
    moments = (2.0 * trained, "AdamW: two moments")
    gradients = (trained, f"{trained_bytes} B each")
    if trained_bytes == 2 and learner.engine == "torch":
        gradients = (6.0 * one.trained, "in bfloat16, and their sum in float32")
    if learner.engine == "deepspeed" or trained_bytes == 2:
        moments = (12.0 * one.trained, "float32: AdamW's two moments, a copy of what is trained")
    recomputed = ", recomputed" if one.recomputes else ""
    each = round(one.frozen_bytes(frozen) / frozen, 2) if frozen else trained_bytes
    parts = {
        "weights": _sharded(weights, f"{each} B each", learner, 3, zero.get("offload_param")),
        "gradients": _sharded(*gradients, learner, 2),
        "optimizer": _sharded(*moments, learner, 1, zero.get("offload_optimizer")),
        "critic": (16.0 * critic, "float32 with gradients and moments"),
        "activations": (one.activation_bytes(tokens), f"{tokens} tokens in a pass{recomputed}"),
        "logits": (one.logit_bytes(completions), f"{completions} completions in a pass"),
    }
    for what, (value, how) in parts.items():
        yield Line("learner", what, value, "B", how)
    ranks = f", on each of {learner.num_ranks} ranks" if learner.num_ranks > 1 else ""
    memory = sum(value for value, _ in parts.values())
    yield Line("learner", "device memory", memory, "B", f"the sum{ranks}")


def _sharded(
    value: float, how: str, learner: LearnerConfig, stage: int, offload: dict[str, Any] | None = None
) -> tuple[float, str]:
    """What a rank has of `value` bytes on its device, which engines shard from `stage` on, or offload."""
    if learner.zero_stage < stage:
        return value, how
    if (offload or {}).get("device") == "cpu":
        return 0.0, "offloaded to the CPU"
    ranks = learner.num_ranks
    return value / ranks, f"{how}, over {ranks} ranks" if ranks > 1 else how


def _inference(config: Config, one: Subject) -> Iterator[Line]:
    slots, cache = config.inference.num_rows, one.cache_bytes(one.sequence)
    base = one.shape.num_parameters
    weights = one.frozen_bytes(base) + (one.published_bytes if one.is_lora else 0)
    yield Line("inference", "weights", weights, "B", f"{round(one.frozen_bytes(base) / base, 2):g} B each")
    yield Line("inference", "KV cache of a slot", cache, "B", f"{one.sequence} tokens")
    yield Line("inference", "KV cache", slots * cache, "B", f"inference.max_batch {slots} slots")
    buffers = 0.0 if config.inference.engine.kind == "vllm" else slots * one.prefill_bytes()
    if buffers:
        yield Line("inference", "buffers", buffers, "B", f"while {slots} prompts are read")
    yield Line("inference", "device memory", weights + slots * cache + buffers, "B", "the sum")


def _speed(config: Config, one: Subject, where: Hardware) -> Iterator[Line]:
    learner, slots = config.learner, config.inference.num_rows
    is_slow = where.is_gpu and one.bytes_each == 4
    share, ranks = UTILISATION * (FLOAT32 if is_slow else 1.0), learner.num_ranks
    flops = where.flops * share
    samples = ranks * flops / one.training_flops() * one.steps
    who = f"{ranks} x {where.name}" if ranks > 1 else where.name
    yield Line("speed", "steps trained", samples, "1/s", f"{who} at {share:.3g} of its peak")
    update = learner.batch_trajectories * one.episode_steps / samples
    yield Line("speed", "an update", update, "s", f"{learner.batch_trajectories} trajectories")
    is_vllm = config.inference.engine.kind == "vllm"
    width = config.inference.vllm.tensor_parallel_size if is_vllm else 1  # as if communication cost nothing
    flops *= width
    prefill = one.prefill_flops(is_vllm) / flops
    bandwidth, length = where.bandwidth * BANDWIDTH * width, "the full length"
    if where.is_gpu and not is_vllm:
        each = LAUNCHES + (ADAPTER_LAUNCHES if one.is_lora else 0.0)
        token = one.shape.text.layers * each + one.token_bytes(slots, one.sequence, True) / bandwidth
    else:
        context = one.asked_before((one.steps - 1.0) / 2.0) + one.completion
        computed = 2.0 * slots * one.shape.num_active / flops
        token = max(one.token_bytes(slots, context, False) / bandwidth, computed)
        length = "the mean length" if one.goes_on else length
    yield Line("speed", "tokens sampled", slots / token, "1/s", f"one server, {slots} slots, at {length}")
    acting = slots / (slots * prefill + one.completion * token)
    cached = "only new prompt tokens computed" if one.goes_on and is_vllm else "nothing cached"
    yield Line("speed", "actions", acting, "1/s", f"one server, {one.completion} tokens each, {cached}")
    yield Line("network", "a version", one.published_bytes, "B", "to each server")


def verdict(config: Config, where: Hardware, lines: list[Line]) -> Line:
    """Whether the learner (of several ranks one) and the inference servers have room on one GPU."""
    found = {(line.process, line.what): line.value for line in lines}
    parts: dict[str, float] = {}
    if not config.learner.device.startswith("cpu"):
        parts["learner"] = found["learner", "device memory"]
    if not config.policy.device.startswith("cpu"):
        server = found["inference", "device memory"]
        if config.inference.engine.kind == "vllm":  # takes a share of the GPU whatever it needs
            vllm = config.inference.vllm
            weights = found["inference", "weights"] / vllm.tensor_parallel_size
            share = vllm.gpu_memory_utilization * where.memory
            cache = share if vllm.kv_cache_gb is None else weights + vllm.kv_cache_gb * 2**30
            server = max(weights, min(share, cache))
        for i in range(config.num_servers):
            parts[f"inference-{i}"] = server
    total = sum(parts.values())
    said = " + ".join(f"{name} {shown(value, 'B')}" for name, value in parts.items())
    if config.local.gpus == "colocated" and len(parts) == 2:  # they take turns
        kept = sum(found["learner", what] for what in KEPT)
        total = max(parts["learner"], kept + parts["inference-0"])
        said += f", in turns; between updates the learner keeps {shown(kept, 'B')}"
    if total <= where.memory * (1 - SPARE):
        said += ": fits"
    elif total <= where.memory:
        said += ": fits barely: buffers and fragmentation are not counted"
    else:
        alone = ", ".join(name for name, value in parts.items() if value <= where.memory)
        said += f": does not fit; on a GPU of its own {alone or 'nothing'} would; lower "
        said += "learner.micro_batch_tokens, policy.max_prompt_tokens or inference.max_batch"
        unset = [key for key in ("gradient_checkpointing", "lora") if not getattr(config.policy, key, True)]
        said += f", or set {' or '.join(f'policy.{key}' for key in unset)}" if unset else ""
    return Line("verdict", f"one {where.name} of {shown(where.memory, 'B')}", total, "B", said)


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
    if unit == "1/s":
        return f"{value:.3g}/s"
    power = min(5, max(0, int(math.log10(value) // 3))) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {' kMGTP'[power].strip()}{unit}"
