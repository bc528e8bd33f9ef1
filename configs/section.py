"""What all sections of the configuration are made of: their base, and numbers with ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]


def _count_or_auto(value: Any) -> Any:
    if value == "auto" or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"{value!r} is neither a positive integer nor 'auto'")


CountOrAuto = Annotated[Count | Literal["auto"], BeforeValidator(_count_or_auto)]
"""`auto` is what `distrl train` chooses for the GPUs of its machine (`distrl.cli.local.plan`)."""

CUSTOM = "custom"
"""The kind of a section that names a class of the user's own by `import_path`."""


def one_of(default: str) -> BeforeValidator:
    """Goes with a union of sections that differ by `kind`: `grpo` alone means `{kind: grpo}`, and a
    section without a kind has the default one, or `custom` if it has an `import_path`."""

    def with_kind(value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, dict) and "kind" not in value:
            return {"kind": CUSTOM if value.get("import_path") else default, **value}
        return value

    return BeforeValidator(with_kind)


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(extra="forbid", validate_default=True)
