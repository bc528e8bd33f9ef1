"""The section `policy`: what acts and is trained. One section for each kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from distrl.configs.section import Count, Fraction, Positive, Section, one_of

GridSize = Annotated[int, Field(ge=1, le=48)]
AsTuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""YAML has no tuples; needed below `one_of`, after which pydantic no longer sees that a list is JSON's."""
Size = Annotated[tuple[Count, Count], AsTuple]


class LoraConfig(Section):
    """Low-rank adapters by PEFT.

    `targets` are names of linear layers, as the model calls them; by default, those of attention and
    feed-forward layers. `rank`, `alpha` and `dropout` are PEFT's. Adapters are in the language model; with
    `vision` in the vision tower of a hub model too, which vLLM does not serve.
    """

    rank: Count = 8
    alpha: Positive = 16.0
    dropout: Fraction = 0.0
    targets: Annotated[list[str], Field(min_length=1)] | None = None
    vision: bool = False


class ChatPolicyConfig(Section):
    """Common keys of policies that read chats and screenshots.

    `device` is that of inference servers. `max_prompt_tokens` limits a prompt that begins a token sequence.
    `critic` reads the policy's states: `attention` over all states of a prompt, or as `head` only the last
    one, which has seen the others.
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

    It reads pictures of `image_size`, (width, height), and taps on a `grid` of (columns, rows). With
    `grammar` every action that it samples is well-formed, except for empty texts. Its encoder has
    `num_layers`, its decoder as many or `num_decoder_layers`, each of width `d_model`, with `num_heads` and
    `d_ff`. The words of the suite's goals and `extra_words` are tokens; others are spelled.
    """

    kind: Literal["tiny"] = "tiny"
    image_size: Size = (72, 160)
    grid: Annotated[tuple[GridSize, GridSize], AsTuple] = (12, 24)
    grammar: bool = True
    d_model: Count = 96
    num_layers: Count = 2
    num_decoder_layers: Count | None = None
    num_heads: Count = 4
    d_ff: Count = 192
    extra_words: list[str] = []
    lora: LoraConfig | None = None


class PretrainedConfig(ChatPolicyConfig):
    """Common keys of models that are loaded with transformers.

    `model` is a hub ID or a local directory. `dtype` auto is bfloat16 on a GPU and float32 elsewhere;
    adapters are always float32. Without `lora` the whole language model is trained. With
    `gradient_checkpointing` training computes each layer twice instead of storing its activations.
    """

    model: Annotated[str, Field(min_length=1)]
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    lora: LoraConfig | None = None
    gradient_checkpointing: bool = False


class HubConfig(PretrainedConfig):
    """A vision-language model of the hub.

    Its own processor resizes pictures. For processors that keep the aspect ratio (Qwen-VL), `min_pixels` and
    `max_pixels` limit width times height, and so the tokens of a picture; null is the processor's own limit.

    Without `lora`, `train_vision` trains the vision tower too. `attention` is transformers' name of an
    implementation. `max_context_tokens` limits a whole sequence with its answers: of one step, or of an
    episode that is one sequence; an episode whose next answer does not fit ends as at its step limit.

    `slim_vocabulary` crops the output layer to the tokens of these texts and the end of a turn, for models
    whose actions are a fixed set of tokens. Empty keeps the whole vocabulary.
    """

    kind: Literal["hub"] = "hub"
    min_pixels: Count | None = None
    max_pixels: Count | None = None
    train_vision: bool = False
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    max_context_tokens: Count = 16_384
    slim_vocabulary: list[str] = []


class AutoUIConfig(PretrainedConfig):
    """A T5 with AutoUI's fusion of image features.

    It reads screenshots by the frozen vision tower of the BLIP-2 that `image_features` names; if null, by a
    small encoder that is trained with it and reads pictures of `image_size`. It attends to the newest
    `attended_images` of those in a prompt.
    """

    kind: Literal["autoui"] = "autoui"
    image_features: str | None = None
    attended_images: Annotated[int, Field(ge=1, le=16)] = 1
    image_size: Size = (72, 160)

    @model_validator(mode="after")
    def _lora_is_in_the_language_model(self) -> AutoUIConfig:
        if self.lora is not None and self.lora.vision:
            raise ValueError("lora.vision is for kind hub, because BLIP-2 stays frozen; remove it")
        return self


class GaussianConfig(Section):
    """The policy of continuous control (docs/environments.md).

    `hidden` are the widths of the hidden layers of actor and critic, which share nothing, and `activation`
    their activation. `log_std` is the initial logarithm of the standard deviation, which does not depend on
    the state.
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
    """A policy of your own (docs/extending.md): `import_path` names its class, which finds `options` here."""

    kind: Literal["custom"] = "custom"
    import_path: str
    options: dict[str, Any] = {}


ChatPolicy = TinyConfig | HubConfig | AutoUIConfig | CustomPolicyConfig
PolicyConfig = Annotated[ChatPolicy | GaussianConfig, Field(discriminator="kind"), one_of("tiny")]


def policy_config(**keys: Any) -> Any:
    """The section of a policy from its keys.

    Raises:
        ValueError: One is wrong.
    """
    return TypeAdapter(PolicyConfig).validate_python(keys)
