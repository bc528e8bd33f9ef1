"""The shell's language: quoting, expansion, pipelines, redirection, control flow, errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distrl.simulator.adb import shell
from distrl.simulator.adb.android import AndroidSystem

PROGRAMS = {
    # words and quotes
    "echo a  b": "a b\n",
    "echo 'a  $x' \"b  $((1+1))\"": "a  $x b  2\n",
    r"echo \$HOME a\ b \\": "$HOME a b \\\n",
    'echo "a\\"b\\\\c\\n"': 'a"b\\c\\n\n',
    "echo a''b\"\"c ''": "abc \n",
    r"echo $'a\tb\x41\''": "a\tbA'\n",
    "echo a#b # comment": "a#b\n",
    "echo one \\\n two": "one two\n",
    "printf '[%s]' \"\" a": "[][a]",
    # parameters
    "x=5; echo $x ${x} ${x}y $xy.": "5 5 5y .\n",
    "echo ${a:-d} ${a-d} [${a:+e}]; a=; echo ${a:-d} [${a-d}]": "d d []\nd []\n",
    "echo ${b:=7} $b ${#b}": "7 7 1\n",
    "f=/a/b.tar.gz; echo ${f##*/} ${f#*/} ${f%.*} ${f%%.*}": "b.tar.gz a/b.tar.gz /a/b.tar /a/b\n",
    "v=abcabc; echo ${v/b/X} ${v//b/X} ${v//[ac]}": "aXcabc aXcaXc bb\n",
    'set -- a "b c" d; echo $# $2; for i in "$@"; do echo "<$i>"; done; shift; echo $1': (
        "3 b c\n<a>\n<b c>\n<d>\nb c\n"
    ),
    'x=\'a  b\'; echo $x; echo "$x"; IFS=:; y=1:2; echo $y "$y"': "a b\na  b\n1 2 1:2\n",
    "x=1; x=2 sh -c 'echo $x'; echo $x; export x; sh -c 'echo $x'": "2\n1\n1\n",
    # substitution and arithmetic
    "echo $(echo $(echo deep)) `echo back`": "deep back\n",
    "echo \"$(printf 'a\\n\\n')\"b": "ab\n",
    "i=3; echo $((i*2+1)) $((i<<2|1)) $((i>2?10:20)) $((-7/2)) $((-7%3))": "7 13 10 -3 -1\n",
    "echo $((0x10)) $((08+1)) $((2147483647+1))": "16 9 -2147483648\n",
    "echo $((i=4, i+=2)) $i; let i=i*2; echo $i": "6 6\n12\n",
    # lists and pipelines
    "true && echo a || echo b; false && echo a || echo b": "a\nb\n",
    "! true; echo $?; ! false; echo $?": "1\n0\n",
    "seq 1000 | grep 9 | wc -l": "271\n",
    "false; echo $?; foo 2>/dev/null; echo $?; x=$(exit 4); echo $?": "1\n127\n4\n",
    "(exit 3); echo $?; (x=1; cd /data); echo [$x] $PWD": "3\n[] /\n",
    "yes | head -n 2": "y\ny\n",
    "echo a; sleep 0.01 & wait; echo b": "a\nb\n",
    "(exit 3) & wait $!; echo $?; (exit 4) & true; wait; echo $?; wait 99999; echo $?": "3\n0\n127\n",
    "{ sleep 0.01; echo a; } >/data/local/tmp/o 2>&1 & wait $!; echo $? $(cat /data/local/tmp/o)": "0 a\n",
    "for i in $(seq 70); do true & wait $!; done; echo ok": "ok\n",
    "{ echo a; echo b; } | tr a-z A-Z": "A\nB\n",
    # redirection
    "cd /data/local/tmp; echo a > f; echo b >> f; cat < f; wc -l < f": "a\nb\n2\n",
    "ls /nope 2>&1 | cut -d: -f1; ls /nope >/dev/null 2>&1; echo $?": "ls\n1\n",
    "{ echo o; echo e >&2; } 2>/dev/null; { echo o; echo e >&2; } &>/dev/null": "o\n",
    "cat <<E\na $((1+1))\nE\ncat <<'E'\n$x\nE\necho c": "a 2\n$x\nc\n",
    "cat <<-E | tr a b\n\ta\n\tE": "b\n",
    "exec 3>/data/local/tmp/g; echo x >&3; cat /data/local/tmp/g": "x\n",
    # control flow
    "if false; then echo a; elif true; then echo b; else echo c; fi": "b\n",
    "for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done": "1\n3\n",
    "for i in a b; do for j in 1 2; do break 2; done; done; echo $i$j": "a1\n",
    "i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i; done; until [ $i = 0 ]; do i=0; done": "1\n2\n3\n",
    "case abc in x|y) echo 1;; a*) echo 2;; *) echo 3;; esac": "2\n",
    "case '*' in '?') echo 1;; \\*) echo 2;; esac": "2\n",
    "printf 'a b\\nc\\n' | while read x y; do echo \"$y-$x\"; done": "b-a\n-c\n",
    "f() { echo $1 $#; return 3; }; f a b; echo $?; function g { echo g; }; g": "a 2\n3\ng\n",
    "f() { x=in; }; x=out; f; echo $x; (f; x=sub); echo $x": "in\nin\n",
    "set -e; false || true; if false; then :; fi; echo on; false; echo never": "on\n",
    "eval 'x=1; echo $x'; sh -c 'echo $0 $1' zero one; echo 'echo $((1+1))' | sh": "1\nzero one\n2\n",
    # names of files
    "cd /data/local/tmp; touch a1 a2 b1 .h; echo a* [ab]1 *.no '*' \"a\"?": "a1 a2 a1 b1 *.no * a1 a2\n",
    "cd /data/local/tmp; touch f1 f_ 'f '; echo f[[:digit:]] f[![:alnum:]] f[[:digit:]_]": "f1 f  f_ f1 f_\n",
    "v=a]b1; echo ${v#a[]]} ${v%[[:digit:]]} ${v//[!a-z]} ${v/[z-a]/x} ${v/[/x}": "b1 a]b ab a]b1 a]b1\n",
    "cd /sdcard; echo D*/ /system/et?": "DCIM/ Documents/ Download/ /system/etc\n",
    # conditions
    "[ -d /sdcard -a ! -f /sdcard ] && [ -z '' ] && test a != b && [ 2 -gt 1 ] && echo ok": "ok\n",
    "x='a b'; [[ abc == a* ]] && [[ $x != b* ]] && [ a ] && [ ! '' ] && echo ok": "ok\n",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_print_what_a_posix_shell_prints(sh: Any, program: str) -> None:
    result = sh(program)
    assert result.out == PROGRAMS[program]
    assert result.err == ""


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        ("foo a", 127, "/system/bin/sh: foo: inaccessible or not found\n"),
        ("/data/foo", 127, "/system/bin/sh: /data/foo: inaccessible or not found\n"),
        ("/sdcard", 126, "/system/bin/sh: /sdcard: can't execute: Is a directory\n"),
        ("echo 'a", 1, "/system/bin/sh: no closing quote\n"),
        ("if true; then", 1, "/system/bin/sh: syntax error: unexpected EOF\n"),
        ("echo a )", 1, "/system/bin/sh: syntax error: unexpected ')'\n"),
        ("| a", 1, "/system/bin/sh: syntax error: unexpected '|'\n"),
        ("fi", 1, "/system/bin/sh: syntax error: unexpected 'fi'\n"),
        ("echo > /nope/x", 1, "/system/bin/sh: can't create /nope/x: No such file or directory\n"),
        ("cat < /nope", 1, "/system/bin/sh: can't open /nope: No such file or directory\n"),
        ("echo x > /system/x", 1, "/system/bin/sh: can't create /system/x: Read-only file system\n"),
        ("cd /nope", 2, "cd: /nope: No such file or directory\n"),
        ("echo $((1/0))", 1, "/system/bin/sh: 1/0: zero divisor\n"),
        ("echo ${x:?gone}", 1, "/system/bin/sh: x: gone\n"),
        ("exit 300", 44, ""),
        ("exec sh -c 'exit 5'; echo never", 5, ""),
    ],
)
def test_failures_have_the_status_and_the_words_of_the_phones_shell(
    sh: Any, program: str, status: int, message: str
) -> None:
    result = sh(program)
    assert (result.status, result.err, result.out) == (status, message, "")


@pytest.mark.parametrize(
    "program",
    [
        "trap 'rm x' EXIT; echo never",
        "alias ll='ls -l'; echo never",
        "umask 077; echo never",
        "set -x; echo never",
        "set -euo pipefail; echo never",
        "echo {a,b}; echo never",
        "mkdir -p /data/local/tmp/{a,'b c'}",
        "for i in {$HOME,b}; do echo never; done",
        "a=(1 2); echo never",
        "select x in never; do echo $x; break; done",
        "[[ a == a && b == b ]] && echo never",
        "(trap 'echo never' EXIT) && echo never",
    ],
)
@pytest.mark.parametrize("way", ["argument", "input"])
def test_what_the_shell_lacks_fails_and_names_the_phone(sh: Any, program: str, way: str) -> None:
    result = sh(program) if way == "argument" else sh("sh", program.encode())
    assert result.status != 0
    assert "not supported by the simulated phone's shell\n" in result.err
    assert result.out == ""


def test_an_interactive_shell_goes_on_after_what_it_lacks(sh: Any) -> None:
    result = sh("", b"trap x EXIT\necho $?\necho {a,b}\necho on\n", tty=True)
    assert result.err.count("not supported by the simulated phone's shell\n") == 2
    assert result.out == "2\non\n"


@pytest.mark.parametrize("program", ["trap x EXIT", "eval 'echo {a,b}'", "eval 'echo )'", "local -i n=1"])
def test_errors_of_builtins_end_a_script_on_a_terminal_too(sh: Any, program: str) -> None:
    assert sh(f"{program}; echo never", tty=True).out == ""
    assert sh("", f"{program}\necho on\n".encode(), tty=True).out == "on\n"


def test_local_variables_end_with_their_function(sh: Any) -> None:
    program = (
        "x=9; g() { typeset x=3 y; echo $x; }; f() { local x=1 y; g; (local x=2); local x; echo $x; }; f; "
    )
    assert sh(program + "echo $x $y").out == "3\n1\n9\n"


def test_double_parentheses_are_arithmetic(sh: Any) -> None:
    assert sh("i=1; ((i += 2)) && echo $i; ((i > 5)) || echo less").out == "3\nless\n"


@pytest.mark.parametrize("word", ["{}", "{a}", "{1..3}", "'{a,b}'", "a,b", "}a,b{", '"{a,$HOME}"', "\\{a,b}"])
def test_other_braces_are_themselves(sh: Any, word: str) -> None:
    assert sh(f"echo {word}").out == sh(f"x={word}; echo $x").out != "\n"


@pytest.mark.parametrize("depth", [50, 5000])
def test_deep_nesting_is_an_error_and_no_crash(sh: Any, depth: int) -> None:
    for program in ("(" * depth + ")" * depth, "$(" * depth + ")" * depth, "echo $((" + "(" * depth + "1"):
        assert sh(program).status == 1
    assert sh("f() { f; }; f").status == 1


def test_scripts_run_from_files(sh: Any) -> None:
    script = b'#!/system/bin/sh\necho "$0 got $1"\nexit 9\n'
    assert sh("cat > /data/local/tmp/s.sh", script).status == 0
    assert sh("/data/local/tmp/s.sh x").status == 126
    result = sh("chmod 755 /data/local/tmp/s.sh; /data/local/tmp/s.sh x; echo $?; sh /data/local/tmp/s.sh y")
    assert result.out == "sh got x\n9\n/data/local/tmp/s.sh got y\n"
    assert result.status == 9


def test_bytes_that_are_no_text_survive(sh: Any) -> None:
    data = bytes(range(256)) * 300
    assert sh("cat", data).data == data
    assert sh("cat | cat | cat", data).data == data
    assert sh("cat > /data/local/tmp/b; cat /data/local/tmp/b", data).data == data
    assert sh("echo \udcff").data == b"\xff\n"


def test_an_interactive_shell_goes_on_after_errors(sh: Any) -> None:
    result = sh("", b"echo a\nfoo\nfor i in 1 2\ndo echo $i\ndone\nfi\nexit 4\necho never\n")
    assert result.out == "a\n1\n2\n"
    assert result.status == 4
    assert "foo: inaccessible" in result.err
    assert "unexpected 'fi'" in result.err
    assert sh("", b"echo a", tty=True).err.startswith("simphone:/ $ ")


def test_cancelling_ends_everything_that_runs(phone: AndroidSystem) -> None:
    """A client that closes its stream cancels the command, whatever it is waiting for."""

    class Silent:
        async def read(self, size: int) -> bytes:
            await asyncio.Event().wait()
            return b""

        async def out(self, data: bytes) -> None: ...

        async def err(self, data: bytes) -> None: ...

    async def go() -> None:
        for command in (
            "cat",
            "sleep 100 | cat",
            "while true; do :; done",
            "sleep 100 & wait",
            "$(cat)",
            "yes",
        ):
            task = asyncio.ensure_future(shell.run(phone, command, Silent()))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = len(list(phone.processes))
    asyncio.run(go())
    assert len(list(phone.processes)) == before


def test_a_loop_of_builtins_lets_others_run(phone: AndroidSystem, sh: Any) -> None:
    turns = 0

    class Quiet:
        async def read(self, size: int) -> bytes:
            return b""

        async def out(self, data: bytes) -> None: ...

        async def err(self, data: bytes) -> None: ...

    async def go() -> None:
        nonlocal turns
        task = asyncio.ensure_future(
            shell.run(phone, "i=0; while [ $i -lt 200 ]; do i=$((i+1)); done", Quiet())
        )
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(go())
    assert turns > 100
