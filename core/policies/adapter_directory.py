"""Names in a PEFT adapter directory, which `PeftModel.from_pretrained` and vLLM read, and in published bytes.

Published adapters carry their PEFT configuration in the metadata of their safetensors header, so that other
tools can use one without building the policy.
"""

from __future__ import annotations

CONFIG_KEY = "adapter_config"
CONFIG_FILE = "adapter_config.json"
ADAPTER_FILE = "adapter_model.safetensors"
