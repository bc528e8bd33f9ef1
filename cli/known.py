"""Names that a user filters by: unknown ones are told with the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from distrl.core.errors import ConfigError

MOST = 50
"""Most names that a message lists."""


def check_known(what: str, asked: str | None, known: Iterable[str]) -> None:
    """Makes sure that there is something of that name.

    Args:
        what: What is asked for, e.g. "template".
        asked: Its name; None: nothing is.

    Raises:
        ConfigError: There is not.
    """
    names = list(dict.fromkeys(known))
    if asked is None or asked in names:
        return
    near = difflib.get_close_matches(asked, names, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    listed = f"There is: {', '.join(names[:MOST])}{', …' if len(names) > MOST else '.'}" if names else ""
    raise ConfigError(f"there is no {what} {asked!r} here.", f"{hint}{listed}".strip() or "Leave it out.")
