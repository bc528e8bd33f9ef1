"""Which tensors a hub model has, read from its files: no torch, and no weights are loaded.

From the headers of its safetensors files where they are there, which is exact for every model; else from its
config.json, for the families whose layers are known here (Qwen2-VL, Qwen2.5-VL, Qwen3-VL, LLaVA with CLIP and
Llama). Of the first two it is flat in the hub: the language model's sizes stand beside `vision_config`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import PolicyError
from distrl.core.hub_cache import cached, hub_cache
from distrl.core.lora_targets import default_targets

Shapes = Mapping[str, tuple[int, ...]]
"""The size of each tensor, by its name."""
VISION = re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector)\.")
_MAX_HEADER_BYTES = 100 * 2**20


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


@dataclass(frozen=True)
class ImageShape:
    """How a picture becomes tokens.

    Attributes:
        patch: Pixels of a side of a patch.
        merge: Patches of a side that become one token.
        min_pixels, max_pixels: The processor's bounds of width times height.
        is_fixed: All pictures are resized to the same size.
    """

    patch: int
    merge: int
    max_pixels: int
    is_fixed: bool
    min_pixels: int = 1

    def num_tokens(self, max_pixels: int | None = None) -> int:
        """Tokens of the largest picture."""
        pixels = self.max_pixels if self.is_fixed or max_pixels is None else max_pixels
        return max(1, pixels // (self.patch * self.merge) ** 2)


@dataclass(frozen=True)
class ModelShape:
    """A model's tensors and sizes."""

    shapes: Shapes
    text: TextShape
    image: ImageShape

    @property
    def num_parameters(self) -> int:
        """All of them; tied ones once."""
        return count(self.shapes)

    @property
    def num_vision(self) -> int:
        """Those that read pictures, up to the language model."""
        return count({name: shape for name, shape in self.shapes.items() if VISION.search(name)})

    def num_lora(self, rank: int, targets: Collection[str] | None, vision: bool = False) -> int:
        """Parameters of adapters: r · (inputs + outputs) for each linear layer of that name in a block.

        Args:
            targets: The last parts of their names; None for `default_targets`.
            vision: Whether the layers that read pictures get some too.
        """
        layers = [
            (name.split(".")[-2], sum(shape))
            for name, shape in self.shapes.items()
            if len(shape) == 2
            and name.endswith(".weight")
            and any(part.isdigit() for part in name.split("."))
            and (vision or not VISION.search(name))
        ]
        if targets is None:
            targets = default_targets({name for name, _ in layers}, vision)
        return sum(rank * size for name, size in layers if name in targets)


def count(shapes: Shapes) -> int:
    """How many numbers they hold."""
    return sum(math.prod(shape) for shape in shapes.values())


def read_model(model: str) -> ModelShape:
    """The model in a local directory, or that of a hub id if its files are in the cache of this machine.

    Raises:
        PolicyError: Its files are not here, or its family is not known and its weights are not here.
    """
    directory = find_model(model)
    config = read_json(directory / "config.json")
    text = _text_shape(config.get("text_config", config), model)
    shapes = shapes_in(directory) or shapes_from_config(config)
    if shapes is None:
        raise PolicyError(
            f"The layers of policy.model {model!r} ({config.get('model_type')}) are not known.",
            "Download its weights, whose files say it.",
        )
    return ModelShape(shapes, text, image_shape(config, directory))


def find_model(model: str, key: str = "policy.model") -> Path:
    """Where the files of `model` are, which the configuration's `key` names.

    Raises:
        PolicyError: Not on this machine.
    """
    if (Path(model) / "config.json").is_file():
        return Path(model)
    found = cached(model)
    if found is None:
        raise PolicyError(
            f"{key} {model!r} is neither a directory nor in the hub's cache {hub_cache()}.",
            f"Run `hf download {model} config.json preprocessor_config.json`; weights are not needed.",
        )
    return found


def shapes_in(directory: Path) -> dict[str, tuple[int, ...]] | None:
    """The tensors of the safetensors files in `directory`; None if there are none, or not all."""
    files = sorted(directory.glob("*.safetensors"))
    index = directory / "model.safetensors.index.json"
    if index.is_file() and set(read_json(index)["weight_map"].values()) - {file.name for file in files}:
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > _MAX_HEADER_BYTES:
                raise PolicyError(f"{file} is no safetensors file.", "Download it again.")
            header = json.loads(opened.read(size))
        header.pop("__metadata__", None)
        shapes |= {name: tuple(entry["shape"]) for name, entry in header.items()}
    return shapes or None


def shapes_from_config(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """The tensors of a model with this config.json; None if its family is not known here."""
    kind, text = config.get("model_type"), config.get("text_config", config)
    vision = config.get("vision_config", {})
    if kind not in _FAMILIES:
        return None
    language, tower = _FAMILIES[kind]
    if "text_config" in config and text.get("model_type", language) != language:
        return None
    if kind == "llava" and vision.get("model_type") != "clip_vision_model":
        return None
    shapes = _decoder(text, has_bias=kind in ("qwen2_vl", "qwen2_5_vl"), has_head_norms=kind == "qwen3_vl")
    is_tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    if not is_tied:
        shapes["lm_head.weight"] = (text["vocab_size"], text["hidden_size"])
    return shapes | tower(vision, text["hidden_size"])


def _decoder(text: Mapping[str, Any], has_bias: bool, has_head_norms: bool) -> dict[str, tuple[int, ...]]:
    one = _text_shape(text, "")
    hidden, queries, keys = one.hidden, one.heads * one.head_dim, one.kv_heads * one.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.language_model.embed_tokens.weight": (one.vocabulary, hidden),
        "model.language_model.norm.weight": (hidden,),
    }
    for number in range(one.layers):
        layer: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (queries, hidden),
            "self_attn.k_proj.weight": (keys, hidden),
            "self_attn.v_proj.weight": (keys, hidden),
            "self_attn.o_proj.weight": (hidden, queries),
            "mlp.gate_proj.weight": (one.intermediate, hidden),
            "mlp.up_proj.weight": (one.intermediate, hidden),
            "mlp.down_proj.weight": (hidden, one.intermediate),
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        if has_bias:
            layer |= {f"self_attn.{name}_proj.bias": (queries if name == "q" else keys,) for name in "qkv"}
        if has_head_norms:
            layer |= {f"self_attn.{name}_norm.weight": (one.head_dim,) for name in "qk"}
        shapes |= {f"model.language_model.layers.{number}.{name}": shape for name, shape in layer.items()}
    return shapes


def _linear(name: str, inputs: int, outputs: int, has_bias: bool = True) -> dict[str, tuple[int, ...]]:
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": (outputs, inputs)}
    return weight | ({f"{name}.bias": (outputs,)} if has_bias else {})


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def _qwen2_vision(vision: Mapping[str, Any], width: int) -> dict[str, tuple[int, ...]]:
    hidden, patch, times = vision["embed_dim"], vision["patch_size"], vision.get("temporal_patch_size", 2)
    inner, merged = int(hidden * vision["mlp_ratio"]), hidden * vision.get("spatial_merge_size", 2) ** 2
    shapes: dict[str, tuple[int, ...]] = {"patch_embed.proj.weight": (hidden, 3, times, patch, patch)}
    for number in range(vision["depth"]):
        block = _norm("norm1", hidden) | _norm("norm2", hidden)
        block |= _linear("attn.qkv", hidden, 3 * hidden) | _linear("attn.proj", hidden, hidden)
        block |= _linear("mlp.fc1", hidden, inner) | _linear("mlp.fc2", inner, hidden)
        shapes |= {f"blocks.{number}.{name}": shape for name, shape in block.items()}
    shapes |= _norm("merger.ln_q", hidden)
    shapes |= _linear("merger.mlp.0", merged, merged)
    shapes |= _linear("merger.mlp.2", merged, vision.get("hidden_size", width))  # what it gives, not its own
    return {f"model.visual.{name}": shape for name, shape in shapes.items()}


def _qwen2_5_vision(vision: Mapping[str, Any], width: int) -> dict[str, tuple[int, ...]]:
    hidden, inner = vision["hidden_size"], vision["intermediate_size"]
    patch, times = vision["patch_size"], vision.get("temporal_patch_size", 2)
    merged = hidden * vision.get("spatial_merge_size", 2) ** 2
    shapes: dict[str, tuple[int, ...]] = {"patch_embed.proj.weight": (hidden, 3, times, patch, patch)}
    for number in range(vision["depth"]):
        block: dict[str, tuple[int, ...]] = {"norm1.weight": (hidden,), "norm2.weight": (hidden,)}
        block |= _linear("attn.qkv", hidden, 3 * hidden) | _linear("attn.proj", hidden, hidden)
        block |= _linear("mlp.gate_proj", hidden, inner) | _linear("mlp.up_proj", hidden, inner)
        block |= _linear("mlp.down_proj", inner, hidden)
        shapes |= {f"blocks.{number}.{name}": shape for name, shape in block.items()}
    shapes |= {"merger.ln_q.weight": (hidden,)}
    shapes |= _linear("merger.mlp.0", merged, merged)
    shapes |= _linear("merger.mlp.2", merged, vision.get("out_hidden_size", width))
    return {f"model.visual.{name}": shape for name, shape in shapes.items()}


def _qwen3_vision(vision: Mapping[str, Any], width: int) -> dict[str, tuple[int, ...]]:
    hidden, inner = vision["hidden_size"], vision["intermediate_size"]
    patch, times = vision["patch_size"], vision.get("temporal_patch_size", 2)
    merged, out = hidden * vision.get("spatial_merge_size", 2) ** 2, vision.get("out_hidden_size", width)
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (hidden, 3, times, patch, patch),
        "patch_embed.proj.bias": (hidden,),
        "pos_embed.weight": (vision["num_position_embeddings"], hidden),
    }
    for number in range(vision["depth"]):
        block = _norm("norm1", hidden) | _norm("norm2", hidden)
        block |= _linear("attn.qkv", hidden, 3 * hidden) | _linear("attn.proj", hidden, hidden)
        block |= _linear("mlp.linear_fc1", hidden, inner) | _linear("mlp.linear_fc2", inner, hidden)
        shapes |= {f"blocks.{number}.{name}": shape for name, shape in block.items()}
    mergers = {"merger": hidden}
    deep = vision.get("deepstack_visual_indexes", ())
    mergers |= {f"deepstack_merger_list.{number}": merged for number in range(len(deep))}
    for name, normed in mergers.items():
        shapes |= _norm(f"{name}.norm", normed) | _linear(f"{name}.linear_fc1", merged, merged)
        shapes |= _linear(f"{name}.linear_fc2", merged, out)
    return {f"model.visual.{name}": shape for name, shape in shapes.items()}


def _clip_vision(vision: Mapping[str, Any], width: int) -> dict[str, tuple[int, ...]]:
    hidden, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    positions = (vision["image_size"] // patch) ** 2 + 1
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.class_embedding": (hidden,),
        "embeddings.patch_embedding.weight": (hidden, 3, patch, patch),
        "embeddings.position_embedding.weight": (positions, hidden),
    }
    shapes |= _norm("pre_layrnorm", hidden) | _norm("post_layernorm", hidden)
    for number in range(vision["num_hidden_layers"]):
        layer = _norm("layer_norm1", hidden) | _norm("layer_norm2", hidden)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            layer |= _linear(f"self_attn.{name}", hidden, hidden)
        layer |= _linear("mlp.fc1", hidden, inner) | _linear("mlp.fc2", inner, hidden)
        shapes |= {f"encoder.layers.{number}.{name}": shape for name, shape in layer.items()}
    tower = {f"model.vision_tower.{name}": shape for name, shape in shapes.items()}
    return (
        tower
        | _linear("model.multi_modal_projector.linear_1", hidden, width)
        | _linear("model.multi_modal_projector.linear_2", width, width)
    )


_FAMILIES: dict[str, tuple[str, Callable[[Mapping[str, Any], int], dict[str, tuple[int, ...]]]]] = {
    "qwen2_vl": ("qwen2_vl_text", _qwen2_vision),
    "qwen2_5_vl": ("qwen2_5_vl_text", _qwen2_5_vision),
    "qwen3_vl": ("qwen3_vl_text", _qwen3_vision),
    "llava": ("llama", _clip_vision),
}
"""model_type → that of its language model, where `text_config` is a section, and what reads its pictures."""


def _text_shape(text: Mapping[str, Any], model: str) -> TextShape:
    try:
        heads = int(text["num_attention_heads"])
        return TextShape(
            hidden=int(text["hidden_size"]),
            layers=int(text["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_dim=int(text.get("head_dim") or text["hidden_size"] // heads),
            intermediate=int(text["intermediate_size"]),
            vocabulary=int(text["vocab_size"]),
        )
    except KeyError as error:
        raise PolicyError(
            f"The config.json of policy.model {model!r} has no {error}.", "Choose a decoder of language."
        ) from error


def image_shape(config: Mapping[str, Any], directory: Path) -> ImageShape:
    """How the model in `directory` reads pictures, by its config.json and its processor's file."""
    vision = config.get("vision_config", {})
    file = directory / "preprocessor_config.json"
    processor = read_json(file) if file.is_file() else {}
    patch = int(processor.get("patch_size") or vision.get("patch_size") or 14)
    merge = processor.get("merge_size") or vision.get("spatial_merge_size")
    if merge is None:
        side = int(vision.get("image_size") or 336)
        return ImageShape(patch, 1, side * side, is_fixed=True)
    size = processor.get("size") or {}
    bound = processor.get("max_pixels") or size.get("longest_edge") or 12_845_056  # Qwen2-VL's own default
    least = processor.get("min_pixels") or size.get("shortest_edge") or 3136
    return ImageShape(patch, int(merge), int(bound), is_fixed=False, min_pixels=int(least))


def read_json(file: Path) -> dict[str, Any]:
    """The map in a JSON file.

    Raises:
        PolicyError: It cannot be read, or is no map.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyError(f"{file} cannot be read: {error}.", "Download it again.") from error
    if not isinstance(found, dict):
        raise PolicyError(f"{file} is no map.", "Download it again.")
    return found
