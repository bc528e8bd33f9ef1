"""What all sections of the configuration are made of: their base, and numbers with ranges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    def refuse_idle(self, names: Iterable[str], reason: str) -> None:
        """Refuses keys that do nothing here, unless they are as ever: a saved configuration has them all.

        Raises:
            ValueError: One of them is not as ever.
        """
        for name in names:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(f"{name}={value} would do nothing: {reason}; leave {name} out")
