"""Weights from GPU to GPU, and turns on one GPU: what the learner and its inference servers say of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from distrl.core.slot_view import Count, ShortText
from distrl.core.types import Record


class Transfer(Record):
    """Full weights that inference servers receive from GPU to GPU, see `distrl.learner.transfer`.

    Attributes:
        group: The number of the group; a server that is in `offsets` joins it once.
        port: Where the ranks of the group meet, at the learner's host.
        offsets: By a server's name the rank of its first GPU; the learner is rank 0 of `num_ranks`.
        layout: A digest of the tensors' names, types and shapes (`weights_io.layout`).
        version: What is being sent, or was sent last; 0 for nothing yet.
    """

    group: Count
    port: Annotated[int, Field(ge=1, le=65535)]
    num_ranks: Count
    offsets: dict[str, Count]
    layout: ShortText
    version: Count = 0


RANKS, STARTED_AT, JOINED, FAILED = "transfer_ranks", "started_at", "transfer_group", "transfer_failed"
"""Statistics of a server that can receive a `Transfer`: its number of GPUs, when it started, the last group
that it joined, and the last one in which it failed."""

TURN = "turn"
"""Statistic of a server that shares its GPU with the learner: the newest `Status.turn` that it obeys."""
