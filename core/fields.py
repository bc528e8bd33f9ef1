"""Fields that a configuration, a task or a message passes on as they are, checked against a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from distrl.core.errors import ConfigError

_Model = TypeVar("_Model", bound=BaseModel)


def read_fields(model: type[_Model], fields: Mapping[str, object] | _Model | None, name: str) -> _Model:
    """The settings that `fields` give; the defaults for None, and settings as they are.

    Args:
        model: What the fields are those of; its docstring tells the user.
        fields: From the configuration.
        name: The key that they are given under.

    Raises:
        ConfigError: One is unknown or wrong.
    """
    if isinstance(fields, model):
        return fields
    try:
        return model.model_validate(fields or {})
    except ValidationError as error:
        raise ConfigError(
            f"{first_problem(error, name)}.", f"See {model.__module__}.{model.__name__}."
        ) from error


def first_problem(error: ValidationError, *within: str) -> str:
    """What is wrong first: the path of the field, below `within`, and what its value should be."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in (*within, *first["loc"]))
    return f"{path}: {first['msg']}" if path else first["msg"]
