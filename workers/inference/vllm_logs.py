"""What vLLM says at each swap of all weights, but that those which are not trained were not loaded."""

from __future__ import annotations

import logging

from distrl.core.model_shapes import VISION

LOGGERS = tuple(f"vllm.model_executor.model_loader.reload.{name}" for name in ("inplace", "layerwise"))
LAYER = "%s: Failed to load weights"  # tells a layer's class only, also of layers without weights
NAMES = "Following weights were not loaded from checkpoint: %s"


class Expected(logging.Filter):
    """Drops warnings of weights that were not published, since they are not trained.

    Args:
        is_vision_frozen: Whether those are none that read pictures.
    """

    def __init__(self, is_vision_frozen: bool) -> None:
        super().__init__()
        self._is_vision_frozen = is_vision_frozen

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        if record.msg == LAYER:
            return False
        if record.msg != NAMES or not isinstance(record.args, tuple) or not self._is_vision_frozen:
            return True
        (names,) = record.args
        return not (isinstance(names, set) and all(VISION.search(name) for name in names))


def quieten(is_vision_frozen: bool) -> None:
    """Filters the loggers of this process."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(Expected(is_vision_frozen))
