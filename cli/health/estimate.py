"""What a configuration will cost, process by process: memory, disk, network, and about how fast it goes.

Every number is an estimate but those of parameters, which are exact. docs/performance.md has the formulas and
where they are from; `how` of each line says what was put in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrl.core.autoui_shapes import TRAINED_WHOLE, read_autoui
from distrl.core.model_shapes import ImageShape, ModelShape, TextShape, count, read_model

if TYPE_CHECKING:
    from distrl.configs.schema import Config

PEAKS: dict[str, tuple[float, float]] = {
    "H200": (989e12, 4.8e12),
    "H100 PCIe": (756e12, 2.0e12),
    "H100": (989e12, 3.35e12),
    "A100": (312e12, 2.0e12),
    "L40S": (362e12, 0.864e12),
    "L4": (121e12, 0.3e12),
    "A10": (125e12, 0.6e12),
    "RTX 4090": (165e12, 1.008e12),
    "RTX 3090": (71e12, 0.936e12),
}
"""GPU → dense bfloat16 FLOP/s and bytes/s of memory, from the makers' data sheets."""
CPU_THREAD = 3e10, 1e10  # float32 FLOP/s and bytes/s of a thread, of the order of what is measured
UTILISATION, BANDWIDTH = 0.35, 0.6  # the share of the peaks that is reached
BYTES_PER_PIXEL = {"jpeg": 0.17, "png": 0.30}  # of screenshots of a phone
SCREEN, SIMULATED = (1080, 2400), (540, 1200)  # of a phone, and of a simulated one
KEPT_VERSIONS = 3  # `distrl.learner.station.KEPT_WEIGHTS`
CRITIC_WIDTH, CRITIC_HEADS = 64, 4  # `distrl.core.policies.critic`
STEM_STRIDE = 16  # pixels of a side that become one token of the embedded policy
STEPS = 15  # of an episode, where the suite's tasks do not say it


@dataclass(frozen=True)
class Line:
    """One number.

    Attributes:
        process: "policy", "learner", "inference", "disk", "network" or "speed".
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
    """What computes: FLOP/s, bytes/s of memory, whether it is a GPU, and its name."""

    flops: float
    bandwidth: float
    is_gpu: bool
    name: str


@dataclass(frozen=True)
class Subject:
    """A policy as the formulas need it.

    Attributes:
        trained: Parameters that training changes.
        bytes_each, trained_bytes: Of a frozen parameter, and of one that is trained.
        num_pictures: In a prompt.
    """

    shape: ModelShape
    trained: int
    bytes_each: int
    trained_bytes: int
    is_lora: bool
    trains_vision: bool
    recomputes: bool
    prompt: int
    completion: int
    max_pixels: int | None
    num_pictures: int = 1

    @property
    def sequence(self) -> int:
        """Tokens of a step at most: its prompt, pictures included, and its completion."""
        return self.prompt + self.completion

    @property
    def published_bytes(self) -> int:
        """A version of the weights on the wire, but for some kB of header."""
        return self.trained * self.trained_bytes


def hardware(gpu: str | None, threads: int) -> Hardware:
    """What the name of a GPU stands for; without one, so many threads of a CPU."""
    if gpu is None:
        return Hardware(threads * CPU_THREAD[0], threads * CPU_THREAD[1], False, f"{threads} CPU threads")
    for name, (flops, bandwidth) in PEAKS.items():
        if all(part.lower() in gpu.lower() for part in name.split()):
            return Hardware(flops, bandwidth, True, name)
    return Hardware(*PEAKS["A100"], True, f"{gpu}, taken for an A100")


def subject(config: Config, is_gpu: bool) -> Subject:
    """The policy of `config`.

    Raises:
        PolicyError: Its model's files are not on this machine.
    """
    policy = config.policy
    kind = policy.kind if policy.import_path is None else None
    if kind == "hub" and policy.model is not None:
        shape = read_model(policy.model)
    elif kind == "autoui" and policy.model is not None:
        shape = read_autoui(policy.model, policy.image_features, policy.image_size)
    else:
        shape = _built(config)
    is_small = kind not in ("hub", "autoui")
    lora = policy.lora
    size = {"float32": 4, "bfloat16": 2}.get(policy.dtype, 2 if is_gpu and not is_small else 4)
    trains_vision = is_small or (policy.train_vision if lora is None else lora.vision)
    if lora is not None:
        trained = shape.num_lora(lora.rank, lora.targets, trains_vision)
        if kind == "autoui":
            trained += count({n: x for n, x in shape.shapes.items() if n.startswith(TRAINED_WHOLE)})
    else:
        trained = shape.num_parameters - (0 if trains_vision else shape.num_vision)
    # In one growing sequence the longest prompt is all of the episode but its last answer.
    goes_on = config.agent.options.get("mode") == "incremental"
    prompt = (
        policy.max_context_tokens - config.learner.max_new_tokens if goes_on else policy.max_prompt_tokens
    )
    if is_small:  # whose pictures are not in its prompts
        prompt += shape.image.num_tokens()
    return Subject(
        shape=shape,
        trained=trained,
        bytes_each=size,
        trained_bytes=4 if lora is not None else size,
        is_lora=lora is not None,
        trains_vision=trains_vision,
        recomputes=policy.gradient_checkpointing,
        prompt=prompt,
        completion=config.learner.max_new_tokens,
        max_pixels=policy.max_pixels,
    )


def _built(config: Config) -> ModelShape:
    """A policy that needs no files is small: it is built and counted."""
    from distrl.core.policies import build_policy
    from distrl.evaluator.suites import vocabulary

    policy = build_policy(
        config.policy.model_copy(update={"lora": None}), vocabulary(config.tasks.suite), config.seed
    )
    sizes = config.policy
    text = TextShape(
        hidden=sizes.d_model,
        layers=sizes.num_layers + (sizes.num_decoder_layers or sizes.num_layers),
        heads=sizes.num_heads,
        kv_heads=sizes.num_heads,
        head_dim=sizes.d_model // sizes.num_heads,
        intermediate=sizes.d_ff,
        vocabulary=policy.num_tokens,
    )
    width, height = (-(-side // STEM_STRIDE) for side in sizes.image_size)
    image = ImageShape(STEM_STRIDE, 1, width * height * STEM_STRIDE**2, is_fixed=True)
    return ModelShape({name: tuple(p.shape) for name, p in policy.named_parameters()}, text, image)


def screen_of(config: Config) -> tuple[int, int]:
    """Width and height of a screenshot, as far as the configuration says it."""
    if config.env.kind != "phone" or config.devices.pool:
        return SCREEN
    options = config.env.options
    return int(options.get("width", SIMULATED[0])), int(options.get("height", SIMULATED[1]))


def activation_bytes(one: Subject, tokens: int) -> float:
    """What a training pass keeps of so many tokens until their gradients are taken."""
    text, size = one.shape.text, one.bytes_each
    inner = 5 * text.hidden + 2 * (text.heads + text.kv_heads) * text.head_dim + 4 * text.intermediate
    if one.recomputes:
        return float(size * tokens * (text.layers * text.hidden + inner))
    return float(size * tokens * text.layers * inner)


def logit_bytes(one: Subject, completions: int) -> float:
    """Logits, their log-probabilities, and the gradients of both, for the tokens of completions."""
    return completions * (one.completion + 1) * one.shape.text.vocabulary * float(one.bytes_each * 2 + 8)


def cache_bytes(one: Subject) -> float:
    """Keys and values of one sequence."""
    text = one.shape.text
    return 2.0 * text.layers * text.kv_heads * text.head_dim * one.bytes_each * one.sequence


def forward_flops(one: Subject, tokens: int) -> tuple[float, float]:
    """FLOP of a pass over a sequence of `tokens`, in the language model and for its pictures."""
    shape, text = one.shape, one.shape.text
    embedded = text.vocabulary * text.hidden  # looked up, not multiplied
    dense = 2.0 * (shape.num_parameters - shape.num_vision - embedded) * tokens
    attention = 2.0 * tokens**2 * text.heads * text.head_dim * text.layers
    patches = shape.image.num_patches(one.max_pixels) * one.num_pictures
    return dense + attention, 2.0 * shape.num_vision * patches


def training_flops(one: Subject) -> float:
    """FLOP of one step's forward and backward pass."""
    text, vision = forward_flops(one, one.sequence)
    backward = 1.0 if one.is_lora else 2.0
    factor = 1.0 + backward + one.recomputes
    return factor * text + (factor if one.trains_vision else 1.0) * vision


def estimate(
    config: Config, where: Hardware, steps: float = STEPS, screen: tuple[int, int] = SCREEN
) -> list[Line]:
    """All lines.

    Args:
        where: What the learner and the inference servers compute on.
        steps: Of an episode.
        screen: Width and height of a screenshot in pixels.

    Raises:
        PolicyError: The model's files are not on this machine.
    """
    one = subject(config, where.is_gpu)
    return [
        *_policy(one),
        *_learner(config, one),
        *_inference(config, one),
        *_disk(config, one, steps, screen),
        *_speed(config, one, where, steps),
    ]


def _policy(one: Subject) -> Iterator[Line]:
    shape = one.shape
    yield Line("policy", "parameters", shape.num_parameters, "", is_exact=True)
    yield Line("policy", "of these for pictures", shape.num_vision, "", is_exact=True)
    what = "LoRA" if one.is_lora else "full training"
    yield Line("policy", "trained parameters", one.trained, "", what, is_exact=True)
    tokens, bound = shape.image.num_tokens(one.max_pixels), one.max_pixels or shape.image.max_pixels
    yield Line("policy", "tokens of a screenshot, at most", tokens, "tokens", f"of {bound} pixels at most")
    yield Line("policy", "tokens of a step, at most", one.sequence, "tokens", "prompt and completion")
    yield Line("policy", "computation of a training step", training_flops(one), "FLOP", "at that length")


def _learner(config: Config, one: Subject) -> Iterator[Line]:
    learner = config.learner
    frozen = one.shape.num_parameters - (0 if one.is_lora else one.trained)
    weights = frozen * one.bytes_each + one.trained * one.trained_bytes
    optimiser = 2.0 * one.trained * one.trained_bytes
    text = one.shape.text
    critic = text.vocabulary * CRITIC_WIDTH + text.hidden * (CRITIC_WIDTH + CRITIC_HEADS)
    whole = learner.batch_trajectories * STEPS * one.sequence
    tokens = max(one.sequence, min(whole, learner.micro_batch_tokens or whole))
    completions = math.ceil(tokens / one.sequence)
    parts = {
        "weights": (weights, f"{one.bytes_each} B each"),
        "gradients": (float(one.trained * one.trained_bytes), f"{one.trained_bytes} B each"),
        "optimizer": (optimiser, "AdamW: two moments"),
        "critic": (16.0 * critic, "float32 with gradients and moments"),
        "activations": (
            activation_bytes(one, tokens),
            f"{tokens} tokens in a pass{', recomputed' if one.recomputes else ''}",
        ),
        "logits": (logit_bytes(one, completions), f"{completions} completions in a pass"),
    }
    for what, (value, how) in parts.items():
        yield Line("learner", what, value, "B", how)
    yield Line("learner", "device memory", sum(value for value, _ in parts.values()), "B", "the sum")
    published = (KEPT_VERSIONS + 1) * one.published_bytes
    yield Line(
        "learner", "memory for published weights", published, "B", f"{KEPT_VERSIONS} versions, and the next"
    )


def _inference(config: Config, one: Subject) -> Iterator[Line]:
    slots = config.inference.max_batch
    weights = one.shape.num_parameters * one.bytes_each + (
        one.trained * one.trained_bytes if one.is_lora else 0
    )
    cache = cache_bytes(one)
    yield Line("inference", "weights", weights, "B", f"{one.bytes_each} B each")
    yield Line("inference", "KV cache of a slot", cache, "B", f"{one.sequence} tokens")
    yield Line("inference", "KV cache", slots * cache, "B", f"inference.max_batch {slots} slots")
    yield Line(
        "inference", "device memory", weights + slots * cache, "B", "the sum, without temporary buffers"
    )
    copies = 2 if config.network.relay else 1
    yield Line(
        "inference", "memory for arriving weights", copies * one.published_bytes, "B", f"{copies} versions"
    )


def _disk(config: Config, one: Subject, steps: float, screen: tuple[int, int]) -> Iterator[Line]:
    kind, (width, height) = config.worker.screenshot_format, screen
    picture = width * height * BYTES_PER_PIXEL[kind]
    text = 24.0 * one.completion + 4.0 * one.prompt  # ids and log-probabilities
    per_episode = steps * (picture + text)
    how = f"{steps:.0f} steps, {kind} of {width}x{height}; never more than store.max_bytes"
    growth = min(1000 * per_episode, float(config.store.max_bytes))
    yield Line("disk", "store, per 1000 episodes", growth, "B", how)
    kept = config.learner.keep_checkpoints + 2
    size = 3.0 * one.published_bytes
    yield Line("disk", "checkpoints", kept * size, "B", f"{kept} of them: what is trained, and its moments")


def _speed(config: Config, one: Subject, where: Hardware, steps: float) -> Iterator[Line]:
    learner, slots = config.learner, config.inference.max_batch
    flops = where.flops * UTILISATION
    samples = flops / training_flops(one)
    yield Line("speed", "steps trained", samples, "1/s", f"{where.name} at {UTILISATION:.0%} of its peak")
    update = learner.batch_trajectories * steps / samples
    yield Line("speed", "an update", update, "s", f"{learner.batch_trajectories} trajectories")
    weights = one.shape.num_parameters * one.bytes_each
    prefill = sum(forward_flops(one, one.prompt)) / flops
    moved = (weights + slots * cache_bytes(one)) / (where.bandwidth * BANDWIDTH)
    computed = 2.0 * slots * (one.shape.num_parameters - one.shape.num_vision) / flops
    token = max(moved, computed)
    yield Line(
        "speed", "tokens sampled", slots / token, "1/s", f"one server, {slots} slots, at the full length"
    )
    acting = slots / (slots * prefill + one.completion * token)
    yield Line("speed", "actions", acting, "1/s", f"one server, {one.completion} tokens each, nothing cached")
    yield Line(
        "network", "a version", one.published_bytes, "B", "to each server, or to two with network.relay"
    )
    seconds = update * learner.publish_every
    rate = one.published_bytes / seconds
    yield Line("network", "weights to a server", rate, "B/s", f"a version every {seconds:.3g} s")


def as_text(line: Line) -> str:
    """The line for people."""
    label = "" if line.is_exact else "  (estimate)"
    how = f"  {line.how}" if line.how else ""
    return f"{line.process:<10} {line.what:<32} {_shown(line.value, line.unit):>12}{how}{label}"


def _shown(value: float, unit: str) -> str:
    if not unit or unit == "tokens":
        return f"{value:,.0f}"
    if unit == "s":
        return f"{value:.3g} s"
    power = min(5, max(0, int(math.log10(value) // 3))) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {' kMGTP'[power].strip()}{unit}" if unit != "1/s" else f"{value:.3g}/s"
