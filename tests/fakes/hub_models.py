"""Small random models of three families, saved to a directory as a hub would give them."""

from __future__ import annotations

import string
from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}<turn>{{ m.role }}: {% for p in m.content %}"
    "{% if p.type == 'image' %}IMAGE{% else %}{{ p.text }}{% endif %}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: {% endif %}"
)
SPECIAL = ["<pad>", "<end>", "<turn>", "<image>", "<vision_start>", "<vision_end>", "<video>"]


def save_tokenizer(directory: Path, template: str) -> None:
    """A tokenizer of single characters and the special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = [*string.printable]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=SPECIAL[2:],
        chat_template=template,
    )
    wrapped.save_pretrained(str(directory))


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
        eos_token_id=SPECIAL.index("<end>"),  # Llama's own would be <turn>
    )
    vision = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=3)
    LlavaForConditionalGeneration(config).save_pretrained(str(directory))
    CLIPImageProcessorPil(size={"height": 28, "width": 28}, do_center_crop=False).save_pretrained(
        str(directory)
    )
    save_tokenizer(directory, TEMPLATE.replace("IMAGE", "<image>"))


def save_qwen(directory: Path) -> None:
    """Qwen2.5-VL: pictures in tokens of 28x28 pixels, 1 to 6 of them."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 120,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 14,
            "fullatt_block_indexes": [1],
        },
        image_token_id=3,
        vision_start_token_id=4,
        vision_end_token_id=5,
        video_token_id=6,
    )
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(str(directory))
    Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 56 * 84}).save_pretrained(
        str(directory)
    )
    save_tokenizer(directory, TEMPLATE.replace("IMAGE", "<vision_start><image><vision_end>"))


def save_qwen3(directory: Path) -> None:
    """Qwen3-VL: pictures in tokens of 32x32 pixels, 1 to 6 of them; deep layers read the picture again."""
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 120,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [2, 3, 3],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 16,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=3,
        vision_start_token_id=4,
        vision_end_token_id=5,
        video_token_id=6,
    )
    Qwen3VLForConditionalGeneration(config).save_pretrained(str(directory))
    Qwen2VLImageProcessorPil(
        size={"shortest_edge": 32 * 32, "longest_edge": 64 * 96},
        patch_size=16,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    ).save_pretrained(str(directory))
    save_tokenizer(directory, TEMPLATE.replace("IMAGE", "<vision_start><image><vision_end>"))


FAMILIES = {"llava": save_llava, "qwen": save_qwen, "qwen3": save_qwen3}
