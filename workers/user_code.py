"""Calls into users' classes: options, methods and return values are checked, and errors name them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, SupportsFloat, TypeVar

from distrl.core.errors import ConfigError, OwnCodeError

HOW = "See docs/extending.md."
_Kind = TypeVar("_Kind")
_Takes = ParamSpec("_Takes")


def call(
    kind: type[_Kind], method: Callable[_Takes, _Kind], *given: _Takes.args, **named: _Takes.kwargs
) -> _Kind:
    """What `method` returns.

    Raises:
        OwnCodeError: The value is not a `kind`, or `method` does not accept the arguments.
    """
    try:
        value = method(*given, **named)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # raised inside the method, not by the call
        raise OwnCodeError(f"{name_of(method)} cannot be called: {error}.", HOW) from error
    if isinstance(value, kind):
        return value
    what = "None" if value is None else f"a {type(value).__name__}"
    raise OwnCodeError(f"{name_of(method)} returned {what} instead of {kind.__name__}.", HOW)


def score_of(evaluate: Callable[[], float]) -> float:
    """What an environment's `evaluate` returns.

    Raises:
        OwnCodeError: It is not a number in [0, 1].
    """
    value: object = call(object, evaluate)
    score = float(value) if isinstance(value, SupportsFloat) else math.nan
    if 0.0 <= score <= 1.0:
        return score
    raise OwnCodeError(f"{name_of(evaluate)} returned {repr(value)[:40]}, not a score in [0, 1].", HOW)


def check_methods(made: object, interface: type, path: str) -> None:
    """Checks that an object made from an import path has all methods of an interface.

    Raises:
        ConfigError: Methods are missing.
    """
    wanted = [name for name, value in vars(interface).items() if callable(value) and name[0] != "_"]
    lacking = [name for name in wanted if not callable(getattr(made, name, None))]
    if lacking:
        raise ConfigError(f"{path} lacks the method{'s' * (len(lacking) > 1)} {', '.join(lacking)}.", HOW)


def name_of(method: Callable[..., Any]) -> str:
    """ "my_env:Clicker.step"."""
    owner = type(getattr(method, "__self__", None))
    return f"{owner.__module__}:{owner.__qualname__}.{getattr(method, '__name__', '?')}"


def check_options(make: Callable[..., Any], options: Mapping[str, Any], section: str) -> None:
    """Checks that `make` can be called with `options`, without calling it. Arguments as of `build`.

    Raises:
        ConfigError: An option is unknown or missing.
    """
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        name = getattr(make, "__name__", str(make))
        takes = ", ".join(signature.parameters) or "none"
        raise ConfigError(f"{section}.options: {name}: {error}.", f"Its options are: {takes}.") from error


def build(make: Callable[..., Any], options: Mapping[str, Any], section: str) -> Any:
    """Calls `make` with `options` as keyword arguments.

    Args:
        make: A class or function that the configuration chose.
        options: Its keyword arguments.
        section: The configuration section that contains them, e.g. "env".

    Raises:
        ConfigError: An option is unknown or missing, or `make` rejects a value with a ValueError.
    """
    check_options(make, options, section)
    name = getattr(make, "__name__", str(make))
    try:
        return make(**options)
    except ValueError as error:
        raise ConfigError(f"{section}.options: {name}: {error}.", "Correct the value.") from error
