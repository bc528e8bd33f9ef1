"""Logging: plain lines with time, level and role, to stderr and to a file when one is named."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

_FORMAT = "{asctime}.{msecs:03.0f} {levelname:<7} {role} {name}: {message}"


def setup(log_file: Path | None = None, level: str = "INFO", role: str = "distrl") -> None:
    """Sends this process's log to stderr and, if given, appends it to `log_file`.

    The model hub's library tells each try of each request, and by a handler of its own a second time: errors
    alone are told, unless HF_HUB_VERBOSITY asks for more.

    Args:
        log_file: Created with its folders.
        level: A name that `logging` knows, e.g. "INFO".
        role: Who speaks, e.g. "learner" or "worker-0"; stands in every line.
    """
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h.formatter, _RoleFormatter)]:
        root.removeHandler(handler)
        handler.close()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(log_file, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(_RoleFormatter(role))
        root.addHandler(handler)
    root.setLevel(level.upper())
    if "HF_HUB_VERBOSITY" not in os.environ:
        os.environ["HF_HUB_VERBOSITY"] = "error"  # read when the library is imported, here and in children
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


class _RoleFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__(_FORMAT, datefmt="%Y-%m-%d %H:%M:%S", style="{", defaults={"role": role})
