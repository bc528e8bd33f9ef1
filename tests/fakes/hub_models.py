"""Small random models of three families, saved to a directory as a hub would give them."""

from __future__ import annotations

from pathlib import Path

from tiny_qwen import IDS, SPECIAL, save_qwen3_vl, save_qwen25_vl, save_tokenizer


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


FAMILIES = {"llava": save_llava, "qwen": save_qwen25_vl, "qwen3": save_qwen3_vl}
