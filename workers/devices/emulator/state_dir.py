"""Where this tool keeps what all its processes of one user must know: claims, started processes, logs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from distrl.core.errors import ConfigError

VARIABLE = "DISTRL_STATE_DIR"


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory, made if it is not there, for its owner only.

    It is `$DISTRL_STATE_DIR`, else `$XDG_STATE_HOME/distrl`, else `~/.local/state/distrl`.

    Raises:
        ConfigError: If it cannot be made.
    """
    named, xdg = environ.get(VARIABLE), environ.get("XDG_STATE_HOME")
    home = Path(environ.get("HOME") or Path.home())
    path = Path(named) if named else (Path(xdg) if xdg else home / ".local" / "state") / "distrl"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the state directory {path} cannot be made: {error.strerror}.",
            f"Set {VARIABLE} to a directory of yours.",
        ) from error
    return path
