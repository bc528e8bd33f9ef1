"""Where the model hub's files are on this machine: looked up by path, without the hub and its library."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Files that hold a model's weights; large ones come in parts that an index beside them names."""
_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def hub_cache() -> Path:
    """The folder of the hub's cache, which its environment variables name."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


def cached(model: str) -> Path | None:
    """The snapshot of the hub id `model` in the cache, its `main` or else the newest; None: there is none."""
    folder = hub_cache() / f"models--{model.replace('/', '--')}"
    main = folder / "refs" / "main"
    if main.is_file():
        snapshot = folder / "snapshots" / main.read_text(encoding="utf-8").strip()
        if (snapshot / "config.json").is_file():
            return snapshot
    found = (path.parent for path in folder.glob("snapshots/*/config.json"))
    return max(found, key=lambda path: path.lstat().st_mtime, default=None)


def has_weights(directory: Path) -> bool:
    """Whether a model's directory has all of its weights, by the index of their parts if there is one."""
    for name in WEIGHTS:
        index, parts = directory / f"{name}.index.json", {name}
        if index.is_file():
            try:
                parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (ValueError, KeyError):
                return False
        if all((directory / part).is_file() for part in parts):
            return True
    return False


def is_hub_id(model: str) -> bool:
    """Whether the hub may have a model of this name: "NAME" or "OWNER/NAME", no path."""
    return _ID.fullmatch(model) is not None


def remedy(model: str) -> str:
    """What to do where the hub cannot be reached."""
    return (
        f"Run `hf download {model}` on a machine with network and bring it into the hub's cache here, "
        f"{hub_cache()} (HF_HOME names the folder above), or name a directory."
    )
