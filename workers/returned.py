"""What environments and agents return is checked where it is used: own classes make mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ParamSpec, SupportsFloat, TypeVar

from distrl.core.errors import ConfigError, OwnCodeError

HOW = "docs/extending.md shows how it is written."
_Kind = TypeVar("_Kind")
_Takes = ParamSpec("_Takes")


def call(
    kind: type[_Kind], method: Callable[_Takes, _Kind], *given: _Takes.args, **named: _Takes.kwargs
) -> _Kind:
    """What `method` returns.

    Raises:
        OwnCodeError: It is no `kind`, or `method` does not take what it is given.
    """
    try:
        value = method(*given, **named)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # from within
        raise OwnCodeError(f"{name_of(method)} cannot be called: {error}.", HOW) from error
    if isinstance(value, kind):
        return value
    what = "None" if value is None else f"a {type(value).__name__}"
    raise OwnCodeError(f"{name_of(method)} returned {what} instead of {kind.__name__}.", HOW)


def score_of(evaluate: Callable[[], float]) -> float:
    """What an environment's `evaluate` returns.

    Raises:
        OwnCodeError: It is no number in [0, 1].
    """
    value: object = call(object, evaluate)
    score = float(value) if isinstance(value, SupportsFloat) else math.nan
    if 0.0 <= score <= 1.0:
        return score
    raise OwnCodeError(f"{name_of(evaluate)} returned {repr(value)[:40]}, not a score in [0, 1].", HOW)


def check_methods(made: object, interface: type, path: str) -> None:
    """Makes sure that what an import path made has all methods of an interface.

    Raises:
        ConfigError: It lacks some.
    """
    wanted = [name for name, value in vars(interface).items() if callable(value) and name[0] != "_"]
    lacking = [name for name in wanted if not callable(getattr(made, name, None))]
    if lacking:
        raise ConfigError(f"{path} lacks the method{'s' * (len(lacking) > 1)} {', '.join(lacking)}.", HOW)


def name_of(method: Callable[..., Any]) -> str:
    """ "my_env:Clicker.step"."""
    owner = type(getattr(method, "__self__", None))
    return f"{owner.__module__}:{owner.__qualname__}.{getattr(method, '__name__', '?')}"
