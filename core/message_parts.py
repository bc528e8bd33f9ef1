"""What messages of several kinds are made of. Import it from `core.messages`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from distrl.core.limits import MAX_NAME
from distrl.core.types import Record

MAX_BLOB_BYTES = 64 * 2**20
MAX_FRAMES = 1024

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A name or an id: one line of printable text."""

Names = Annotated[tuple[Name, ...], Field(max_length=2**16)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Digests = Annotated[tuple[Annotated[str, Field(max_length=MAX_NAME)], ...], Field(max_length=MAX_FRAMES)]
Endpoint = Annotated[
    str,
    Field(
        max_length=MAX_NAME,
        pattern=r"^(tcp://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}|(ipc|inproc)://[^\x00-\x1f\x7f-\x9f]+)?$",
    ),
]
"""An address that others connect to; "" for none."""

Statistic = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
"""A number that a peer reports: sums of them stay finite."""

Statistics = Annotated[dict[Annotated[str, Field(max_length=MAX_NAME)], Statistic], Field(max_length=1024)]


class WeightInfo(Record):
    """Published weights. `kind` is "full" or "adapter"; `digest` is the SHA-256 of their bytes (hex)."""

    version: Count
    digest: Name
    size_bytes: Count
    kind: Literal["full", "adapter"] = "full"
    chunk_bytes: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)] = 4 * 2**20
