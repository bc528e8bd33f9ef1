"""The steps of a command that takes a while: a line that moves on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.status import Status

from distrl.core.terminal import Console

_LINE_EVERY_S = 10.0


class Steps:
    """Shows one step after another; a context manager.

    Args:
        console: Where to; standard error when None.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status: Status | None = None
        self._text = ""
        self._has_failed = False
        self._began_at = 0.0
        self._next_line = 0.0

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end("failed after" if kind is not None and not self._has_failed else "")

    def begin(self, text: str) -> None:
        """Ends the present step and begins another; on the way out of an error the present one has failed."""
        self._has_failed = sys.exc_info()[0] is not None
        self._end("failed after" if self._has_failed else "")
        self._text, self._began_at = text, time.monotonic()
        self._next_line = self._began_at + _LINE_EVERY_S
        if self._console.is_terminal:
            self._status = self._console.status(self._console.render_str(text))
            self._status.start()

    def bytes_done(self, done: int, total: int) -> None:
        """Shows how far the present step is; call it often."""
        share = f"{done / total:4.0%} of {size(total)}" if total else ""
        if self._status is not None:
            self._status.update(self._console.render_str(f"{self._text} {share}"))
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_S
            self._print(f"{self._text} {share}")

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, soft_wrap=True)

    def _end(self, how: str = "") -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._text:
            self._print(f"{self._text}: {how} {time.monotonic() - self._began_at:.1f} s".replace(":  ", ": "))
        self._text = ""

    def _print(self, text: str) -> None:
        self._console.print(text, style="red" if " failed after " in text else None, soft_wrap=True)


def size(num_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB"
