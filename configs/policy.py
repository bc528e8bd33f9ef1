"""The section `policy`: what acts and is trained. One section for each kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from distrl.configs.section import Count, NonNegative, Positive, Section, one_of

GridSize = Annotated[int, Field(ge=1, le=48)]
AsTuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""YAML has no tuples; needed below `one_of`, after which pydantic no longer sees that a list is JSON's."""
Size = Annotated[tuple[Count, Count], AsTuple]


class LoraConfig(Section):
    """Low-rank adapters by PEFT, in the language model.

    `rank` is the rank of the adapters. `alpha` is PEFT's `lora_alpha`, which scales them by alpha / rank.
    There is no dropout, because it would falsify importance ratios. `targets` lists the linear layers that
    have adapters, by their names in the model; null means those of attention, linear attention and
    feed-forward layers. `vision` also puts adapters into the vision tower of a hub model, and `experts` into
    the experts of a mixture; vLLM serves neither.
    """

    rank: Count = 8
    alpha: Positive = 16.0
    targets: Annotated[list[str], Field(min_length=1)] | None = None
    vision: bool = False
    experts: bool = False


class ChatPolicyConfig(Section):
    """Common keys of policies that read chats and screenshots.

    `device` is the torch device of inference servers; "auto" means CUDA if it is available. `critic` selects
    how the critic reads the policy's states: `attention` over all states of a prompt, or as `head` only the
    last one. `max_prompt_tokens` is the largest number of tokens in a prompt that begins a token sequence.
    """

    device: str = "auto"
    critic: Literal["attention", "head"] = "attention"
    max_prompt_tokens: Count = 96

    @property
    def title(self) -> str:
        """Name of the model or of the policy, for reports."""
        return str(getattr(self, "model", None) or getattr(self, "kind", ""))


class TinyConfig(ChatPolicyConfig):
    """The embedded vision-language model, trained from scratch.

    `image_size` is the size to which screenshots are scaled, [width, height] in pixels. `grid` is the number
    of places that can be tapped, [columns, rows]. `d_model` is the width of all layers. `num_layers` is the
    number of layers of the encoder, and `num_decoder_layers` that of the decoder, if it is another.
    `num_heads` is the number of attention heads. `d_ff` is the width of feed-forward layers.
    """

    kind: Literal["tiny"] = "tiny"
    image_size: Size = (72, 160)
    grid: Annotated[tuple[GridSize, GridSize], AsTuple] = (12, 24)
    d_model: Count = 96
    num_layers: Count = 2
    num_decoder_layers: Count | None = None
    num_heads: Count = 4
    d_ff: Count = 192
    lora: LoraConfig | None = None


class ReaderConfig(ChatPolicyConfig):
    """The policy that reads: a transformer over a goal's words and the elements of a screen, as text.

    `d_model` is the width of all layers, `num_layers` their number, `num_heads` the number of attention heads
    and `d_ff` the width of feed-forward layers. A token of a prompt is a byte of its text.
    """

    kind: Literal["reader"] = "reader"
    max_prompt_tokens: Count = 65_536
    d_model: Count = 64
    num_layers: Count = 2
    num_heads: Count = 4
    d_ff: Count = 128


class ArmConfig(ChatPolicyConfig):
    """The embedded policy of robot arms: a convolutional network that writes all numbers of a motion at once.

    `image_size` is the size to which pictures are scaled, [width, height] in pixels. `channels` is the number
    of channels of the convolutions, and `d_model` the width of the layers after them. `chunk`, `axes` and
    `bins` are the shape of a motion, and `picture` selects whether prompts have a picture; null means the
    value of the agent `arm`. `world` is the number of networks that predict what a motion does; null means
    `world.ensemble` if `world.model` is learned, else 0. A token of a prompt is a byte of its text.
    """

    kind: Literal["arm"] = "arm"
    max_prompt_tokens: Count = 1024
    image_size: Size = (64, 64)
    channels: Annotated[int, Field(ge=4, multiple_of=4)] = 32
    d_model: Count = 256
    chunk: Count | None = None
    axes: Count | None = None
    bins: Annotated[int, Field(ge=2)] | None = None
    picture: bool | None = None
    world: Annotated[int, Field(ge=0, le=16)] | None = None


class PretrainedConfig(ChatPolicyConfig):
    """Common keys of models that are loaded with transformers. Without `lora` the whole language model is
    trained.

    `model` is a hub ID or a local directory. `dtype` is the type of the weights, where "auto" means bfloat16
    on a GPU and float32 elsewhere; adapters are always float32. `gradient_checkpointing` computes each layer
    twice in training instead of storing its activations, which saves memory.
    """

    model: Annotated[str, Field(min_length=1)]
    max_prompt_tokens: Count = 4096
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    lora: LoraConfig | None = None
    gradient_checkpointing: bool = False


class HubConfig(PretrainedConfig):
    """A vision-language model of the hub, with its own processor of images.

    `min_pixels` and `max_pixels` are the least and the largest width times height that an image is scaled
    to, for processors that keep the aspect ratio (Qwen-VL); null means the processor's own limits. The
    number of an image's tokens follows from them.

    `train_vision` also trains the vision tower, if there is no section `lora`. The features that a frozen
    tower computes of a picture are cached in main memory: `vision_cache_gb` is the largest size of that cache
    in each process, in GiB; null means a sixteenth of the main memory, which the learner's ranks share.
    `attention` is the implementation of attention, by its name in transformers.
    `max_context_tokens` is the largest number of tokens in a whole sequence with its answers; an episode
    whose next answer does not fit ends as at its step limit. `slim_vocabulary` lists texts whose tokens are
    then the only ones that can be sampled, for actions that are a fixed set of tokens. `own_tokens` lists
    special tokens of the model's action notation: they can be sampled, stay in texts, and are not broken in
    prompts; null means those of the agent's notation. `action_bins`, which must equal the `bins` of the agent
    `arm`, makes each number of an answer one token, in place of the least used ones of the vocabulary, as in
    OpenVLA; null means that numbers are written as text. `quantization` set to `nf4` keeps the linear
    layers of the language model in 4 bits, and adapters are trained on them (QLoRA). `template` has keyword
    arguments for the chat template, such as enable_thinking: false; templates ignore unknown ones.
    """

    kind: Literal["hub"] = "hub"
    min_pixels: Count | None = None
    max_pixels: Count | None = None
    train_vision: bool = False
    vision_cache_gb: NonNegative | None = None
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    max_context_tokens: Count = 16_384
    slim_vocabulary: list[str] = []
    own_tokens: list[str] | None = None
    action_bins: Annotated[int, Field(ge=2)] | None = None
    quantization: Literal["none", "nf4"] = "none"
    template: dict[str, Any] = {}

    @model_validator(mode="after")
    def _only_adapters_are_trained_on_four_bits(self) -> HubConfig:
        if self.quantization != "none" and (self.lora is None or self.lora.experts):
            raise ValueError(
                "quantization 'nf4' needs adapters, because 4-bit layers cannot be trained, and does not "
                "support lora.experts; set policy.lora with experts false, or quantization to 'none'"
            )
        return self


class AutoUIConfig(PretrainedConfig):
    """A T5 with AutoUI's fusion of image features.

    `image_features` is the BLIP-2 whose frozen vision tower reads screenshots, a hub ID or a local
    directory; null means a small encoder that is trained with the T5 and reads screenshots at `image_size`,
    [width, height] in pixels. `attended_images` is the number of newest images in a prompt that the model
    attends to.
    """

    kind: Literal["autoui"] = "autoui"
    image_features: str | None = None
    attended_images: Annotated[int, Field(ge=1, le=16)] = 1
    image_size: Size = (72, 160)

    @model_validator(mode="after")
    def _lora_is_in_the_language_model(self) -> AutoUIConfig:
        if self.lora is not None and (self.lora.vision or self.lora.experts):
            raise ValueError(
                "lora.vision and lora.experts need policy.kind 'hub', because BLIP-2 stays frozen and T5 has "
                "no experts; remove them"
            )
        return self


class GaussianConfig(Section):
    """The policy of continuous control (docs/environments.md).

    `hidden` lists the widths of the hidden layers of the actor and of the critic, which share nothing, and
    `activation` is their activation function. `log_std` is the initial logarithm of the standard deviation,
    which does not depend on the state.
    """

    kind: Literal["gaussian"] = "gaussian"
    hidden: Annotated[list[Count], Field(max_length=8)] = [64, 64]
    activation: Literal["tanh", "relu"] = "tanh"
    log_std: Annotated[float, Field(ge=-10.0, le=2.0)] = 0.0

    @property
    def device(self) -> str:
        """Workers act and train on the CPU."""
        return "cpu"

    @property
    def title(self) -> str:
        """Name of the policy, for reports."""
        return self.kind


class CustomPolicyConfig(ChatPolicyConfig):
    """A policy of your own (docs/extending.md). `import_path` is its class as "pkg.mod:Name"; `options` is a
    mapping that the class reads from its section.
    """

    kind: Literal["custom"] = "custom"
    import_path: str
    options: dict[str, Any] = {}


ChatPolicy = TinyConfig | ReaderConfig | ArmConfig | HubConfig | AutoUIConfig | CustomPolicyConfig
PolicyConfig = Annotated[ChatPolicy | GaussianConfig, Field(discriminator="kind"), one_of("tiny")]


def policy_config(**keys: Any) -> Any:
    """The section of a policy from its keys."""
    return TypeAdapter(PolicyConfig).validate_python(keys)
