"""AutoUI's network: a T5 whose encoder states take in the features of screenshots (Zhan & Zhang 2023, §3.2).

    V  = W_v f + b_v                                   features f of the screenshots      image_dense
    A  = W_o softmax((W_q H)(W_k V)ᵀ / √d) (W_u V)     one head, H the encoder's states   mha_layer
    λ  = σ(W_g [H; A])                                                                    gate_dense
    H' = (1 − λ) H + λ A                               what the decoder reads

Names of tensors are those of the published checkpoints: transformers' names of T5's, and the three above.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.hub_files import WEIGHTS
from distrl.core.policies import loading, weights_io

KEY = "policy.model"
WRAPPER = "module."
"""What data-parallel training puts before every name."""
SHARED = "shared.weight"
HEAD = "lm_head.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Second names of `SHARED`."""
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""In old T5 checkpoints; no T5 reads it."""
FUSION = ("image_dense", "mha_layer", "gate_dense")
T5_REMEDY = "Name a T5 or an AutoUI checkpoint: a hub id that this machine can reach, or a directory."


def read_config(key: str, model: str, model_type: str, remedy: str) -> Any:
    """The config.json of a model; PolicyError if it cannot be read, or belongs to another kind of model."""
    from transformers import AutoConfig

    with loading(key, model, remedy):
        config = AutoConfig.from_pretrained(model)
    if config.model_type != model_type:
        raise PolicyError(f"{key} {model!r} is a {config.model_type}, not a {model_type}.", remedy)
    return config


def read_tensors(key: str, model: str, remedy: str, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of `model` whose names begin with `prefix`, which is cut off; `key` as in `read_config`.

    Files without such tensors are not read, and need not exist.

    Raises:
        PolicyError: There are no such files, or they cannot be read.
    """
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    with loading(key, model, remedy):
        for file in _files(model, prefix):
            if file.suffix == ".safetensors":
                with safe_open(str(file), framework="pt") as opened:
                    wanted = [name for name in opened.keys() if name.startswith(prefix)]  # noqa: SIM118
                    found = {name: opened.get_tensor(name) for name in wanted}
            else:
                state = torch.load(file, map_location="cpu", weights_only=True)
                found = {name: x for name, x in state.items() if name.startswith(prefix)}
                if not all(isinstance(tensor, Tensor) for tensor in found.values()):
                    raise ValueError(f"{file} holds more than tensors by name")
            tensors |= {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return tensors


def _files(model: str, prefix: str) -> list[Path]:
    from transformers.utils import cached_file

    def find(name: str) -> Path | None:
        found = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
        return None if found is None else Path(found)

    for name in WEIGHTS:
        names = [name]
        if (index := find(f"{name}.index.json")) is not None:
            where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted({file for tensor, file in where.items() if tensor.startswith(prefix)})
        found = [file for one in names if (file := find(one)) is not None]
        if found and len(found) == len(names):
            return found
    raise FileNotFoundError(f"there is neither {WEIGHTS[0]} nor {WEIGHTS[1]}, whole or in parts")


class FusedT5(nn.Module):
    """A T5 with AutoUI's fusion.

    Args:
        num_features: Size F of a screenshot's features.
    """

    def __init__(self, t5: Any, num_features: int) -> None:
        super().__init__()
        d = t5.config.d_model
        self.t5 = t5
        self.image_dense = nn.Linear(num_features, d)
        self.mha_layer = nn.MultiheadAttention(d, num_heads=1, batch_first=True)
        self.gate_dense = nn.Linear(2 * d, d)
        # T5's checkpoints say by tied embeddings whether logits are scaled, tied or not.
        self.scale = d**-0.5 if t5.config.scale_decoder_outputs else 1.0

    def encode(self, input_ids: Tensor, attention_mask: Tensor, images: Tensor) -> Tensor:
        """[N, P, d], what the decoder reads.

        Args:
            input_ids, attention_mask: [N, P].
            images: [N, K, d], what `image_dense` makes of the features.
        """
        text = self.t5.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        seen, _ = self.mha_layer(text, images, images, need_weights=False)
        gate = torch.sigmoid(self.gate_dense(torch.cat([text, seen], dim=-1)))
        fused: Tensor = (1 - gate) * text + gate * seen
        return fused

    def decode(self, previous: Tensor, states: Tensor, mask: Tensor) -> Any:
        """The decoder's output after the tokens `previous`, [N, L], for states [N, P, d]."""
        return self.t5.decoder(
            input_ids=previous, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] of the decoder's states [..., d]."""
        found: Tensor = self.t5.lm_head(hidden * self.scale)
        return found


def load_model(model: str, num_features: int, dtype: torch.dtype, seed: int) -> FusedT5:
    """AutoUI's weights, or those of a plain T5 with a new fusion.

    Raises:
        PolicyError: It is not a T5 with exactly its tensors, or was trained on other features.
    """
    network = FusedT5(empty_t5(model), num_features)
    tensors = read_tensors(KEY, model, T5_REMEDY)
    if all(name.startswith(WRAPPER) for name in tensors):
        tensors = {name.removeprefix(WRAPPER): tensor for name, tensor in tensors.items()}
    tensors.pop(UNUSED, None)
    is_tied = False
    shared = next((tensors[name] for name in (SHARED, *COPIES) if name in tensors), None)
    if shared is not None:
        tensors |= dict.fromkeys((SHARED, *COPIES), shared)
        head = tensors.setdefault(HEAD, shared)
        scales = bool(network.t5.config.scale_decoder_outputs)
        is_tied = head is shared or (scales and torch.equal(head, shared))
    if not any(name.partition(".")[0] in FUSION for name in tensors):
        tensors |= _new_fusion(network.t5.config.d_model, num_features, seed)
    if problem := weights_io.mismatch(named_tensors(network), tensors, has_types=False):
        raise PolicyError(
            f"{KEY} {model!r} does not fit: {problem}.",
            "Name a T5, or a checkpoint of AutoUI or DigiRL with its config.json, and set "
            "policy.image_features to the model that it was trained with: Salesforce/blip2-opt-2.7b gives "
            "the 1408 features of AutoUI.",
        )
    prefixed = {
        name if name.partition(".")[0] in FUSION else f"t5.{name}": tensor.to(dtype)
        for name, tensor in tensors.items()
    }
    network.load_state_dict(prefixed, assign=True)
    t5 = network.t5
    t5.encoder.set_input_embeddings(t5.shared)
    t5.decoder.set_input_embeddings(t5.shared)
    if is_tied:
        t5.lm_head.weight = t5.shared.weight
    return network


def empty_t5(model: str) -> Any:
    """A T5 of the sizes in the model's config.json, without weights."""
    from transformers import T5ForConditionalGeneration

    with torch.device("meta"):
        return T5ForConditionalGeneration(read_config(KEY, model, "t5", T5_REMEDY))


def _new_fusion(width: int, num_features: int, seed: int) -> dict[str, Tensor]:
    """Weights of the fusion as torch draws them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = {
            "image_dense": nn.Linear(num_features, width),
            "mha_layer": nn.MultiheadAttention(width, num_heads=1),
            "gate_dense": nn.Linear(2 * width, width),
        }
    return {f"{part}.{name}": t for part, net in parts.items() for name, t in net.state_dict().items()}


def named_tensors(network: FusedT5) -> dict[str, Tensor]:
    """The tensors of `network` by the names of AutoUI's checkpoints."""
    return {name.removeprefix("t5."): tensor for name, tensor in network.state_dict().items()}


def write_model(network: FusedT5, t5: Any, directory: Path) -> None:
    """Writes config.json and model.safetensors, as `load_model`, AutoUI's and DigiRL's code read them.

    Args:
        network: Whose fusion is written.
        t5: Its T5, with adapters merged.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = t5.config.to_dict()
    config["architectures"] = ["T5ForMultimodalGeneration"]
    # By this transformers knew, before its version 5, whether logits are scaled.
    config["tie_word_embeddings"] = bool(t5.config.scale_decoder_outputs)
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
    fusion = {n: x for n, x in network.state_dict().items() if n.partition(".")[0] in FUSION}
    tensors = {name: x for name, x in t5.state_dict().items() if name not in COPIES}
    weights_io.write(directory / "model.safetensors", {**tensors, **fusion}, {"format": "pt"})
