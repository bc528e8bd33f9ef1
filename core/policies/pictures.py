"""The pictures of a batch of prompts, any number of any sizes for each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Pictures:
    """Pictures of B prompts, any number and any sizes.

    Attributes:
        rows: Each prompt's pictures in order of appearance: [3, H, W] uint8 each, or what the policy that
            made the batch keeps of them.
    """

    rows: list[list[Tensor]]

    def to(self, device: torch.device | str) -> Pictures:
        """The same pictures on `device`."""
        return Pictures([[picture.to(device) for picture in row] for row in self.rows])

    def __getitem__(self, rows: Tensor) -> Pictures:
        """The pictures of some of the prompts; nothing is copied."""
        return Pictures([self.rows[row] for row in rows.tolist()])

    @property
    def flat(self) -> list[Tensor]:
        """All pictures, prompt by prompt."""
        return [picture for row in self.rows for picture in row]
