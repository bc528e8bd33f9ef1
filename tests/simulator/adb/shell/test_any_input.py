"""Whatever is asked of the shell, it answers with output and a status: never an exception, never for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.simulator.adb.shell.commands import NAMES
from distrl.simulator.adb.shell.lexer import ShellSyntaxError
from distrl.simulator.adb.shell.parser import parse

TOKENS = """
a b x=1 $x ${x} ${x:-y} $(echo ` ' " \\ ( ) { } ; ;; & && | || ! < > >> 2>&1 <<E E # if then else fi for in
while do done case esac * ? [ ] $(( )) 1 + - / ~ echo cat true
"""
SYNTAX = st.lists(st.sampled_from([*TOKENS.split(), " ", "\n", "\t"]), max_size=14).map(
    lambda parts: " ".join(parts) if len(parts) % 2 else "".join(parts)
)
ENDLESS = {"yes", "logcat", "sleep", "usleep", "reboot"}
WORDS = """
-a -c -d -e -f -l -n -p -r -s -t -v -1 -- --x - + 0 1 5 -3 1e9 99999999999999999999 a a.b /sdcard
/nope .. %s %d é 😀 /data/local/tmp/f list get put set enable start install size dump load night
windows top keyevent text tap swipe global system key value org.simphone.notes
org.simphone.notes/.MainActivity x/y s/a/b/ [ ] ! = +%Y @5 {} ; -S 10 -k 1,3 -exec -name *
"""
ARGUMENTS = st.lists(
    st.sampled_from(WORDS.split())
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    max_size=6,
)


@given(SYNTAX)
@settings(max_examples=300, deadline=None)
def test_any_text_parses_or_is_a_syntax_error(text: str) -> None:
    problem = "none"
    try:
        parse(text)
    except ShellSyntaxError as error:
        problem = str(error)
    assert problem


@given(SYNTAX.filter(lambda text: "while" not in text))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_program_ends_with_a_status(sh: Any, text: str) -> None:
    assert 0 <= sh(text).status <= 255


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ENDLESS])
@given(ARGUMENTS, st.binary(max_size=30))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_command_takes_any_arguments(sh: Any, name: str, arguments: list[str], stdin: bytes) -> None:
    quoted = " ".join("'" + argument.replace("'", "'\\''") + "'" for argument in arguments)
    assert 0 <= sh(f"'{name}' {quoted}", stdin).status <= 255
