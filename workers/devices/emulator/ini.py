"""The emulator's `key=value` files: read as a dict, and changed by key, every other line kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.workers.devices.errors import EmulatorError


def read_ini(path: Path) -> dict[str, str]:
    """The keys and values, in the file's order; of a key that comes twice the last value.

    Raises:
        EmulatorError: If the file cannot be read.
    """
    pairs = (_split(line) for line in _text(path).splitlines())
    return {pair[0]: pair[1] for pair in pairs if pair is not None}


def rewrite_ini(path: Path, change: Callable[[str, str], str | None], target: Path | None = None) -> None:
    """Writes the file anew with changed values.

    Args:
        path: The file to read.
        change: Gives the new value of a key and its value, None to leave the line out.
        target: Where to write; `path` itself when None. The old file stays whole until the new one is.

    Raises:
        EmulatorError: If a file cannot be read or written.
    """
    lines = []
    for line in _text(path).splitlines():
        pair = _split(line)
        if pair is None:
            lines.append(line)
            continue
        value = change(*pair)
        if value == pair[1]:
            lines.append(line)
        elif value is not None:
            left, sign, right = line.partition("=")
            lines.append(f"{left}{sign}{' ' if right.startswith(' ') else ''}{value}")
    _write(target or path, "".join(f"{line}\n" for line in lines))


def write_ini(path: Path, values: Mapping[str, str]) -> None:
    """Writes a file with these keys and values.

    Raises:
        EmulatorError: If it cannot be written.
    """
    _write(path, "".join(f"{key}={value}\n" for key, value in values.items()))


def _split(line: str) -> tuple[str, str] | None:
    key, sign, value = line.partition("=")
    key = key.strip()
    if not sign or not key or key.startswith(("#", ";", "[")):
        return None
    return key, value.strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise EmulatorError(f"{path} cannot be read: {error.strerror}.", "Is the AVD complete?") from error


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.write_text(text, encoding="utf-8", errors="surrogateescape")
        os.replace(fresh, path)
    except OSError as error:
        raise EmulatorError(f"{path} cannot be written: {error.strerror}.", "Is the disk full?") from error
