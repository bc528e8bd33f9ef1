"""The pictures of a batch of prompts, any number of any sizes for each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Pictures:
    """Pictures of B prompts, any number and any sizes.

    They stay in main memory, whichever device the batch is on: a batch of whole episodes may show more than a
    GPU has room for beside a model, and a pass reads some of them (`on`).

    Attributes:
        rows: Each prompt's pictures in order of appearance: [3, H, W] uint8 each, or what the policy that
            made the batch keeps of them.
    """

    rows: list[list[Tensor]]

    def __getitem__(self, rows: Tensor) -> Pictures:
        """The pictures of some of the prompts; nothing is copied."""
        return Pictures([self.rows[row] for row in rows.tolist()])

    @property
    def flat(self) -> list[Tensor]:
        """All pictures, prompt by prompt."""
        return [picture for row in self.rows for picture in row]

    def on(self, device: torch.device | str) -> list[Tensor]:
        """All pictures on `device`, prompt by prompt."""
        return [picture.to(device) for picture in self.flat]

    def distinct_on(self, device: torch.device | str) -> tuple[list[Tensor], Tensor]:
        """Each picture once, so that what is computed from it is computed once.

        Screens repeat within a batch of episodes, and caches give the same tensor for the same bytes.

        Returns:
            The distinct pictures on `device`, and [number of all pictures] int64, the place of each picture
            of `flat` among them, on `device`.
        """
        flat = self.flat
        distinct = {id(picture): picture for picture in flat}
        places = {key: place for place, key in enumerate(distinct)}
        index = torch.tensor([places[id(picture)] for picture in flat], dtype=torch.int64)
        return [picture.to(device) for picture in distinct.values()], index.to(device)
