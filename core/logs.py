"""Logging: plain lines with time, level and role, to stderr and to a file when one is named."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path

import distrl

_CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
"""Control characters but for tab and line feed, marks and overrides of writing direction, lone surrogates."""

_FORMAT = "{asctime}.{msecs:03.0f} {levelname:<7} {role} {name}: {message}"
_PAGE = re.compile(r"(?<![\w/])(?:simulator/)?docs/[a-z-]+\.md")


def setup(log_file: Path | None = None, level: str = "INFO", role: str = "distrl") -> None:
    """Sends this process's log to stderr and, if given, appends it to `log_file`.

    The model hub's library logs each try of each request, and a second time through a handler of its own.
    Only its errors are logged, unless HF_HUB_VERBOSITY is set.

    Args:
        role: The process, e.g. "learner" or "worker-0"; stands in every line.
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


def with_pages(text: str) -> str:
    """`text` with each "docs/PAGE.md" (and "simulator/docs/PAGE.md") replaced by its installed path."""
    return _PAGE.sub(lambda found: str(Path(distrl.__file__).parent / found[0]), text)


def printable(text: str) -> str:
    """`text` as it may go to a terminal: what would control it, or reorder its letters, is escaped.

    Names, goals, answers and reasons come from files and from other machines. Line ends and tabs stay; for
    what must be one line, use `one_line`.
    """
    return _CONTROL.sub(_escaped, text)


def one_line(text: str) -> str:
    """As `printable`, with line ends and tabs escaped too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class _RoleFormatter(logging.Formatter):
    """Formats a record as one line; a traceback follows in lines of its own."""

    def __init__(self, role: str) -> None:
        super().__init__(_FORMAT, datefmt="%Y-%m-%d %H:%M:%S", style="{", defaults={"role": role})

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(with_pages(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
