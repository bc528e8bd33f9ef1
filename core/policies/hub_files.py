"""Whether a model is loaded from the hub or from its cache: one question before anything is loaded.

transformers tries each file six times, for 23 seconds, and asks for a dozen, some of which no model has. So
where the hub is out of reach that is told at once, and what is in the cache is loaded without asking.
"""

from __future__ import annotations

import logging
from pathlib import Path

from distrl.core.errors import PolicyError
from distrl.core.hub_cache import cached, has_weights, hub_cache, is_hub_id, remedy

_log = logging.getLogger(__name__)


def located(key: str, model: str) -> str:
    """Where transformers shall load `model` from: `model` itself, or its folder in the cache.

    Args:
        key: The configuration's key that names the model, for errors.
        model: A directory, or a hub id.

    Raises:
        PolicyError: The hub cannot be reached, and its cache on this machine has not all of the model.
    """
    from huggingface_hub import is_offline_mode

    if Path(model).is_dir() or not is_hub_id(model):
        return model
    directory, is_offline = cached(model), is_offline_mode()
    if directory is None and not is_offline:
        _log.warning("%s %r is not in the hub's cache %s: the hub is asked for it.", key, model, hub_cache())
    problem = "HF_HUB_OFFLINE is set" if is_offline else _unreachable(model)
    if problem is None:
        return model
    if directory is None or not has_weights(directory):
        what = "is not" if directory is None else "has no weights, or not all of them,"
        raise PolicyError(
            f"{key} {model!r} {what} on this machine, and the hub cannot be reached: {problem}.",
            remedy(model),
        )
    if not is_offline:
        _log.warning("%s %r is loaded from the cache: the hub cannot be reached: %s.", key, model, problem)
    return str(directory)


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
        return None  # an answer, which loading tells better
    except (HTTPError, ValueError, OSError) as error:
        for one in (error, error.__cause__):
            if isinstance(one, HTTPError) and not isinstance(one, HfHubHTTPError):
                return str(one).strip().rstrip(".") or type(one).__name__
    return None
