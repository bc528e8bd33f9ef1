"""Which tensors a model has, without its weights: built on torch's meta device from its config.json."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from distrl.core.hub_files import find_model, read_json
from distrl.core.model_points import ImageShape, image_shape
from distrl.core.policies import loading
from distrl.core.policies.adapters import default_targets, is_expert
from distrl.core.policies.base import LoraOptions

Shapes = Mapping[str, tuple[int, ...]]
"""The size of each tensor, by its name."""
VISION = re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector)\.")


@dataclass(frozen=True)
class TextShape:
    """The sizes of a decoder that a token's cost depends on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    experts: int = 0  # of each mixture, that a token uses


@dataclass(frozen=True)
class ModelShape:
    """A model's tensors and sizes."""

    shapes: Shapes
    text: TextShape
    image: ImageShape

    @property
    def num_parameters(self) -> int:
        """All parameters; tied ones once."""
        return count(self.shapes)

    @property
    def num_vision(self) -> int:
        """Parameters that read pictures, up to the language model."""
        return count({name: shape for name, shape in self.shapes.items() if VISION.search(name)})

    @property
    def num_active(self) -> int:
        """Parameters of the language model that a token uses: of its experts some."""
        idle = sum((shape[0] - self.text.experts) * math.prod(shape[1:]) for shape in self._experts)
        return self.num_parameters - self.num_vision - idle

    def num_lora(self, lora: LoraOptions) -> int:
        """Parameters of adapters: r · (inputs + outputs) for each of their linear layers and experts."""
        shapes = self._adapted(lora, lora.vision) + (self._experts if lora.experts else [])
        return sum(lora.rank * math.prod(shape[:-2]) * sum(shape[-2:]) for shape in shapes)

    @property
    def num_in_blocks(self) -> int:
        """Weights of the language model's linear layers in blocks: what NF4 keeps in 4 bits."""
        return sum(math.prod(shape) for _, shape in self._layers(vision=False))

    def lora_inputs(self, lora: LoraOptions) -> int:
        """Numbers that the adapters of linear layers in the language model read of a token."""
        return sum(shape[1] for shape in self._adapted(lora, vision=False))

    @property
    def _experts(self) -> list[tuple[int, ...]]:
        return [shape for name, shape in self.shapes.items() if is_expert(name, len(shape))]

    def _adapted(self, lora: LoraOptions, vision: bool) -> list[tuple[int, ...]]:
        layers, targets = self._layers(vision), lora.targets
        if targets is None:
            is_mixture = bool(self._experts) and not lora.experts
            targets = default_targets({name for name, _ in layers}, vision, is_mixture)
        return [shape for name, shape in layers if name in targets]

    def _layers(self, vision: bool) -> list[tuple[str, tuple[int, ...]]]:
        """The linear layers in blocks, by the last parts of their names."""
        return [
            (name.split(".")[-2], shape)
            for name, shape in self.shapes.items()
            if len(shape) == 2
            and name.endswith(".weight")
            and any(part.isdigit() for part in name.split("."))
            and (vision or not VISION.search(name))
        ]


def count(shapes: Shapes) -> int:
    """How many numbers they hold."""
    return sum(math.prod(shape) for shape in shapes.values())


def parameter_shapes(module: torch.nn.Module, prefix: str = "") -> dict[str, tuple[int, ...]]:
    """The parameters of `module`, tied ones once."""
    return {f"{prefix}{name}": tuple(parameter.shape) for name, parameter in module.named_parameters()}


def read_model(model: str) -> ModelShape:
    """The hub model in a local directory or the hub's cache, by its config files; PolicyError without."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    directory = find_model(model)
    remedy = "Choose an image-text-to-text model that transformers supports."
    with loading("policy.model", model, remedy), torch.device("meta"):
        network = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(str(directory)))
        shape = _text_shape(network.config.get_text_config())
    image = image_shape(read_json(directory / "config.json"), directory)
    return ModelShape(parameter_shapes(network), shape, image)


def _text_shape(text: Any) -> TextShape:
    heads = int(text.num_attention_heads)
    inner = getattr(text, "intermediate_size", None)
    if inner is None:  # only experts, of which a token uses some
        inner = text.moe_intermediate_size * text.num_experts_per_tok
    return TextShape(
        hidden=int(text.hidden_size),
        layers=int(text.num_hidden_layers),
        heads=heads,
        kv_heads=int(getattr(text, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(text, "head_dim", None) or text.hidden_size // heads),
        intermediate=int(max(inner) if isinstance(inner, list | tuple) else inner),
        vocabulary=int(text.vocab_size),
        experts=int(getattr(text, "num_experts_per_tok", None) or 0),
    )


def read_autoui(model: str, image_features: str | None, image_size: tuple[int, int]) -> ModelShape:
    """The policy of `policy.model` and `policy.image_features`, whose config.json are on this machine.

    Args:
        image_size: (width, height) of the small encoder's pictures, for a policy without `image_features`.

    Raises:
        PolicyError: A file is not here, or belongs to another kind of model.
    """
    from distrl.core.policies.autoui import STEM_CHANNELS, STEM_STRIDES, empty_tower
    from distrl.core.policies.autoui_model import FusedT5, empty_t5
    from distrl.core.policies.images import ConvStem

    with torch.device("meta"):
        if image_features is None:
            stem, stride = ConvStem(image_size, STEM_CHANNELS, STEM_STRIDES), math.prod(STEM_STRIDES)
            eyes, num_features = parameter_shapes(stem, "stem."), STEM_CHANNELS[-1]
            height, width = stem.row_embedding.shape[1], stem.column_embedding.shape[2]
            image = ImageShape(stride, 1, width * height * stride**2, is_fixed=True)
        else:
            directory = find_model(image_features, "policy.image_features")
            tower = empty_tower(str(directory))
            eyes, num_features = parameter_shapes(tower, "vision_model."), int(tower.config.hidden_size)
            image = ImageShape(tower.config.patch_size, 1, tower.config.image_size**2, is_fixed=True)
        t5 = empty_t5(str(find_model(model)))
        fused = parameter_shapes(FusedT5(t5, num_features))
    config = t5.config
    if not config.scale_decoder_outputs:  # these checkpoints have an output layer of their own
        fused["lm_head.weight"] = (config.vocab_size, config.d_model)
    text = TextShape(
        hidden=config.d_model,
        layers=config.num_layers + config.num_decoder_layers,
        heads=config.num_heads,
        kv_heads=config.num_heads,
        head_dim=config.d_kv,
        intermediate=config.d_ff,
        vocabulary=config.vocab_size,
    )
    return ModelShape({name.removeprefix("t5."): shape for name, shape in fused.items()} | eyes, text, image)
