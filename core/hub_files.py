"""Where a model's files are: a directory, the hub's cache on this machine, or the hub. No torch.

A model that is wholly in the cache is loaded from there, without a request. For others one request comes
before anything is loaded (`located`), because transformers tries each of a dozen files six times.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from pathlib import Path
from typing import Any

from distrl.core.errors import PolicyError

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Files that hold a model's weights; large ones come in parts that an index beside them names."""
_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def hub_cache() -> Path:
    """The folder of the hub's cache, which HF_HUB_CACHE and HF_HOME name."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached(model: str) -> Path | None:
    """The snapshot of the hub id `model` in the cache; None if there is none."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, "config.json") if is_hub_id(model) else None
    return Path(found).parent if isinstance(found, str) else None


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


_log = logging.getLogger(__name__)


def located(key: str, model: str) -> str:
    """What transformers is to load for `model`, a directory or a hub id: itself, or its folder in the cache.

    Raises:
        PolicyError: The cache on this machine lacks the model or a part of it, and the hub cannot be reached.
    """
    from huggingface_hub import is_offline_mode

    if Path(model).is_dir() or not is_hub_id(model):
        return model
    if (directory := cached(model)) is not None and has_weights(directory):
        return str(directory)
    offline = is_offline_mode()
    if not offline:
        _log.warning("%s %r is not in %s: requesting it from the hub.", key, model, hub_cache())
    problem = "HF_HUB_OFFLINE is set" if offline else _unreachable(model)
    if problem is None:
        return model
    raise PolicyError(
        f"{key} {model!r} is missing or incomplete here, and the hub cannot be reached: {problem}.",
        f"Run `hf download {model}` on a machine with network access and copy it to the hub cache here, "
        f"{hub_cache()} (HF_HOME sets its parent), or set {key} to a directory.",
    )


def _unreachable(model: str) -> str | None:
    """Why the hub gives no answer about `model`, after one try; None: it does, if only that there is none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (  # type: ignore[attr-defined] # whose HTTP library has had two names
        HfHubHTTPError,
        HTTPError,
    )

    try:
        # Nothing is downloaded. Forced, it looks neither into the cache nor a second time.
        hf_hub_download(model, "config.json", dry_run=True, force_download=True)
    except HfHubHTTPError:
        return None  # an answer: loading gives the better error
    except (HTTPError, ValueError, OSError) as error:
        for one in (error, error.__cause__):
            if isinstance(one, HTTPError) and not isinstance(one, HfHubHTTPError):
                return str(one).strip().rstrip(".") or type(one).__name__
    return None


def find_model(model: str, key: str = "policy.model") -> Path:
    """Where the files of `model` are; PolicyError, naming the key, if they are not on this machine."""
    if (Path(model) / "config.json").is_file():
        return Path(model)
    found = cached(model)
    if found is None:
        raise PolicyError(
            f"{key} {model!r} is neither a directory nor in the hub's cache {hub_cache()}.",
            f"Run `hf download {model} config.json preprocessor_config.json`; weights are not needed.",
        )
    return found


def fetch_description(model: str) -> None:
    """Brings the small files of a hub id, such as config.json, into the cache if they are not there."""
    if is_hub_id(model) and not Path(model).is_dir() and cached(model) is None:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError

        with contextlib.suppress(HfHubHTTPError):  # such as that there is no such model: loading it says so
            snapshot_download(model, allow_patterns=["*.json"])


def read_json(file: Path) -> dict[str, Any]:
    """The map in a JSON file; PolicyError if there is none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyError(f"{file} cannot be read: {error}.", "Download it again.") from error
    if not isinstance(found, dict):
        raise PolicyError(f"{file} does not contain a JSON object.", "Download it again.")
    return found
