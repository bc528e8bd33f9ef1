"""Making environments and agents from a configuration's `options`, with errors that name the option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from distrl.core.errors import ConfigError


def check_options(make: Callable[..., Any], options: Mapping[str, Any], section: str) -> None:
    """Makes sure that `make` can be called with `options`, without calling it. Arguments as of `build`.

    Raises:
        ConfigError: It takes no such option, or misses one.
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
        section: The configuration section that they stand in, e.g. "env".

    Raises:
        ConfigError: If `make` takes no such option, misses one, or refuses a value with a ValueError.
    """
    check_options(make, options, section)
    name = getattr(make, "__name__", str(make))
    try:
        return make(**options)
    except ValueError as error:
        raise ConfigError(f"{section}.options: {name}: {error}.", "Correct the value.") from error
