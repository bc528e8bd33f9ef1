"""The section `policy`: what acts and is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from distrl.configs.section import Count, Fraction, Positive, Section

GridSize = Annotated[int, Field(ge=1, le=48)]


class LoraConfig(Section):
    """Low-rank adapters by PEFT; `targets` are module-name suffixes."""

    rank: Count = 8
    alpha: Positive = 16.0
    dropout: Fraction = 0.0
    targets: list[str] = ["q", "k", "v", "o"]


class GaussianConfig(Section):
    """The policy of continuous control: widths of the hidden layers of actor and critic, which share nothing,
    and the start of the logarithm of the standard deviation, which does not depend on the state."""

    hidden: Annotated[list[Count], Field(max_length=8)] = [64, 64]
    activation: Literal["tanh", "relu"] = "tanh"
    log_std: Annotated[float, Field(ge=-10.0, le=2.0)] = 0.0


class PolicyConfig(Section):
    """The policy.

    `kind: tiny` is the embedded vision-language model, trained from scratch; `kind: hub` loads `model` (a hub
    id or a local directory) with transformers; `kind: gaussian` is for continuous control (see
    docs/control.md) and has all its keys in the section `gaussian`.

    The embedded policy reads pictures of `image_size`, (width, height). A hub model reads them as its own
    processor gives them; where that keeps their shape (Qwen-VL), `min_pixels` and `max_pixels` bound width
    times height and thereby how many tokens a picture takes. Not given, the processor's own bounds hold.

    `grid` is the embedded policy's tap grid, (columns, rows). `grammar`: it can sample no ill-formed action
    but an empty text. `num_layers` are its encoder's; its decoder has as many, or `num_decoder_layers`.

    `slim_vocabulary` crops a hub model's output layer to the tokens of these texts and the end of a turn, for
    models whose actions are a fixed set of tokens. Empty keeps the whole vocabulary.
    """

    kind: str = "tiny"
    import_path: str | None = None
    model: str | None = None
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
    slim_vocabulary: list[str] = []
    max_prompt_tokens: Count = 96
    extra_words: list[str] = []
    device: str = "auto"
    gaussian: GaussianConfig = GaussianConfig()

    @model_validator(mode="after")
    def _hub_needs_a_model(self) -> PolicyConfig:
        if self.kind == "hub" and not self.model:
            raise ValueError("kind 'hub' needs `model`, a hub id or a local directory")
        return self

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
