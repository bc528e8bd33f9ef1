"""Qwen-VL models as small as vLLM takes them, random, saved to a directory as a hub would give them."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SPECIAL = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|image_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|video_pad|>",
]
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}: {% for p in m.content %}"
    "{% if p.type == 'image' %}PICTURE{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
)
IDS = {"image_token_id": 3, "vision_start_token_id": 4, "vision_end_token_id": 5, "video_token_id": 6}
TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "eos_token_id": 1,
    "bos_token_id": None,
    "pad_token_id": 0,
}
VISION = {"depth": 2, "hidden_size": 64, "intermediate_size": 96, "num_heads": 2, "out_hidden_size": 64}


def save_qwen25_vl(directory: Path) -> None:
    """Qwen2.5-VL: a token stands for 28x28 pixels."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"type": "mrope", "mrope_section": [4, 6, 6]}
    vision = {**VISION, "patch_size": 14, "fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(text_config={**TEXT, "rope_scaling": rope}, vision_config=vision, **IDS)
    _save(Qwen2_5_VLForConditionalGeneration, config, directory, 14)


def save_qwen3_vl(
    directory: Path,
    words: Sequence[str] = (),
    text: Mapping[str, Any] | None = None,
    seed: int = 0,
    sharpness: float = 1.0,
) -> None:
    """Qwen3-VL: a token stands for 32x32 pixels.

    Args:
        directory: Where to.
        words: Texts of one token each, beside the single characters.
        text: Sizes of the language model that differ from `TEXT`.
        seed: Of the weights.
        sharpness: Factor of the output layer. An adapter does not reach that layer, and with small weights
            there no token could ever become certain.
    """
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    sizes = {**TEXT, "head_dim": 32, **(text or {})}
    sizes["vocab_size"] = vocabulary_size(words)
    rope = {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    vision = {
        **VISION,
        "patch_size": 16,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
        "out_hidden_size": sizes["hidden_size"],
    }
    sizes["rope_parameters"] = {**rope, "rope_theta": 10_000.0}
    config = Qwen3VLConfig(text_config=sizes, vision_config=vision, **IDS)
    _save(Qwen3VLForConditionalGeneration, config, directory, 16, words, seed, sharpness)


FAMILIES = {"qwen2.5-vl": save_qwen25_vl, "qwen3-vl": save_qwen3_vl}


def _save(model: Any, config: Any, directory: Path, patch: int, *weights: Any) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    side = 2 * patch
    size = {"shortest_edge": side * side, "longest_edge": 6 * side * side}
    save_random(model, config, Qwen2VLImageProcessorPil(size=size, patch_size=patch), directory, *weights)


def save_random(
    model: Any,
    config: Any,
    processor: Any,
    directory: Path,
    words: Sequence[str] = (),
    seed: int = 0,
    sharpness: float = 1.0,
) -> None:
    """What `model` makes of a configuration, and a tokenizer; the rest as in `save_qwen3_vl`."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = model(config)
        with torch.no_grad():
            for parameter in made.parameters():  # the usual small start makes all tokens alike
                if parameter.dim() > 1:
                    parameter.mul_(4.0)
            made.get_output_embeddings().weight.mul_(sharpness)
        made.save_pretrained(str(directory))
    processor.save_pretrained(str(directory))
    save_tokenizer(directory, PICTURE, words)


def vocabulary_size(words: Sequence[str]) -> int:
    """Of a model that writes these words."""
    return max(int(str(TEXT["vocab_size"])), len(_vocabulary(words)))


def _vocabulary(words: Sequence[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate([*SPECIAL, *string.printable, *words])}


def save_tokenizer(directory: Path, picture: str, words: Sequence[str] = (), pattern: str = "") -> None:
    """Words, where one stands, else single characters; and special tokens, of which `picture` shows one.

    Args:
        pattern: A regular expression of the words; of thousands, one of each would take long.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(_vocabulary(words), unk_token="?"))
    found = [pattern] if pattern else map(re.escape, sorted(words, key=len, reverse=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*found, r"[\s\S]"])), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        additional_special_tokens=SPECIAL[2:],
        chat_template=TEMPLATE.replace("PICTURE", picture),
    ).save_pretrained(str(directory))
