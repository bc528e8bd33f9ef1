"""Which linear layers get adapters where the configuration names none; known without torch, for estimates."""

from __future__ import annotations

from collections.abc import Collection

_LANGUAGE = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "gate_proj",
    "up_proj",
    "gate_up_proj",
    "down_proj",
)
_T5 = ("q", "k", "v", "o")
_VISION = ("qkv", "proj", "out_proj", "linear_fc1", "linear_fc2", "fc1", "fc2")


def default_targets(present: Collection[str], vision: bool) -> list[str]:
    """The projections of attention and feed-forward layers, of those that a model has.

    Args:
        present: The last parts of the names of its linear layers in blocks.
        vision: Whether the layers that read pictures get some too.
    """
    found = [name for name in _LANGUAGE if name in present] or [name for name in _T5 if name in present]
    return [*found, *(name for name in _VISION if vision and name in present)]
