"""Small random models of several families, saved to a directory as a hub would give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiny_qwen import (
    IDS,
    PICTURE,
    SPECIAL,
    TEXT,
    VISION,
    save_qwen3_vl,
    save_qwen25_vl,
    save_random,
    save_tokenizer,
    vocabulary_size,
)


def save_llava(directory: Path) -> None:
    """Pictures of 28x28 pixels, 4 tokens each."""
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    torch.manual_seed(0)
    text = LlamaConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=1,  # Llama's own would be <|im_start|>
    )
    vision = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    image = IDS["image_token_id"]
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=image)
    LlavaForConditionalGeneration(config).save_pretrained(str(directory))
    CLIPImageProcessorPil(size={"height": 28, "width": 28}, do_center_crop=False).save_pretrained(
        str(directory)
    )
    save_tokenizer(directory, SPECIAL[image])


GLM_TEXT = {**TEXT, "rope_parameters": {"rope_theta": 1e4, "mrope_section": [8, 4, 4]}}
GLM_IDS = {"image_token_id": 3, "video_token_id": 6, "image_start_token_id": 4, "image_end_token_id": 5}
GLM_EXPERTS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "head_dim": 32,
    "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2]},
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def save_glm(
    directory: Path,
    words: Sequence[str] = (),
    text: Mapping[str, Any] | None = None,
    seed: int = 0,
    sharpness: float = 1.0,
    kind: str = "glm46v",
) -> None:
    """GLM-4.6V, 4.1V or 4.5V: a token stands for 28x28 pixels, and bounds count a picture twice.

    Args: As those of `save_qwen3_vl`.
    """
    from transformers import CONFIG_MAPPING, AutoModelForImageTextToText
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

    config = CONFIG_MAPPING[kind](
        text_config={**GLM_TEXT, **(text or {}), "vocab_size": vocabulary_size(words)},
        vision_config={**VISION, "patch_size": 14, "image_size": 56},
        **GLM_IDS,
    )
    processor = Glm46VImageProcessorPil if kind == "glm46v" else Glm4vImageProcessorPil
    size = {"shortest_edge": 2 * 28 * 28, "longest_edge": 2 * 6 * 28 * 28}
    model = AutoModelForImageTextToText.from_config
    save_random(model, config, processor(size=size), directory, words, seed, sharpness)


def save_qwen2_vl(directory: Path) -> None:
    """Qwen2-VL: a token stands for 28x28 pixels."""
    from transformers import CONFIG_MAPPING
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    text = {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}}
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 64,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 14,
    }
    config = CONFIG_MAPPING["qwen2_vl"](text_config=text, vision_config=vision, **IDS)
    size = {"shortest_edge": 28 * 28, "longest_edge": 6 * 28 * 28}
    _save(config, Qwen2VLImageProcessorPil(size=size), PICTURE, directory)


def save_qwen35(directory: Path, kind: str = "qwen3_5", **text: Any) -> None:
    """Qwen3.5: three layers of linear attention, then one of full attention."""
    from transformers import CONFIG_MAPPING
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    rope = {"rope_type": "default", "mrope_section": [3, 3, 2], "mrope_interleaved": True}
    rope |= {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
    linear = {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
    linear |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
    sizes = {**TEXT, "num_hidden_layers": 4, "head_dim": 32, "rope_parameters": rope, **linear, **text}
    vision = {**VISION, "patch_size": 16, "num_position_embeddings": 64}
    size = {"shortest_edge": 32 * 32, "longest_edge": 6 * 32 * 32}
    config = CONFIG_MAPPING[kind](text_config=sizes, vision_config=vision, **IDS)
    _save(config, Qwen2VLImageProcessorPil(size=size, patch_size=16), PICTURE, directory)


def save_qwen3_vl_moe(directory: Path) -> None:
    """Qwen3-VL whose feed-forward layers are mixtures of four experts."""
    from transformers import CONFIG_MAPPING
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    rope = {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True, "rope_theta": 1e4}
    vision = {**VISION, "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    sizes = {**TEXT, "head_dim": 32, "rope_parameters": rope, **EXPERTS}
    size = {"shortest_edge": 32 * 32, "longest_edge": 6 * 32 * 32}
    config = CONFIG_MAPPING["qwen3_vl_moe"](text_config=sizes, vision_config=vision, **IDS)
    _save(config, Qwen2VLImageProcessorPil(size=size, patch_size=16), PICTURE, directory)


def save_internvl(directory: Path) -> None:
    """InternVL: its processor cuts a picture into tiles."""
    from transformers import CONFIG_MAPPING
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    text = {**TEXT, "model_type": "qwen3", "head_dim": 32}
    vision = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": (56, 56), "patch_size": (14, 14)}
    config = CONFIG_MAPPING["internvl"](
        text_config=text, vision_config=vision, image_token_id=3, image_seq_length=4
    )
    tiles = GotOcr2ImageProcessorPil(size={"height": 56, "width": 56}, crop_to_patches=True)
    _save(config, tiles, SPECIAL[3], directory)


def save_gemma3(directory: Path) -> None:
    """Gemma 3: pictures of one fixed size, and crops of them."""
    from transformers import CONFIG_MAPPING
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    text = {**TEXT, "head_dim": 32}
    vision = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 56, "patch_size": 14}
    config = CONFIG_MAPPING["gemma3"](
        text_config=text,
        vision_config=vision,
        image_token_index=3,
        mm_tokens_per_image=4,
        boi_token_index=4,
        eoi_token_index=5,
    )
    _save(config, Gemma3ImageProcessorPil(size={"height": 56, "width": 56}), SPECIAL[3], directory)


def _save(config: Any, processor: Any, picture: str, directory: Path) -> None:
    import torch
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    AutoModelForImageTextToText.from_config(config).save_pretrained(str(directory))
    processor.save_pretrained(str(directory))
    save_tokenizer(directory, picture)


Save = Callable[[Path], None]
FAMILIES: dict[str, Save] = {
    "llava": save_llava,
    "qwen": save_qwen25_vl,
    "qwen3": save_qwen3_vl,
    "glm": save_glm,
}
"""Those with which everything is tested."""

MORE: dict[str, Save] = {
    "qwen2": save_qwen2_vl,
    "qwen3-moe": save_qwen3_vl_moe,
    "qwen3.5": save_qwen35,
    "qwen3.5-moe": lambda path: save_qwen35(
        path, "qwen3_5_moe", **EXPERTS, shared_expert_intermediate_size=16
    ),
    "glm-4.1": lambda path: save_glm(path, kind="glm4v"),
    "glm-4.5": lambda path: save_glm(path, text=GLM_EXPERTS, kind="glm4v_moe"),
    "internvl": save_internvl,
    "gemma3": save_gemma3,
}
"""Those of which docs/models.md has a row."""
