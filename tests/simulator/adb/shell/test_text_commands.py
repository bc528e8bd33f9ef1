"""Commands that cut, search and change text, against what toybox prints."""

from __future__ import annotations

from typing import Any

import pytest

FRUIT = "apple 3 red\nbanana 1 yellow\ncherry 2 red\n"
CASES = [
    ("cut -d' ' -f2", "3\n1\n2\n"),
    ("cut -d ' ' -f 1,3", "apple red\nbanana yellow\ncherry red\n"),
    ("cut -c2-4", "ppl\nana\nher\n"),
    ("cut -d: -s -f1", ""),
    ("grep red", "apple 3 red\ncherry 2 red\n"),
    ("grep -v red", "banana 1 yellow\n"),
    ("grep -c red", "2\n"),
    ("grep -n -i CHERRY", "3:cherry 2 red\n"),
    ("grep -o '[0-9]'", "3\n1\n2\n"),
    ("grep -E 'app|ban'", "apple 3 red\nbanana 1 yellow\n"),
    ("grep 'app\\|ban'", "apple 3 red\nbanana 1 yellow\n"),
    ("grep -w re", ""),
    ("grep -x 'apple 3 red'", "apple 3 red\n"),
    ("grep -m1 red", "apple 3 red\n"),
    ("grep -A1 banana", "banana 1 yellow\ncherry 2 red\n"),
    ("grep -B1 banana", "apple 3 red\nbanana 1 yellow\n"),
    ("grep -F 'a.p'", ""),
    ("grep 'a.p'", "apple 3 red\n"),
    ("grep -e app -v", "banana 1 yellow\ncherry 2 red\n"),
    ("grep '^[^a]'", "banana 1 yellow\ncherry 2 red\n"),
    ("grep '[[:digit:]] r'", "apple 3 red\ncherry 2 red\n"),
    ("grep 'an\\{1,\\}an'", "banana 1 yellow\n"),
    ("sed 's/e/E/'", "applE 3 red\nbanana 1 yEllow\nchErry 2 red\n"),
    ("sed 's/\\([a-z]*\\) \\(.\\).*/\\2:\\1/'", "3:apple\n1:banana\n2:cherry\n"),
    ("sed -E 's/(.) (.*)$/[&]/g'", "appl[e 3 red]\nbanan[a 1 yellow]\ncherr[y 2 red]\n"),
    ("sed -n '2p'", "banana 1 yellow\n"),
    ("sed -n '/banana/,$p'", "banana 1 yellow\ncherry 2 red\n"),
    ("sed '1d;/red/d'", "banana 1 yellow\n"),
    ("sed 's/ .*//;2q'", "apple\nbanana\n"),
    ("sed '/banana/!d'", "banana 1 yellow\n"),
    ("sed s,red,/blue/,", "apple 3 /blue/\nbanana 1 yellow\ncherry 2 /blue/\n"),
    ("sort -k2 -n", "banana 1 yellow\ncherry 2 red\napple 3 red\n"),
    ("sort -r", "cherry 2 red\nbanana 1 yellow\napple 3 red\n"),
    ("head -1", "apple 3 red\n"),
    ("head -n 2 | tail -n 1", "banana 1 yellow\n"),
    ("tail -n +2", "banana 1 yellow\ncherry 2 red\n"),
    ("head -c 5", "apple"),
    ("tail -c 4", "red\n"),
    ("wc -l", "3\n"),
    ("wc", "      3       9      41\n"),
    ("tr a-z A-Z | head -1", "APPLE 3 RED\n"),
    ("tr -d '[:space:]0-9'", "appleredbananayellowcherryred"),
    ("tr -s p | head -1", "aple 3 red\n"),
    ("tr -cd '0-9\\n'", "3\n1\n2\n"),
    ("rev | head -1", "der 3 elppa\n"),
    ("xargs -n 3 echo x", "x apple 3 red\nx banana 1 yellow\nx cherry 2 red\n"),
    ("cut -d' ' -f3 | sort | uniq -c", "      2 red\n      1 yellow\n"),
    ("xargs -I{} echo '<{}>'", "<apple 3 red>\n<banana 1 yellow>\n<cherry 2 red>\n"),
    ("base64 | base64 -d | tail -1", "cherry 2 red\n"),
]


@pytest.mark.parametrize(("command", "expected"), CASES)
def test_filters(sh: Any, command: str, expected: str) -> None:
    assert sh(command, FRUIT.encode()).out == expected


def test_checksums_are_those_of_the_bytes(sh: Any) -> None:
    assert sh("md5sum", b"abc").out == "900150983cd24fb0d6963f7d28e17f72  -\n"
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sh("cat > /sdcard/a; toybox sha256sum /sdcard/a", b"abc").out == f"{digest}  /sdcard/a\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"echo -e 'a\tb\0101\c' never", "a\tbA"),
        ("echo -n a", "a"),
        ("echo -x", "-x\n"),
        (r"printf '%5s|%-5s|%03d|%x|%c|%%\n' ab cd 7 255 xyz", "   ab|cd   |007|ff|x|%\n"),
        (r"printf '%s,' a b c", "a,b,c,"),
        (r"printf '%b' 'a\nb'", "a\nb"),
        ("seq 3 2 9 | xargs", "3 5 7 9\n"),
        ("seq 3 -1 1 | xargs", "3 2 1\n"),
        ("basename /a/b.txt .txt; dirname /a/b.txt; dirname b", "b\n/a\n.\n"),
        ("grep -q root /system/etc/hosts; echo $?; grep -q local /system/etc/hosts; echo $?", "1\n0\n"),
        (
            "grep -l local /system/etc/*; grep -h localhost /system/etc/hosts | head -1 | cut -c1-9",
            "/system/etc/hosts\n127.0.0.1\n",
        ),
    ],
)
def test_makers(sh: Any, command: str, expected: str) -> None:
    result = sh(command)
    assert (result.out, result.err) == (expected, "")


def test_a_pattern_that_is_none_is_named(sh: Any) -> None:
    assert "bad REGEX" in sh("grep -E '('", b"a").err
    assert sh("sed y/a/b/", b"a").status == 1


def test_errors_name_command_file_and_reason(sh: Any) -> None:
    assert sh("cat /nope").err == "cat: /nope: No such file or directory\n"
    result = sh("cat /nope /system/etc/hosts | grep -c local")
    assert (result.out, result.err) == ("2\n", "cat: /nope: No such file or directory\n")
    assert sh("ls --color -Q").err == "ls: Unknown option 'Q' (see \"toybox help\")\n"
