"""What messages of several kinds are made of. Import it from `core.messages`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from distrl.core.types import Record

MAX_BLOB_BYTES = 64 * 2**20

Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class WeightInfo(Record):
    """Published weights. `kind` is "full" or "adapter"; `digest` is the SHA-256 of their bytes (hex).

    `chunk_list` is the SHA-256 (hex) of a list that is fetched as if it were weights: the SHA-256 (32 bytes)
    of each chunk of `chunk_bytes`. Weights of a single chunk have none.
    """

    version: Count
    digest: Name
    size_bytes: Count
    kind: Literal["full", "adapter"] = "full"
    chunk_bytes: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)] = 4 * 2**20
    chunk_list: Annotated[str, Field(max_length=200)] = ""
