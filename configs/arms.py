"""The arms of a sweep: the points of its grid, their names, and their values in a configuration."""

from __future__ import annotations

import copy
import difflib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distrl.core.errors import ConfigError

RESERVED = {
    "name": "a run is named by its arm and seed",
    "runs_dir": "runs lie in the sweep's directory; set it in the base, or with --runs-dir",
    "seed": "list them under `seeds`",
}
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def points(
    arms: Mapping[str, Mapping[str, Any] | None], grid: Mapping[str, Sequence[Any]], source: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and values of each arm; with a grid, of each of its points.

    Args:
        arms: What each changes; without any, the base is the only one.
        grid: Key → values.
        source: What to call the file in an error.

    Raises:
        ConfigError: Two have one name.
    """
    seen: set[str] = set()
    labels = _labels(list(grid))
    for arm, values in (arms or {"": None}).items():
        for point in itertools.product(*grid.values()):
            chosen = dict(zip(grid, point, strict=True))
            words = [arm] if arm else []
            words += [f"{labels[key]}={_word(value)}" for key, value in chosen.items()]
            name = ",".join(words) or "base"
            if name.casefold() in seen:
                raise ConfigError(f"{source}: two arms are called {name!r}.", "Name them under `arms`.")
            seen.add(name.casefold())
            yield name, {**(values or {}), **chosen}


def _labels(keys: Sequence[str]) -> dict[str, str]:
    """A short name of each key: as many of its last parts as tell it from the others."""
    parts = {key: key.split(".") for key in keys}
    labels = {}
    for key, own in parts.items():
        others = [other for name, other in parts.items() if name != key]
        count = 2 if own[-1].isdigit() and len(own) > 1 else 1
        while count < len(own) and any(other[-count:] == own[-count:] for other in others):
            count += 1
        labels[key] = ".".join(own[-count:])
    return labels


def _word(value: Any) -> str:
    """A value as a part of a directory's name."""
    text = value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, int | float):
        return text
    return _UNSAFE.sub("-", text).strip("-") or "none"


def choose(
    points: Mapping[str, dict[str, Any]], arms: Mapping[str, Any], wanted: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    """Those of `points` that are wanted: by their own name, or by that of their arm.

    Raises:
        ConfigError: There is no arm of that name.
    """
    if wanted is None:
        return dict(points)
    known = {*points, *arms}
    names = [name for want in wanted for name in ([want] if want in known else want.split(","))]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = (
                f"Did you mean {near[0]}?" if near else f"There are: {', '.join(list(arms or points)[:20])}."
            )
            raise ConfigError(f"The sweep has no arm {name!r}.", hint)
    prefixes = tuple(f"{name}," for name in names if name in arms)
    return {point: values for point, values in points.items() if point in names or point.startswith(prefixes)}


def with_values(data: Mapping[str, Any], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A copy of `data` with `values` at their dotted keys; numbers are places in lists.

    Sections merge, except that one with a `kind` replaces what was there.

    Raises:
        ConfigError: A key is reserved, or leads through a plain value.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    for key, value in values.items():
        if key in RESERVED:
            raise ConfigError(f"{source}: `{key}` cannot be set in a sweep: {RESERVED[key]}.")
        _assign(changed, key.split("."), value, f"{source}: `{key}`")
    return changed


def _assign(data: Any, path: Sequence[str], value: Any, what: str) -> None:
    first, rest = path[0], path[1:]
    if isinstance(data, list):
        if not first.isdecimal() or int(first) >= len(data):
            raise ConfigError(f"{what}: {first!r} is no place in a list of {len(data)}.", "Count from 0.")
        index: Any = int(first)
    elif isinstance(data, dict):
        index = first
        data.setdefault(first, None)
    else:
        raise ConfigError(f"{what} leads through {data!r}, which is no section.", "Set that key itself.")
    if rest:
        data[index] = {} if data[index] is None else data[index]
        _assign(data[index], rest, value, what)
    elif isinstance(value, dict) and isinstance(data[index], dict) and "kind" not in value:
        for key, inner in value.items():
            _assign(data[index], [key], inner, what)
    else:
        data[index] = copy.deepcopy(value)
