"""What commands print by rich: nothing in it is markup, and nothing controls the terminal."""

import io

import pytest
from rich.table import Table

from distrl.cli.avd.steps import Steps
from distrl.core.terminal import Console

HOSTILE = "a\x1b]0;owned\x07 [/red] [bold]b :smile: \u202e"
SHOWN = "a\\x1b]0;owned\\x07 [/red] [bold]b :smile: \\u202e"


def table() -> Table:
    found = Table(HOSTILE, title=HOSTILE)
    found.add_row(HOSTILE)
    return found


@pytest.mark.parametrize(
    ("show", "count"),
    [
        (lambda console: console.print(HOSTILE), 1),
        (lambda console: console.print(HOSTILE, style="red"), 1),
        (lambda console: console.print(table()), 3),
        (lambda console: Steps(console).say(HOSTILE), 1),
    ],
)
def test_strings_are_shown_as_they_are(show, count) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    show(console)
    text = console.file.getvalue()
    assert text.count(SHOWN) == count
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_step_that_is_under_way_is_shown_as_it_is() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    with Steps(console) as steps:
        steps.begin(HOSTILE)
    assert SHOWN in console.file.getvalue()
    assert "\x1b]" not in console.file.getvalue()
