"""Which parameters train, and at what memory: LoRA adapters by PEFT, frozen vision, recomputed layers.

The one file that imports peft. Published adapters carry their PEFT configuration in the metadata of their
safetensors header, so that other tools can use one without building the policy.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.policies.base import LoraOptions

CONFIG_FILE = "adapter_config.json"
ADAPTER_FILE = "adapter_model.safetensors"
_log = logging.getLogger(__name__)


def checkpointed_layers(model: Any) -> list[nn.Module]:
    """Prepares a model's layers to keep only their inputs and to be computed again in the backward pass.

    Other modules that have such a switch are left out: T5's attentions too depend on whether they train, and
    would compute something else again.

    Raises:
        PolicyError: The model's layers cannot.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    with suppress(ValueError):  # the model has no such layers
        model.gradient_checkpointing_enable({"use_reentrant": False})
        # Otherwise embeddings have gradients, which only reentrant layers need: a frozen vision tower would
        # be computed again and differentiated for nothing.
        model.disable_input_require_grads()
    layers: list[nn.Module] = [
        module
        for module in model.modules()
        if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
    ]
    if not layers:
        raise PolicyError(
            f"policy.gradient_checkpointing: {type(model).__name__} has no layers to compute again.",
            "Set it to false for this model.",
        )
    return layers


@contextmanager
def recomputed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Lets layers be computed again for this forward pass, if it has gradients.

    transformers does so in training mode only, in which dropout would falsify the importance ratios. So only
    the layers are in training mode, and the modules in them are not.
    """
    before = [(layer, layer.training) for layer in (layers if torch.is_grad_enabled() else [])]
    for layer, _ in before:
        layer.training = True
    try:
        yield
    finally:
        for layer, was_training in before:
            layer.training = was_training


def freeze_vision(model: Any) -> None:
    """Freezes what reads pictures: all but the language model and its output layer."""
    trained = [model.get_submodule(language_prefix(model)), model.get_output_embeddings()]
    model.requires_grad_(False)
    for module in trained:
        module.requires_grad_(True)


_FEED_FORWARD = ("gate_proj", "up_proj", "gate_up_proj", "down_proj")
_LANGUAGE = (
    *("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"),
    *("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"),  # linear attention of Qwen3.5
    *_FEED_FORWARD,
)
_T5 = ("q", "k", "v", "o")
_VISION = ("qkv", "proj", "out_proj", "linear_fc1", "linear_fc2", "fc1", "fc2")


def default_targets(present: Collection[str], vision: bool, is_mixture: bool) -> list[str]:
    """The linear layers that get adapters where the configuration names none: of attention and feed-forward.

    Args:
        present: The last parts of the names of the model's linear layers in blocks.
        is_mixture: Whether the model has experts that get none. Then feed-forward layers get none at all: of
            some models PEFT takes their names for those of the experts.
    """
    present = set(present) - set(_FEED_FORWARD if is_mixture else ())
    found = [name for name in _LANGUAGE if name in present] or [name for name in _T5 if name in present]
    return list(dict.fromkeys([*found, *(name for name in _VISION if vision and name in present)]))


class AdapterHandle:
    """The adapter of one model: its tensors and its files.

    Args:
        peft_model: PEFT's wrapper around the model; the layers themselves sit inside the model.
    """

    def __init__(self, peft_model: Any) -> None:
        self._peft_model = peft_model

    def state(self) -> dict[str, Tensor]:
        """The adapter's tensors, by the names that PEFT gives them in adapter files; shared, not copied."""
        from peft import get_peft_model_state_dict

        state = get_peft_model_state_dict(self._peft_model, save_embedding_layers=False)
        return {name: tensor.detach() for name, tensor in state.items()}

    def config_json(self) -> str:
        """What PEFT writes into adapter_config.json, on one line; the same text for the same adapter."""
        config = self._peft_model.peft_config["default"].to_dict()
        plain = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
        return json.dumps({**plain, "inference_mode": True}, sort_keys=True)

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """A block in which the model computes without the adapter.

        PEFT's own also freezes the adapter meanwhile, and DeepSpeed's engine, which starts at the first call,
        would find nothing to train.
        """
        from peft.tuners.tuners_utils import BaseTunerLayer

        layers = [module for module in self._peft_model.modules() if isinstance(module, BaseTunerLayer)]
        for layer in layers:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in layers:
                layer._disable_adapters = False

    def merge(self) -> Any:
        """Adds the adapter to the model's own weights, for good, and returns the model."""
        return self._peft_model.merge_and_unload()

    def save(self, directory: Path) -> None:
        """Writes a PEFT adapter directory: adapter_config.json and adapter_model.safetensors."""
        self._peft_model.save_pretrained(str(directory), save_embedding_layers=False)


def is_expert(name: str, dimensions: int) -> bool:
    """Whether a parameter holds the weights of all experts of a layer, which are no linear layers."""
    return dimensions == 3 and ".experts." in name


def attach_adapter(model: nn.Module, config: LoraOptions) -> AdapterHandle:
    """Inserts LoRA layers into `model` in place and freezes everything else.

    They go into the language model, and into the vision tower too if `config.vision` says so.

    Raises:
        PolicyError: The model has no layer of the name of a target.
    """
    from peft import LoraConfig as PeftLoraConfig
    from peft import get_peft_model

    prefix = "" if config.vision else language_prefix(model)
    # Linear layers in a stack of blocks: neither embeddings nor the output layer.
    layers = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(prefix) and re.search(r"(^|\.)\d+\.", name)
    }
    experts = sorted(
        {".".join(name.split(".")[-2:]) for name, p in model.named_parameters() if is_expert(name, p.dim())}
    )
    is_mixture = bool(experts) and not config.experts
    targets = config.targets
    if targets is None:
        targets = default_targets(layers, config.vision, is_mixture)
    if not targets or not layers.issuperset(targets):
        where = "The model" if config.vision or not prefix else "The language model"
        raise PolicyError(
            f"policy.lora.targets {list(targets)}: {where} has no layers named "
            f"{sorted(set(targets) - layers) or 'as usual'}.",
            f"It has {', '.join(sorted(layers)) or 'none'}.",
        )
    if config.experts and not experts:
        raise PolicyError("policy.lora.experts needs a model with experts.", "Set it to false.")
    if is_mixture:
        _log.warning(
            "The adapters leave out the model's experts (%s), which have most of its parameters; "
            "policy.lora.experts: true includes them.",
            ", ".join(experts),
        )
    start = re.escape(f"{prefix}.") if prefix else ""
    names = "|".join(re.escape(target) for target in targets)
    wrapped = get_peft_model(
        model,
        PeftLoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            target_modules=rf"{start}(?:.+\.)?\d+\.(?:.+\.)?(?:{names})",
            target_parameters=experts if config.experts else None,
        ),
    )
    return AdapterHandle(wrapped)


def language_prefix(model: nn.Module) -> str:
    """The name of the language model inside of a model, "" if that is all that there is."""
    names = (name for name, _ in model.named_modules() if name.rpartition(".")[2] == "language_model")
    return next(names, "")
