"""Which tensors AutoUI's policy has, from config.json alone: published weights tell nothing unread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distrl.core.errors import PolicyError
from distrl.core.model_shapes import ImageShape, ModelShape, TextShape, find_model, read_json

Shapes = dict[str, tuple[int, ...]]
T5_DEFAULTS = {"d_kv": 64, "num_heads": 8, "relative_attention_num_buckets": 32}
BLIP2_VISION_DEFAULTS = {
    "hidden_size": 1408,
    "intermediate_size": 6144,
    "num_hidden_layers": 39,
    "image_size": 224,
    "patch_size": 14,
}
STEM_CHANNELS, STEM_STRIDES = (32, 64, 128), (4, 2, 2)  # `distrl.core.policies.autoui`
TRAINED_WHOLE = ("image_dense.", "mha_layer.", "gate_dense.", "stem.")
"""What is trained beside adapters: the fusion and the small encoder."""


def read_autoui(model: str, image_features: str | None, image_size: tuple[int, int]) -> ModelShape:
    """The policy of `policy.model` and `policy.image_features`, of which config.json is on this machine.

    Args:
        image_size: (width, height) of the small encoder's pictures, for a policy without `image_features`.

    Raises:
        PolicyError: A file is not here, or of another kind of model.
    """
    config = read_json(find_model(model) / "config.json")
    if config.get("model_type") != "t5":
        raise PolicyError(
            f"policy.model {model!r} is a {config.get('model_type')}, not a T5.",
            "Set policy.kind to hub for models that chat.",
        )
    config = T5_DEFAULTS | config
    if image_features is None:
        eyes, image = _stem(image_size)
        num_features = STEM_CHANNELS[-1]
    else:
        found = read_json(find_model(image_features, "policy.image_features") / "config.json")
        vision = BLIP2_VISION_DEFAULTS | dict(found.get("vision_config") or {})
        eyes, num_features = _blip2_vision(vision), int(vision["hidden_size"])
        image = ImageShape(int(vision["patch_size"]), 1, int(vision["image_size"]) ** 2, is_fixed=True)
    shapes = _t5(config) | _fusion(int(config["d_model"]), num_features) | eyes
    return ModelShape(shapes, _text_shape(config), image)


def _text_shape(config: Mapping[str, Any]) -> TextShape:
    decoder = config.get("num_decoder_layers") or config["num_layers"]
    return TextShape(
        hidden=int(config["d_model"]),
        layers=int(config["num_layers"]) + int(decoder),
        heads=int(config["num_heads"]),
        kv_heads=int(config["num_heads"]),
        head_dim=int(config["d_kv"]),
        intermediate=int(config["d_ff"]),
        vocabulary=int(config["vocab_size"]),
    )


def _t5(config: Mapping[str, Any]) -> Shapes:
    d, inner, wide = int(config["d_model"]), config["num_heads"] * config["d_kv"], int(config["d_ff"])
    is_gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
    has_own_head = config.get("tie_word_embeddings") is False or config.get("scale_decoder_outputs") is False
    shapes: Shapes = {"shared.weight": (config["vocab_size"], d)}
    if has_own_head:
        shapes["lm_head.weight"] = (config["vocab_size"], d)
    depths = {"encoder": config["num_layers"], "decoder": config.get("num_decoder_layers")}
    for stack, depth in depths.items():
        shapes[f"{stack}.final_layer_norm.weight"] = (d,)
        bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        shapes[f"{stack}.{bias}"] = (config["relative_attention_num_buckets"], config["num_heads"])
        attentions = ["SelfAttention"] if stack == "encoder" else ["SelfAttention", "EncDecAttention"]
        for number in range(depth or config["num_layers"]):
            for place, name in enumerate([*attentions, "DenseReluDense"]):
                layer = f"{stack}.block.{number}.layer.{place}"
                shapes[f"{layer}.layer_norm.weight"] = (d,)
                if name == "DenseReluDense":
                    ins = ("wi_0", "wi_1") if is_gated else ("wi",)
                    shapes |= {f"{layer}.{name}.{one}.weight": (wide, d) for one in ins}
                    shapes[f"{layer}.{name}.wo.weight"] = (d, wide)
                else:
                    shapes |= {f"{layer}.{name}.{one}.weight": (inner, d) for one in "qkv"}
                    shapes[f"{layer}.{name}.o.weight"] = (d, inner)
    return shapes


def _fusion(d: int, num_features: int) -> Shapes:
    return {
        "image_dense.weight": (d, num_features),
        "image_dense.bias": (d,),
        "mha_layer.in_proj_weight": (3 * d, d),
        "mha_layer.in_proj_bias": (3 * d,),
        "mha_layer.out_proj.weight": (d, d),
        "mha_layer.out_proj.bias": (d,),
        "gate_dense.weight": (d, 2 * d),
        "gate_dense.bias": (d,),
    }


def _blip2_vision(vision: Mapping[str, Any]) -> Shapes:
    hidden, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    shapes: Shapes = {
        "embeddings.class_embedding": (1, 1, hidden),
        "embeddings.position_embedding": (1, (vision["image_size"] // patch) ** 2 + 1, hidden),
        "embeddings.patch_embedding.weight": (hidden, 3, patch, patch),
        "embeddings.patch_embedding.bias": (hidden,),
        "post_layernorm.weight": (hidden,),
        "post_layernorm.bias": (hidden,),
    }
    linear = {
        "self_attn.qkv": (3 * hidden, hidden),
        "self_attn.projection": (hidden, hidden),
        "mlp.fc1": (inner, hidden),
        "mlp.fc2": (hidden, inner),
    }
    for number in range(vision["num_hidden_layers"]):
        layer = f"encoder.layers.{number}"
        for name, shape in linear.items():
            shapes[f"{layer}.{name}.weight"], shapes[f"{layer}.{name}.bias"] = shape, shape[:1]
        for norm in ("layer_norm1", "layer_norm2"):
            shapes[f"{layer}.{norm}.weight"] = shapes[f"{layer}.{norm}.bias"] = (hidden,)
        if vision.get("qkv_bias") is False:
            del shapes[f"{layer}.self_attn.qkv.bias"]
    return {f"vision_model.{name}": shape for name, shape in shapes.items()}


def _stem(image_size: tuple[int, int]) -> tuple[Shapes, ImageShape]:
    """The small encoder, see `distrl.core.policies.images.ConvStem`."""
    (width, height), previous, factor = image_size, 3, 1
    shapes: Shapes = {}
    for number, (channels, stride) in enumerate(zip(STEM_CHANNELS, STEM_STRIDES, strict=True)):
        kernel = stride + 1
        shapes[f"stem.layers.{2 * number}.weight"] = (channels, previous, kernel, kernel)
        shapes[f"stem.layers.{2 * number}.bias"] = (channels,)
        previous, factor = channels, factor * stride
        width, height = -(-width // stride), -(-height // stride)
    shapes["stem.column_embedding"] = (previous, 1, width)
    shapes["stem.row_embedding"] = (previous, height, 1)
    return shapes, ImageShape(factor, 1, width * height * factor**2, is_fixed=True)
