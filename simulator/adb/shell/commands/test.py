"""`test` and `[`: conditions about strings, numbers and files."""

from __future__ import annotations

from collections.abc import Callable

from distrl.simulator.adb.files import Stat
from distrl.simulator.adb.shell import patterns
from distrl.simulator.adb.shell.call import Call, Command, Failure

_FILES: dict[str, Callable[[Stat], bool]] = {
    "-e": lambda found: True,
    "-a": lambda found: True,
    "-f": lambda found: found.is_file,
    "-d": lambda found: found.is_dir,
    "-s": lambda found: found.size > 0,
    "-r": lambda found: bool(found.mode & 0o444),
    "-w": lambda found: bool(found.mode & 0o222),
    "-x": lambda found: bool(found.mode & 0o111),
    "-b": lambda found: False,
    "-p": lambda found: False,
    "-S": lambda found: False,
    "-c": lambda found: not (found.is_file or found.is_dir or found.is_link),
}
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_STRINGS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


class _Test:
    def __init__(self, call: Call, args: list[str], loose: bool) -> None:
        self._call = call
        self._args = args
        self._loose = loose

    def either(self) -> bool:
        value = self._both()
        while self._args and self._args[0] in ("-o", "||"):
            self._args.pop(0)
            value = self._both() or value
        return value

    def _both(self) -> bool:
        value = self._one()
        while self._args and self._args[0] in ("-a", "&&"):
            self._args.pop(0)
            value = self._one() and value
        return value

    def _one(self) -> bool:
        args = self._args
        if not args:
            raise Failure("expected an expression", 2)
        if len(args) >= 3 and (args[1] in _STRINGS or args[1] in _NUMBERS):
            return self._binary(args.pop(0), args.pop(0), args.pop(0))
        first = args.pop(0)
        if first == "!" and args:
            return not self._one()
        if first == "(" and args:
            value = self.either()
            if not args or args.pop(0) != ")":
                raise Failure("missing )", 2)
            return value
        if args and first in ("-n", "-z"):
            return bool(args.pop(0)) == (first == "-n")
        if args and (first in _FILES or first in ("-L", "-h")):
            return self._file(first, args.pop(0))
        if args and first == "-t":
            args.pop(0)
            return self._call.shell.tty
        return bool(first)

    def _binary(self, left: str, operator: str, right: str) -> bool:
        if operator in _NUMBERS:
            try:
                return _NUMBERS[operator](self._call.integer(left), self._call.integer(right))
            except Failure as failure:
                raise Failure(failure.message, 2) from failure
        if self._loose and operator in ("=", "==", "!="):
            return patterns.matches([(right, True)], left) == (operator != "!=")
        return _STRINGS[operator](left, right)

    def _file(self, kind: str, path: str) -> bool:
        files = self._call.files
        try:
            if kind in ("-L", "-h"):
                return files.lstat(self._call.path(path)).is_link
            return _FILES[kind](files.stat(self._call.path(path)))
        except OSError:
            return False


async def test(call: Call) -> int:
    """test EXPRESSION; [ EXPRESSION ]; [[ EXPRESSION ]]"""
    args = list(call.args)
    closing = {"[": "]", "[[": "]]"}.get(call.name, "")
    if closing and (not args or args.pop() != closing):
        raise Failure(f"missing {closing}", 2)
    if not args:
        return 1
    tester = _Test(call, args, loose=call.name == "[[")
    value = tester.either()
    if args:
        raise Failure(f"{args[0]}: unexpected operator/operand", 2)
    return int(not value)


COMMANDS: dict[str, Command] = {"[": test, "[[": test, "test": test}
