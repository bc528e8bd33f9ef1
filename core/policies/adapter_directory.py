"""PEFT adapter directories from published bytes: what vLLM and `PeftModel.from_pretrained` read.

Published adapters carry their PEFT configuration in the metadata of their safetensors header, so that whoever
receives one can write a directory without building the policy.
"""

from __future__ import annotations

import json
from pathlib import Path

from distrl.core.errors import PolicyError
from distrl.core.policies import weights_io

CONFIG_KEY = "adapter_config"
CONFIG_FILE = "adapter_config.json"
ADAPTER_FILE = "adapter_model.safetensors"


def write_adapter_directory(directory: Path, data: bytes | bytearray | memoryview) -> None:
    """Writes adapter_config.json and adapter_model.safetensors.

    Args:
        directory: Made if missing; files of the same names are replaced.
        data: A published adapter, as it arrived (`FreshWeights.data`).

    Raises:
        PolicyError: `data` is no published adapter.
        OSError: The directory cannot be written.
    """
    text = weights_io.read_metadata(data).get(CONFIG_KEY)
    try:
        config = json.loads(text) if text is not None else None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise PolicyError(
            f"These {len(data)} bytes carry no adapter's configuration.",
            "Publish adapters: set policy.lora.",
        )
    weights_io.from_bytes(data)  # every tensor lies where the header says
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
    (directory / ADAPTER_FILE).write_bytes(data)
