"""The section `policy`: what acts and is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from distrl.configs.section import Count, Fraction, Positive, Section

GridSize = Annotated[int, Field(ge=1, le=48)]


class LoraConfig(Section):
    """Low-rank adapters by PEFT.

    `targets` are names of linear layers, as the model calls them; not given, those of attention and
    feed-forward layers. They are looked for in the language model; with `vision` in the vision tower too,
    which vLLM does not serve.
    """

    rank: Count = 8
    alpha: Positive = 16.0
    dropout: Fraction = 0.0
    targets: Annotated[list[str], Field(min_length=1)] | None = None
    vision: bool = False


class GaussianConfig(Section):
    """The policy of continuous control: widths of the hidden layers of actor and critic, which share nothing,
    and the start of the logarithm of the standard deviation, which does not depend on the state."""

    hidden: Annotated[list[Count], Field(max_length=8)] = [64, 64]
    activation: Literal["tanh", "relu"] = "tanh"
    log_std: Annotated[float, Field(ge=-10.0, le=2.0)] = 0.0


class PolicyConfig(Section):
    """The policy.

    `kind: tiny` is the embedded vision-language model, trained from scratch; `kind: hub` loads `model` (a hub
    id or a local directory) with transformers; `kind: autoui` loads it as a T5 with AutoUI's fusion of image
    features; `kind: gaussian` is for continuous control and has all its keys in the
    section `gaussian`.

    AutoUI's policy reads screenshots by the frozen vision tower of the BLIP-2 that `image_features` names;
    without, by a small encoder that is trained with it and reads pictures of `image_size`. Its attention goes
    to the newest `attended_images` of those that a prompt shows.

    The embedded policy reads pictures of `image_size`, (width, height). A hub model reads them as its own
    processor gives them; where that keeps their shape (Qwen-VL), `min_pixels` and `max_pixels` bound width
    times height and thereby how many tokens a picture takes. Not given, the processor's own bounds hold.

    Of hub models: `dtype` auto is bfloat16 on a GPU and float32 elsewhere; adapters are float32 always.
    `attention` is transformers' name of an implementation. `gradient_checkpointing` computes each layer twice
    in training instead of keeping what is in it. Without `lora` the language model is trained, and what
    reads pictures with `train_vision`.

    `critic` reads the policy's states: `attention` over all of a prompt's, or as `head` only the last one's,
    which has seen the others.

    `grid` is the embedded policy's tap grid, (columns, rows). `grammar`: it can sample no ill-formed action
    but an empty text. `num_layers` are its encoder's; its decoder has as many, or `num_decoder_layers`.

    `max_prompt_tokens` bounds a prompt that begins a token sequence, `max_context_tokens` (hub models) a
    whole sequence with its answers: of one step, or of an episode whose chats go on with one. An answer gets
    what is left; an episode whose next answer has no room ends as at its step limit.

    `slim_vocabulary` crops a hub model's output layer to the tokens of these texts and the end of a turn, for
    models whose actions are a fixed set of tokens. Empty keeps the whole vocabulary.
    """

    kind: str = "tiny"
    import_path: str | None = None
    model: str | None = None
    image_features: str | None = None
    attended_images: Annotated[int, Field(ge=1, le=16)] = 1
    image_size: tuple[Count, Count] = (72, 160)
    min_pixels: Count | None = None
    max_pixels: Count | None = None
    grid: tuple[GridSize, GridSize] = (12, 24)
    grammar: bool = True
    d_model: Count = 96
    num_layers: Count = 2
    num_decoder_layers: Count | None = None
    num_heads: Count = 4
    d_ff: Count = 192
    lora: LoraConfig | None = None
    train_vision: bool = False
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    gradient_checkpointing: bool = False
    critic: Literal["attention", "head"] = "attention"
    slim_vocabulary: list[str] = []
    max_prompt_tokens: Count = 96
    max_context_tokens: Count = 16_384
    extra_words: list[str] = []
    device: str = "auto"
    gaussian: GaussianConfig = GaussianConfig()

    @model_validator(mode="after")
    def _hub_needs_a_model(self) -> PolicyConfig:
        if self.kind in ("hub", "autoui") and not self.model:
            raise ValueError(f"kind {self.kind!r} needs `model`, a hub id or a local directory")
        return self

    @model_validator(mode="after")
    def _autoui_has_eyes_of_its_own(self) -> PolicyConfig:
        if self.import_path is not None:
            return self
        if self.kind != "autoui":
            for name in ("image_features", "attended_images"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is for kind 'autoui'; leave it out with kind {self.kind!r}")
            return self
        if self.image_features and self.image_size != type(self).model_fields["image_size"].default:
            raise ValueError("image_size is for the small encoder; image_features reads by its own processor")
        refused = {
            "min_pixels": "autoui's pictures have one fixed size",
            "max_pixels": "autoui's pictures have one fixed size",
            "train_vision": "BLIP-2 stays as it is, and the small encoder is always trained",
            "slim_vocabulary": "autoui writes with T5's whole vocabulary",
        }
        for name, why in refused.items():
            if getattr(self, name):
                raise ValueError(f"{name} is for hub models: {why}; leave it out")
        if self.lora is not None and self.lora.vision:
            raise ValueError("lora.vision is for hub models: BLIP-2 stays as it is; leave it out")
        return self

    def check_engine(self, engine: str) -> None:
        """That an inference engine can serve this policy.

        Raises:
            ValueError: It cannot.
        """
        if engine == "vllm" and self.lora is not None and self.lora.vision:
            raise ValueError(
                "policy.lora.vision puts adapters into the vision tower, which vLLM does not serve; set it "
                "to false or inference.engine to 'hf'"
            )

    @model_validator(mode="after")
    def _pictures_have_one_rule(self) -> PolicyConfig:
        if (
            self.import_path is None
            and self.kind == "hub"
            and self.image_size != type(self).model_fields["image_size"].default
        ):
            raise ValueError(
                "image_size is for the embedded policy; a hub model reads pictures by its own processor, "
                "bounded by min_pixels and max_pixels"
            )
        if self.import_path is None and self.kind == "tiny" and (self.min_pixels or self.max_pixels):
            raise ValueError(
                "min_pixels and max_pixels are for hub models; the embedded policy has image_size"
            )
        return self

    @model_validator(mode="after")
    def _the_embedded_policy_is_slim(self) -> PolicyConfig:
        if self.slim_vocabulary and self.kind == "tiny" and self.import_path is None:
            raise ValueError("slim_vocabulary is for hub models; the embedded policy has its own few tokens")
        return self
