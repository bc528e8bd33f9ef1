"""Lets packages that were built for another torch be installed beside ours, as far as tests need them.

Registries pair torchvision, torchaudio and torchcodec with torch for CUDA. Beside a torch for CPUs their
compiled parts cannot be loaded. Importing torchvision fails at the first operator ("torchvision::nms does
not exist"), though image processors need only its Python part: the operators' schemas are declared first.
The others are hidden; transformers and vLLM do without.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
HIDDEN = ("torchaudio", "torchcodec")
_libraries: list[object] = []  # a library's operators live as long as it does


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing, but sees torchvision asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            _declare()
        return None


def install() -> None:
    """Acts when torchvision is imported; nothing is imported here."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in HIDDEN:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def _declare() -> None:
    import torch

    if torch.version.cuda is not None:
        return  # torchvision's own operators load
    library = torch.library.Library("torchvision", "DEF")
    _libraries.append(library)
    for schema in SCHEMAS:
        library.define(schema)
