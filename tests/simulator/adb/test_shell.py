"""The shell's language: what it understands, what it refuses by name, and sessions on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.simulator.adb import shell
from distrl.simulator.adb.android import AndroidSystem

PROGRAMS = {
    # words and quotes
    "echo a  b": "a b\n",
    "echo 'a  $x' \"b  $HOME\"": "a  $x b  /\n",
    r"echo \$HOME a\ b \\": "$HOME a b \\\n",
    'echo "a\\"b\\\\c\\n"': 'a"b\\c\\n\n',
    "echo a''b\"\"c ''": "abc \n",
    "echo a#b # comment": "a#b\n",
    "echo one \\\n two": "one two\n",
    "echo 5$ $ '$'": "5$ $ $\n",
    # variables
    "x=5; echo $x ${x} ${x}y $xy.": "5 5 5y .\n",
    'x=\'a  b\'; echo "$x"; y=$x; echo "$y"': "a  b\na  b\n",
    "x=1 echo $x; export x=2; sh -c 'echo $x'": "\n2\n",
    "false; echo $?; foo 2>/dev/null; echo $?; sh -c 'exit 4'; echo $?": "1\n127\n4\n",
    # lists and pipelines
    "true && echo a || echo b; false && echo a || echo b": "a\nb\n",
    "echo a; # b\n\necho c": "a\nc\n",
    "ps -A | grep init | cut -d ' ' -f 1": "root\n",
    "exit 3 | cat; echo $?": "0\n",
    "echo a; sleep 0.01 & wait $!; echo $?; wait 99999; echo $?": "a\n0\n127\n",
    "sh -c 'exit 3' & wait $!; echo $?": "3\n",
    # redirections
    "echo a > /sdcard/f; echo b >> /sdcard/f; cat < /sdcard/f": "a\nb\n",
    "ls /no 2>&1 | grep -v x; ls /no >/dev/null 2>&1; echo $?": "ls: /no: No such file or directory\n1\n",
    # names of files
    "mkdir /sdcard/d; echo > /sdcard/d/a; echo > /sdcard/d/b; ls /sdcard/d/*": "/sdcard/d/a\n/sdcard/d/b\n",
    "echo D* /sdcard/D*oad /system/et? '*' \"a\"?": "D* /sdcard/Download /system/etc * a?\n",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_print_what_a_posix_shell_prints(sh: Any, program: str) -> None:
    result = sh(program)
    assert (result.out, result.err) == (PROGRAMS[program], "")


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        ("foo a", 127, "foo: inaccessible or not found"),
        ("toybox foo", 127, "foo: inaccessible or not found"),
        ("echo 'a", 2, "no closing quote"),
        ("echo a | | b", 2, "syntax error: unexpected '|'"),
        ("true &&", 2, "syntax error: unexpected end of the line"),
        ("echo > /nope/x", 1, "can't create /nope/x: No such file or directory"),
        ("cat < /nope", 1, "can't open /nope: No such file or directory"),
        ("echo x > /system/x", 1, "can't create /system/x: Read-only file system"),
        ("x='a b'; echo $x", 1, "$x has blanks: quote it, words are not split here"),
        ("exit 300", 44, ""),
        ("exec sh -c 'exit 5'; echo never", 5, ""),
    ],
)
def test_failures_have_a_status_and_a_message(sh: Any, program: str, status: int, message: str) -> None:
    result = sh(program)
    assert (result.status, result.out) == (status, "")
    assert result.err == (f"/system/bin/sh: {message}\n" if message else "")


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("if true; then echo never; fi", "if"),
        ("for i in 1 2; do echo never; done", "for"),
        ("while true; do echo never; done", "while"),
        ("case a in a) echo never;; esac", ")"),
        ("f() { echo never; }", "("),
        ("(echo never)", "("),
        ("{ echo never; }", "{"),
        ("! false", "!"),
        ("[[ a == a ]] && echo never", "[["),
        ("echo $(echo never)", "$("),
        ("echo `echo never`", "`"),
        ('echo "$(echo never)"', "$("),
        ("echo $((1+1))", "$("),
        ("echo ${x:-never}", "${"),
        ("echo $1", "$1"),
        ("cat <<E\nnever\nE", "<<"),
        ("echo never &> /sdcard/f", "&>"),
        ("true && echo never &", "&& … &"),
        ("echo {a,b}", "{a,b}"),
    ],
)
def test_what_the_shell_lacks_runs_nothing_and_is_named(sh: Any, program: str, named: str) -> None:
    result = sh(f"echo never; {program}")
    assert (result.status, result.out) == (2, "")
    assert f"syntax error: '{named}' is not supported by the simulated phone's shell\n" in result.err


@pytest.mark.parametrize(
    "command",
    [
        "ls -R /",
        "grep -o a",
        "cut -c 1",
        "am instrument x",
        "pm dump x",
        "logcat -v json -d",
        "id",
        "echo -e a",
        "getprop a b",
        "ps aux",
        "dumpsys battery set level 5",
        "wait",
        "rm",
    ],
)
def test_options_that_commands_lack_are_refused(sh: Any, command: str) -> None:
    result = sh(command)
    assert result.status != 0
    assert result.err


@given(st.text(st.sampled_from("ab1 \t\n\r'\"\\$`;&|<>(){}#*?[]=!~é-"), max_size=14))
@settings(max_examples=500, deadline=None)
def test_any_text_parses_or_is_a_syntax_error(text: str) -> None:
    with contextlib.suppress(shell.ShellError):
        for pipeline in shell.parse(text):
            assert all(each.words or each.assignments or each.redirections for each in pipeline.commands)


def test_bytes_that_are_not_text_survive(sh: Any) -> None:
    data = bytes(range(256)) * 600
    assert sh("cat", data).data == data
    assert sh("cat | cat | cat", data).data == data
    assert sh("cat > /data/local/tmp/b; cat /data/local/tmp/b", data).data == data
    assert sh("echo \udcff").data == b"\xff\n"


def test_an_interactive_shell_goes_on_after_errors(sh: Any) -> None:
    lines = b"echo a\nfoo\nif true\necho $?\necho 'b\nc'\necho d |\ngrep d\nexit 4\necho never\n"
    result = sh("", lines)
    assert (result.out, result.status) == ("a\n2\nb\nc\nd\n", 4)
    assert "foo: inaccessible" in result.err
    assert "'if' is not supported" in result.err
    assert sh("", b"echo a", tty=True).err.startswith("simphone:/ $ ")


def test_what_a_nested_shell_runs_in_the_background_ends_before_the_session(sh: Any) -> None:
    assert sh("sh -c 'sh -c \"sleep 0.02; echo late\" &'; echo first").out == "first\nlate\n"


def test_a_session_may_run_many_commands_in_the_background_but_not_at_once(sh: Any) -> None:
    assert sh("", b"true &\nsleep 0.001\n" * (shell.MAX_JOBS + 1)).err == ""
    assert "cannot fork" in sh("sleep 0.1 & " * shell.MAX_JOBS + "sh -c 'sleep 0.1 &'").err


def test_a_command_whose_reader_is_gone_ends_in_silence(phone: AndroidSystem, sh: Any) -> None:
    phone.files.write("/sdcard/big", bytes(3 * shell.PIPE_BYTES))
    for command in ("cat /sdcard/big", "cat /sdcard/big /sdcard/big"):
        assert sh(f"{command} | true").err == ""


def test_a_line_without_end_is_refused(sh: Any) -> None:
    assert "a line of more than" in sh("grep -v b", bytes(2 << 20)).err


class Silent:
    """Streams without input, whose output is kept."""

    def __init__(self) -> None:
        self.got = bytearray()

    async def read(self, size: int) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def out(self, data: bytes) -> None:
        self.got += data

    async def err(self, data: bytes) -> None: ...


def test_cancelling_ends_everything_that_runs(phone: AndroidSystem) -> None:
    """A client that closes its stream cancels the command, whatever it is waiting for."""

    async def go() -> None:
        for command in (
            *("cat", "sleep 100 | cat", "sleep 100 & wait $!", "logcat | grep x"),
            *("sh -c 'sleep 100 &'", "sh -c 'sleep 100 &' | cat; cat"),
        ):
            task = asyncio.ensure_future(shell.run(phone, command, Silent()))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(go())
