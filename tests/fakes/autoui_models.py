"""Small random T5s, with and without AutoUI's fusion, and a small random BLIP-2, saved as from a hub."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

D, FEATURES, SPARE_ROWS = 16, 24, 5
SPECIAL = ["<pad>", "</s>", "<unk>", "<extra_id_0>"]
# What T5's own vocabulary lacks, as some others.
LACKING = "\\{}~^`\n\t\r\x0b\x0c"


def save_tokenizer(directory: Path) -> None:
    """Single characters; every text ends with </s>."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    characters = [one for one in string.printable if one not in LACKING]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=SPECIAL[3:],
    ).save_pretrained(str(directory))


def save_t5(directory: Path, is_tied: bool = False) -> None:
    """A plain T5 in the manner of FLAN: gated, and unless `is_tied` with an output layer of its own."""
    import torch
    from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

    directory.mkdir(parents=True, exist_ok=True)
    save_tokenizer(directory)
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(AutoTokenizer.from_pretrained(directory)) + SPARE_ROWS,
        d_model=D,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="relu" if is_tied else "gated-gelu",
        decoder_start_token_id=0,
        tie_word_embeddings=is_tied,
    )
    model = T5ForConditionalGeneration(config)
    if not is_tied:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    written = json.loads(config.to_json_string()) | {"tie_word_embeddings": is_tied}
    (directory / "config.json").write_text(json.dumps(written))
    torch.save(state, directory / "pytorch_model.bin")


def save_autoui(directory: Path, **changes: Tensor | None) -> dict[str, Tensor]:
    """A checkpoint as AutoUI's code writes it: T5's tensors, all names of them, and those of the fusion.

    Args:
        changes: Tensors instead of those, by name with "__" for "."; None leaves one out.
    """
    import torch

    save_t5(directory)
    torch.manual_seed(1)
    fusion = {
        "image_dense.weight": torch.randn(D, FEATURES),
        "image_dense.bias": torch.randn(D),
        "mha_layer.in_proj_weight": torch.randn(3 * D, D),
        "mha_layer.in_proj_bias": torch.randn(3 * D),
        "mha_layer.out_proj.weight": torch.randn(D, D),
        "mha_layer.out_proj.bias": torch.randn(D),
        "gate_dense.weight": torch.randn(D, 2 * D),
        "gate_dense.bias": torch.randn(D),
    }
    fusion = {name: 0.2 * tensor for name, tensor in fusion.items()}
    state = torch.load(directory / "pytorch_model.bin", weights_only=True) | fusion
    for name, tensor in changes.items():
        state[name.replace("__", ".")] = tensor
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    torch.save(state, directory / "pytorch_model.bin")
    return state


def save_blip2(directory: Path) -> None:
    """Pictures of 28x28 pixels, `FEATURES` numbers each."""
    import torch
    from transformers import Blip2Config, Blip2Model
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    torch.manual_seed(2)
    vision = {
        "hidden_size": FEATURES,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    reader = {
        "vocab_size": 20,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "encoder_hidden_size": FEATURES,
        "cross_attention_frequency": 1,
    }
    text = {
        "model_type": "opt",
        "vocab_size": 20,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "ffn_dim": 16,
        "word_embed_proj_dim": 16,
    }
    model = Blip2Model(Blip2Config(vision_config=vision, qformer_config=reader, text_config=text))
    with torch.no_grad():  # so that features differ from picture to picture by more than a little
        for tensor in model.vision_model.parameters():
            tensor.add_(0.3 * torch.randn_like(tensor))
    model.save_pretrained(str(directory), max_shard_size="20KB")
    BlipImageProcessorPil(size={"height": 28, "width": 28}).save_pretrained(str(directory))
