"""A policy as `doctor --estimate` sees it, and what passes over its sequences cost.

mode history        a step is a sequence: prompt, completion
mode incremental    an episode is one: prompt, completion, question with picture, completion, question, ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrl.configs.policy import AutoUIConfig, HubConfig, PretrainedConfig, TinyConfig
from distrl.core.model_points import ImageShape, smart_resize

if TYPE_CHECKING:
    from distrl.configs.schema import Config
    from distrl.core.policies.model_shapes import ModelShape

TRAINED_WHOLE = ("image_dense.", "mha_layer.", "gate_dense.", "stem.")
"""What AutoUI trains beside adapters: the fusion and the small encoder."""
SCREEN, SIMULATED, TWO_SCREENS = (1080, 2400), (540, 1200), (320, 640)
"""Screens of a phone, of a simulated one, and of the environment two_screens."""
STEM_STRIDE = 16  # pixels of a side that become one token of the embedded policy
MAX_LOGITS = 2**26  # at a time: `distrl.core.policies.sampling`; they take 20 bytes each
QUESTION = 24  # tokens around the picture of a question in a sequence that goes on


@dataclass(frozen=True)
class Subject:
    """A policy as the formulas need it.

    Attributes:
        trained: Parameters that training changes.
        bytes_each, trained_bytes: Of a frozen parameter, and of one that is trained.
        prompt: Tokens of the prompt that begins a sequence, pictures included.
        num_pictures: In that prompt.
        picture: Tokens of a screenshot.
        max_pixels: The configuration's bound of a picture.
        goes_on: An episode is one sequence, and each later step adds `added` tokens, an answer apart.
        steps: That a sequence holds; 1 where each is a sequence of its own.
        sequences_per_episode: How many an episode has.
        has_pieces: Whether logits are made so many at a time.
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
    num_pictures: int
    picture: int
    max_pixels: int | None
    goes_on: bool
    added: int
    steps: float
    sequences_per_episode: float
    has_pieces: bool

    @property
    def sequence(self) -> int:
        """Tokens of a sequence at most: what is asked, pictures included, and what is answered."""
        return math.ceil(self.asked_before(self.steps - 1.0)) + self.completion

    @property
    def mean_context(self) -> int:
        """What an answer follows, on average over the steps."""
        return math.ceil(self.asked_before((self.steps - 1.0) / 2.0))

    @property
    def episode_steps(self) -> float:
        """Steps of an episode, as many as its sequence has room for."""
        return self.steps * self.sequences_per_episode

    @property
    def published_bytes(self) -> int:
        """A version of the weights on the wire, but for some kB of header."""
        return self.trained * self.trained_bytes

    def asked_before(self, step: float) -> float:
        """Tokens before the answer of a step of the sequence, from 0."""
        return self.prompt + step * (self.added + self.completion)


def subject(config: Config, is_gpu: bool, steps: float, screen: tuple[int, int]) -> Subject:
    """The policy of `config`, for episodes of so many steps on such a screen.

    Raises:
        PolicyError: Its model's files are not on this machine.
    """
    from distrl.core.policies.model_shapes import read_autoui, read_model

    policy, completion = config.chat_policy, config.learner.max_new_tokens
    hub = policy if isinstance(policy, HubConfig) else None
    if hub is not None:
        shape = read_model(hub.model)
    elif isinstance(policy, AutoUIConfig):
        shape = read_autoui(policy.model, policy.image_features, policy.image_size)
    else:
        shape = _built(config)
    pretrained = policy if isinstance(policy, PretrainedConfig) else None
    is_small = pretrained is None
    lora = getattr(policy, "lora", None)
    dtype = "float32" if pretrained is None else pretrained.dtype
    size = {"float32": 4, "bfloat16": 2}.get(dtype, 2 if is_gpu else 4)
    trains_tower = hub is not None and hub.train_vision if lora is None else lora.vision
    trains_vision = is_small or trains_tower
    picture = _picture_tokens(config, shape.image, screen)
    prompt, added, goes_on = policy.max_prompt_tokens, 0, config.agent.options.get("mode") == "incremental"
    if is_small:  # whose pictures are not in its prompts
        prompt += picture
    if hub is not None:
        prompt = min(prompt, max(1, hub.max_context_tokens - completion))
    steps_each = 1.0
    if goes_on:
        added = picture + QUESTION
        room = (hub.max_context_tokens if hub is not None else prompt) - prompt - completion
        steps_each = max(1.0, min(steps, 1.0 + room // (added + completion)))
    return Subject(
        shape=shape,
        trained=_num_trained(config, shape, trains_vision),
        bytes_each=size,
        trained_bytes=4 if lora is not None else size,
        is_lora=lora is not None,
        trains_vision=trains_vision,
        recomputes=pretrained is not None and pretrained.gradient_checkpointing,
        prompt=prompt,
        completion=completion,
        num_pictures=1 if goes_on else int(config.agent.options.get("images", 1)),
        picture=picture,
        max_pixels=hub.max_pixels if hub is not None else None,
        goes_on=goes_on,
        added=added,
        steps=steps_each,
        sequences_per_episode=1.0 if goes_on else steps,
        has_pieces=not is_small,
    )


def _num_trained(config: Config, shape: ModelShape, trains_vision: bool) -> int:
    from distrl.core.policies.model_shapes import count

    lora = getattr(config.policy, "lora", None)
    if lora is None:
        return shape.num_parameters - (0 if trains_vision else shape.num_vision)
    trained: int = shape.num_lora(lora.rank, lora.targets, trains_vision)
    if isinstance(config.policy, AutoUIConfig):
        trained += count({n: x for n, x in shape.shapes.items() if n.startswith(TRAINED_WHOLE)})
    return trained


def _picture_tokens(config: Config, image: ImageShape, screen: tuple[int, int]) -> int:
    """Tokens of a screenshot of that size."""
    if image.is_fixed:
        return image.num_tokens()
    factor = image.patch * image.merge
    hub = config.policy if isinstance(config.policy, HubConfig) else None
    most = (hub and hub.max_pixels) or image.max_pixels
    least = min(most, (hub and hub.min_pixels) or image.min_pixels)
    width, height = smart_resize(*screen, factor, least, most)
    return (width // factor) * (height // factor)


def _built(config: Config) -> ModelShape:
    """A policy that needs no files is small: it is built and counted."""
    from distrl.core.policies import build_policy
    from distrl.core.policies.model_shapes import ModelShape, TextShape, parameter_shapes
    from distrl.evaluator.suites import vocabulary

    plain = config.chat_policy.model_copy(update={"lora": None} if hasattr(config.policy, "lora") else {})
    policy = build_policy(plain, vocabulary(config.tasks.suite), config.seed)
    sizes = plain if isinstance(plain, TinyConfig) else TinyConfig()
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
    return ModelShape(parameter_shapes(policy), text, image)


def screen_of(config: Config) -> tuple[int, int]:
    """Width and height of a screenshot, as far as the configuration says it."""
    drawn = {"phone": SIMULATED, "two_screens": TWO_SCREENS}
    env = config.env
    if env.kind not in drawn or env.import_path is not None or config.devices.pool:
        return SCREEN
    width, height = drawn[env.kind]
    return int(env.options.get("width", width)), int(env.options.get("height", height))


def activation_bytes(one: Subject, tokens: int) -> float:
    """What a training pass keeps of so many tokens until their gradients are taken."""
    text, size = one.shape.text, one.bytes_each
    inner = 5 * text.hidden + 2 * (text.heads + text.kv_heads) * text.head_dim + 4 * text.intermediate
    if one.recomputes:
        return float(size * tokens * (text.layers * text.hidden + inner))
    return float(size * tokens * text.layers * inner)


def logit_bytes(one: Subject, completions: int) -> float:
    """Logits, their log-probabilities, and the gradients of both, for the tokens of completions.

    Policies of the hub make them in pieces.
    """
    needed = completions * (one.completion + 1) * one.shape.text.vocabulary * float(one.bytes_each * 2 + 8)
    return min(needed, 20.0 * MAX_LOGITS) if one.has_pieces else needed


def cache_bytes(one: Subject, tokens: int) -> float:
    """Keys and values of so many tokens."""
    text = one.shape.text
    return 2.0 * text.layers * text.kv_heads * text.head_dim * one.bytes_each * tokens


def forward_flops(one: Subject, tokens: float, pictures: float) -> tuple[float, float]:
    """FLOP of a pass over a sequence of `tokens`, in the language model and for its pictures."""
    shape, text = one.shape, one.shape.text
    embedded = text.vocabulary * text.hidden  # looked up, not multiplied
    dense = 2.0 * (shape.num_parameters - shape.num_vision - embedded) * tokens
    attention = 2.0 * tokens**2 * text.heads * text.head_dim * text.layers
    patches = one.picture * shape.image.merge**2
    return dense + attention, 2.0 * shape.num_vision * patches * pictures


def training_flops(one: Subject) -> float:
    """FLOP of one sequence's forward and backward pass."""
    text, vision = forward_flops(one, one.sequence, one.num_pictures + one.steps - 1.0)
    backward = 1.0 if one.is_lora else 2.0
    factor = 1.0 + backward + one.recomputes
    return factor * text + (factor if one.trains_vision else 1.0) * vision


def prefill_flops(one: Subject, is_cached: bool) -> float:
    """FLOP that it takes to read what a step's answer follows; the mean over the steps.

    Args:
        is_cached: Keys and values of earlier steps of the sequence are still there.
    """
    if is_cached and one.goes_on:
        return sum(forward_flops(one, one.sequence, one.num_pictures + one.steps - 1.0)) / one.steps
    count = math.ceil(one.steps)
    steps = [sum(forward_flops(one, one.asked_before(n), one.num_pictures + n)) for n in range(count)]
    return sum(steps) / count
