"""The rich console that commands print to."""

from __future__ import annotations

from typing import Any

from rich.console import Console as RichConsole
from rich.text import Text

from distrl.core.logs import printable


class Console(RichConsole):
    """Shows strings, also those in tables, as they are: no markup, and control characters escaped.

    A `Text` is shown as rich does; make those of other people's words by `render_str`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The `Text` of a string."""
        return super().render_str(printable(text), **options)
