"""What a frozen vision tower makes of pictures, computed once per picture and kept in main memory.

A model of transformers calls its tower with all pixels of a pass, in scoring and in `generate` alike. Here
the tower is called with the pictures that are not kept yet, and the model is given features where it expects
pixels. What it calls as its tower only takes them apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from distrl.core.policies.base import Pictures
from distrl.core.policies.hub_images import GRID, ImageReader
from distrl.core.policies.images import Recent, memory_share

LOOKS = 8  # pictures that go through the tower at once
SHARE = 1 / 16  # of the main memory


class FeatureCache:
    """The merged features of pictures, for Qwen3-VL with those of its inner layers (deepstack).

    Args:
        tower: A vision tower that is not trained. Its `forward` is replaced.
        max_bytes: Of kept features. One picture of 629 tokens takes 4.5 MB in bfloat16 at width 3584.
    """

    def __init__(self, reader: ImageReader, tower: Any, max_bytes: int) -> None:
        self._reader, self._tower, self._look = reader, tower, tower.forward
        tower.forward = self._take_apart
        self._output: type[Any] | None = None  # what the tower returns
        self._width = 0
        self.kept: Recent[Tensor] = Recent(max_bytes, lambda features: features.nbytes)

    @classmethod
    def of(cls, model: Any, reader: ImageReader, max_gb: float | None) -> FeatureCache | None:
        """That of a model's tower; None if it is trained, or reads pictures of one fixed size.

        Args:
            max_gb: None: a sixteenth of the main memory, for all ranks together; 0: nothing is kept.
        """
        tower = getattr(model.base_model, "visual", None) if reader.has_grid else None
        if tower is None or max_gb == 0 or any(p.requires_grad for p in tower.parameters()):
            return None
        num_ranks = distributed.get_world_size() if distributed.is_initialized() else 1
        return cls(reader, tower, memory_share(SHARE / num_ranks) if max_gb is None else int(max_gb * 2**30))

    @torch.no_grad()
    def inputs(self, pictures: Pictures, device: torch.device) -> dict[str, Tensor]:
        """What the model gets instead of `ImageReader.inputs`; {} without pictures."""
        # Of a tower that ZeRO (ds_id) or FSDP2 has sharded all ranks must call all layers.
        if any(isinstance(p, DTensor) or hasattr(p, "ds_id") for p in self._tower.parameters()):
            return self._reader.inputs(pictures.on(device))
        flat, keys = pictures.flat, pictures.keys
        if not flat:
            return {}
        found = self.kept.get(keys)
        missing = {key: picture for key, picture in zip(keys, flat, strict=True) if key not in found}
        names = list(missing)
        for start in range(0, len(names), LOOKS):
            some = names[start : start + LOOKS]
            for key, features in zip(some, self._seen([missing[key] for key in some], device), strict=True):
                found[key] = features
                self.kept.keep(key, features.to("cpu", copy=True))
        features = torch.cat([found[key].to(device) for key in keys])
        return {"pixel_values": features, GRID: self._reader.grids(flat).to(device)}

    def _seen(self, pictures: list[Tensor], device: torch.device) -> Sequence[Tensor]:
        """[tokens, (1 + levels) · width] each, on `device`."""
        inputs = self._reader.inputs([picture.to(device) for picture in pictures])
        out = self._look(inputs["pixel_values"].to(self._tower.dtype), grid_thw=inputs[GRID])
        self._output, self._width = type(out), out.pooler_output.shape[1]
        features = torch.cat([out.pooler_output, *(getattr(out, "deepstack_features", None) or ())], dim=1)
        counts = [self._reader.num_tokens(picture) for picture in pictures]
        return torch.split(features, counts)

    def _take_apart(self, hidden_states: Tensor, grid_thw: Tensor, **options: Any) -> Any:
        """The tower's output for features; for patches, which are more, the tower is called."""
        if len(hidden_states) == int(grid_thw.prod(-1).sum()):
            return self._look(hidden_states, grid_thw=grid_thw, **options)
        assert self._output is not None
        merged, *levels = torch.split(hidden_states, self._width, dim=1)
        return self._output(pooler_output=merged, **({"deepstack_features": levels} if levels else {}))
