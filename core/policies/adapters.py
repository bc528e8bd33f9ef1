"""LoRA adapters by PEFT, attached to a module in place. The one file that imports peft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.policies.options import LoraOptions


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

    def merge(self) -> Any:
        """Adds the adapter to the model's own weights, for good, and returns the model."""
        return self._peft_model.merge_and_unload()

    def save(self, directory: Path) -> None:
        """Writes a PEFT adapter directory: adapter_config.json and adapter_model.safetensors."""
        self._peft_model.save_pretrained(str(directory), save_embedding_layers=False)


def attach_adapter(model: nn.Module, config: LoraOptions) -> AdapterHandle:
    """Inserts LoRA layers into `model` in place and freezes everything else.

    Raises:
        PolicyError: If no module name ends with one of the targets.
    """
    from peft import LoraConfig as PeftLoraConfig
    from peft import get_peft_model

    try:
        wrapped = get_peft_model(
            model,
            PeftLoraConfig(
                r=config.rank,
                lora_alpha=config.alpha,
                lora_dropout=config.dropout,
                target_modules=list(config.targets),
            ),
        )
    except ValueError as error:
        raise PolicyError(
            f"LoRA cannot be attached to policy.lora.targets {config.targets}: {error}",
            "Name modules that the model has.",
        ) from error
    return AdapterHandle(wrapped)
