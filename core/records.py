"""The base of all records."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all records: immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Number = Annotated[float, Field(allow_inf_nan=False)]
