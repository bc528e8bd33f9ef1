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
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
HIDDEN = ("torchaudio", "torchcodec")
_libraries: list[object] = []  # a library's operators live as long as it does


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torchvision as it would be found, to be loaded after its operators are declared."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == "torchvision" else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Declares the operators, then loads the module. Those who only ask whether it is there load nothing."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        _declare()
        self._loader.exec_module(module)


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
