"""Finding classes by name: `pkg.mod:Name` import paths, and plain dicts that map a short name to one."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from distrl.core.errors import ConfigError, MissingDependency


def look_in(directory: Path) -> None:
    """Lets modules in `directory` be imported; what is installed is found first, so that none can hide it."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "Did you mean 'x'? " for the nearest of the known names; "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""


def import_object(path: str) -> Any:
    """The object that "pkg.mod:Name" names; "pkg.mod:Outer.inner" works too.

    Modules of the user's are also found in the current directory, and in the folders given to `look_in`.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{path!r} is not an import path.", 'Write it as "package.module:Name".')
    if not module_name.startswith("distrl."):
        look_in(Path.cwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ConfigError(
                f"{path!r}: there is no module {missing}, neither installed nor beside the configuration "
                "file nor in the current directory.",
                "Check the spelling, or set modules_dir to its folder.",
            ) from error
        raise MissingDependency(
            f"{path!r} needs the package {missing}.", f"Install it, for example: pip install {missing}."
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, dir(found))
            raise ConfigError(f"{path!r}: {module_name} has no {part}.", f"{hint}Correct the name.")
        found = getattr(found, part)
    return found


def choose(registry: Mapping[str, str], kind: str, import_path: str | None = None) -> Any:
    """What a configuration section names by `kind`, or by `import_path` if that is set."""
    if import_path:
        return import_object(import_path)
    check_kind(registry, kind)
    return import_object(registry[kind])


def check_kind(registry: Mapping[str, str], kind: str, key: str = "kind") -> None:
    """Raises ConfigError if `registry` has no `kind`, which the configuration's `key` holds."""
    if kind not in registry:
        raise ConfigError(
            f"`{key}` is {kind!r}, which does not exist.",
            f"{did_you_mean(kind, registry)}Use one of {', '.join(sorted(registry))}, or a class of your own "
            "by its import path.",
        )
