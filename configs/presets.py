"""Files that come with distrl, by name: configurations, tables and sweeps."""

from __future__ import annotations

import difflib
from pathlib import Path

from distrl.core.errors import ConfigError


def preset_names(directory: Path) -> list[str]:
    """The names of the presets in `directory`."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def find_file(given: str | Path, directory: Path, what: str) -> Path:
    """The file that `given` names: a path, or the bare name of a preset in `directory`.

    Args:
        given: A path or a name.
        directory: Where the presets are.
        what: What they are, for the error: "table", "sweep".

    Raises:
        ConfigError: There is no such file and no such preset.
    """
    path, known = Path(given), preset_names(directory)
    if path.is_file():
        return path
    if path.name == str(given) and path.stem in known and path.suffix in ("", ".yaml"):
        return directory / f"{path.stem}.yaml"
    problem = f"{path} is a directory, not a file" if path.is_dir() else f"There is no {what} {path}"
    near = difflib.get_close_matches(path.stem, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise ConfigError(f"{problem}.", f"{hint}Give the path of a YAML file, or a preset: {', '.join(known)}.")
