"""From words to arguments: parameters, substitutions, arithmetic, field splitting, file name patterns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrl.simulator.adb.shell import arithmetic, patterns
from distrl.simulator.adb.shell.patterns import Piece
from distrl.simulator.adb.shell.syntax import Arithmetic, Parameter, Part, Substitution, Text, Word

if TYPE_CHECKING:
    from distrl.simulator.adb.shell.interpreter import Interpreter

MAX_FIELD = 1 << 22
"""Most characters of one argument."""


class ExpansionFailure(Exception):
    """A word has no value; the message is what the shell prints."""


class _Fields:
    """Fields under construction. One exists once it has text or a quote."""

    def __init__(self) -> None:
        self.done: list[list[Piece]] = []
        self._open: list[Piece] | None = None

    def add(self, text: str, unquoted: bool) -> None:
        if self._open is None:
            self._open = []
        self._open.append((text, unquoted))

    def split(self, text: str, separators: str) -> None:
        """Adds unquoted text, broken at `separators`."""
        if not separators:
            if text:
                self.add(text, True)
            return
        hard = "".join(char for char in separators if char not in " \t\n")
        blank = "".join(char for char in separators if char in " \t\n")
        around = f"[{blank}]*" if blank else ""
        choices = [f"{around}[{re.escape(hard)}]{around}"] if hard else []
        pattern = "|".join([*choices, f"[{blank}]+"] if blank else choices)
        at = 0
        for found in re.finditer(pattern, text):
            if found.start() > at:
                self.add(text[at : found.start()], True)
            if any(char in hard for char in found.group()) and self._open is None:
                self.add("", True)
            self.end()
            at = found.end()
        if at < len(text):
            self.add(text[at:], True)

    def end(self) -> None:
        """Ends the present field, if there is one."""
        if self._open is not None:
            self.done.append(self._open)
            self._open = None


async def arguments(shell: Interpreter, words: tuple[Word, ...]) -> list[str]:
    """The arguments that `words` stand for."""
    found: list[str] = []
    for word in words:
        for pieces in await _fields(shell, word):
            named = patterns.paths(pieces, shell.system.files, shell.cwd) if patterns.active(pieces) else []
            found.extend(named or [patterns.literal(pieces)])
    return found


async def single(shell: Interpreter, word: Word) -> str:
    """The one string that `word` stands for, where words are not split: assignments, redirections."""
    return patterns.literal(await pattern(shell, word))


async def pattern(shell: Interpreter, word: Word) -> list[Piece]:
    """The pattern that `word` stands for, where words are not split."""
    pieces: list[Piece] = []
    for part in word:
        if isinstance(part, Text):
            pieces.append((part.text, not part.quoted))
        else:
            pieces.append((await _value(shell, part), not part.quoted))
    _check(pieces)
    return pieces


def _check(pieces: list[Piece]) -> None:
    if sum(len(text) for text, _ in pieces) > MAX_FIELD:
        raise ExpansionFailure("argument too long")


async def _fields(shell: Interpreter, word: Word) -> list[list[Piece]]:
    fields = _Fields()
    separators = shell.variables.get("IFS", " \t\n")
    for place, part in enumerate(word):
        if isinstance(part, Text):
            text = part.text
            if place == 0 and not part.quoted and (text == "~" or text.startswith("~/")):
                text = shell.variables.get("HOME", "/").rstrip("/") + text[1:] or "/"
            fields.add(text, not part.quoted)
        elif isinstance(part, Parameter) and part.name == "@" and not part.operator and part.quoted:
            for number, argument in enumerate(shell.positional):
                if number:
                    fields.end()
                fields.add(argument, False)
        elif part.quoted:
            fields.add(await _value(shell, part), False)
        else:
            fields.split(await _value(shell, part), separators)
    fields.end()
    for pieces in fields.done:
        _check(pieces)
    return fields.done


async def _value(shell: Interpreter, part: Part) -> str:
    if isinstance(part, Substitution):
        return await shell.capture(part.body)
    if isinstance(part, Arithmetic):
        text = await single(shell, part.expression)
        try:
            return str(arithmetic.evaluate(text, shell.variables))
        except arithmetic.ArithmeticFailure as error:
            raise ExpansionFailure(f"{text}: {error}") from error
    assert isinstance(part, Parameter)
    return await _parameter(shell, part)


async def _parameter(shell: Interpreter, part: Parameter) -> str:
    value = _lookup(shell, part.name)
    if part.length:
        return str(len(value or ""))
    operator = part.operator
    if not operator:
        return value or ""
    if operator in ("%", "%%", "#", "##"):
        return _trim(value or "", operator, await pattern(shell, part.operand))
    if operator in ("/", "//"):
        return await _replace(shell, value or "", operator, part.operand)
    absent = not value if operator.startswith(":") else value is None
    if operator[-1] == "+":
        return "" if absent else await single(shell, part.operand)
    if not absent:
        return value or ""
    operand = await single(shell, part.operand)
    if operator[-1] == "?":
        raise ExpansionFailure(f"{part.name}: {operand or 'parameter null or not set'}")
    if operator[-1] == "=":
        shell.variables[part.name] = operand
    return operand


def _lookup(shell: Interpreter, name: str) -> str | None:
    """The value of a variable or special parameter, None when it is not set."""
    if name == "?":
        return str(shell.status)
    if name == "#":
        return str(len(shell.positional))
    if name in ("@", "*"):
        return shell.variables.get("IFS", " ")[:1].join(shell.positional)
    if name == "$":
        return str(shell.pid)
    if name == "!":
        return str(shell.background_pid) if shell.background_pid else ""
    if name == "-":
        return "hi" if shell.tty else "h"
    if name.isdecimal():
        place = int(name)
        if place == 0:
            return shell.name
        return shell.positional[place - 1] if place <= len(shell.positional) else None
    if name == "RANDOM":
        return str(shell.random.randrange(32768))
    return shell.variables.get(name)


def _trim(value: str, operator: str, pieces: list[Piece]) -> str:
    """Cuts what fits the pattern from the end (%) or the start (#), the longest piece when doubled."""
    places = range(len(value) + 1)
    if operator.startswith("#"):
        for end in reversed(places) if operator == "##" else places:
            if patterns.matches(pieces, value[:end]):
                return value[end:]
    else:
        for start in places if operator == "%%" else reversed(places):
            if patterns.matches(pieces, value[start:]):
                return value[:start]
    return value


async def _replace(shell: Interpreter, value: str, operator: str, operand: Word) -> str:
    """`${name/pattern/text}`: the first match replaced, or all of them."""
    pieces = await pattern(shell, operand)
    before: list[Piece] = []
    while pieces:
        text, unquoted = pieces.pop(0)
        if unquoted and "/" in text:
            head, _, tail = text.partition("/")
            before.append((head, True))
            pieces.insert(0, (tail, False))
            break
        before.append((text, unquoted))
    replacement = patterns.literal(pieces)
    if not patterns.literal(before):
        return value
    count = 0 if operator == "//" else 1
    return re.sub(patterns.regex(before), lambda _: replacement, value, count=count, flags=re.S)
