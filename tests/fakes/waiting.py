"""Waiting for what only looking can tell: files and states of other processes. Else there are events."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_S = 0.02


def until(
    holds: Callable[[], object],
    what: str = "what was waited for",
    deadline_s: float = 60.0,
    meanwhile: Callable[[], object] = lambda: None,
    details: Callable[[], str] = str,
) -> None:
    """Returns as soon as `holds` is true.

    Args:
        holds: Looks.
        what: Named by the failure.
        deadline_s: It fails after this long.
        meanwhile: Called between two looks; may raise if there is nothing to wait for any more.
        details: What else the failure tells.

    Raises:
        AssertionError: It did not come true in time.
    """
    deadline = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come within {deadline_s:g} s\n{details()}"
        meanwhile()
        time.sleep(LOOK_S)
