"""What policies read of the configuration: structural types, so that core does not depend on configs."""

from __future__ import annotations

from typing import Protocol


class LoraOptions(Protocol):
    """Low-rank adapters; see `distrl.configs.schema.LoraConfig`."""

    @property
    def rank(self) -> int: ...

    @property
    def alpha(self) -> float: ...

    @property
    def dropout(self) -> float: ...

    @property
    def targets(self) -> list[str] | None: ...

    @property
    def vision(self) -> bool: ...


class PolicyOptions(Protocol):
    """The policy section; see `distrl.configs.schema.PolicyConfig`, which satisfies it."""

    @property
    def kind(self) -> str: ...

    @property
    def import_path(self) -> str | None: ...

    @property
    def model(self) -> str | None: ...

    @property
    def image_features(self) -> str | None: ...

    @property
    def attended_images(self) -> int: ...

    @property
    def image_size(self) -> tuple[int, int]: ...

    @property
    def min_pixels(self) -> int | None: ...

    @property
    def max_pixels(self) -> int | None: ...

    @property
    def dtype(self) -> str: ...

    @property
    def attention(self) -> str: ...

    @property
    def gradient_checkpointing(self) -> bool: ...

    @property
    def train_vision(self) -> bool: ...

    @property
    def grid(self) -> tuple[int, int]: ...

    @property
    def grammar(self) -> bool: ...

    @property
    def d_model(self) -> int: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def num_decoder_layers(self) -> int | None: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def d_ff(self) -> int: ...

    @property
    def lora(self) -> LoraOptions | None: ...

    @property
    def slim_vocabulary(self) -> list[str]: ...

    @property
    def max_prompt_tokens(self) -> int: ...

    @property
    def max_context_tokens(self) -> int: ...

    @property
    def extra_words(self) -> list[str]: ...

    @property
    def device(self) -> str: ...
