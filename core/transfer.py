"""Weights from GPU to GPU, and turns on one GPU: what the learner and its inference servers say of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from distrl.core.slot_view import Count, ShortText
from distrl.core.types import Record


class Transfer(Record):
    """A group of GPUs that receive full weights from the learner's, see `distrl.learner.transfer`.

    Attributes:
        group: Its number; a later group has a larger one.
        host, port: Where the ranks meet: at the learner.
        offsets: By a server's name the rank of its first GPU; the learner is rank 0 of `num_ranks`.
        layout: A digest of the tensors' names, types and shapes (`weights_io.layout`).
        version: What is being sent, or was sent last; 0: the servers join.
    """

    group: Count
    host: ShortText
    port: Annotated[int, Field(ge=1, le=65535)]
    num_ranks: Count
    offsets: dict[str, Count]
    layout: ShortText
    version: Count = 0


RANKS, GROUP, DONE = "transfer_ranks", "transfer_group", "transfer_done"
"""Statistics of a server that can receive a `Transfer`: its number of GPUs, the group in which it took part
last, and the version that it has of it (0: it has joined, -1: it failed)."""

TURN = "turn"
"""Statistic of a server that shares its GPU with the learner: the newest `Status.turn` that it obeys."""
