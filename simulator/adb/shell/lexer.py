"""Reads words of the shell language: quotes, escapes, `$name`, `${…}`, `$(…)`, `$((…))` and backquotes."""

from __future__ import annotations

from collections.abc import Callable

from distrl.simulator.adb.shell.syntax import (
    Arithmetic,
    Parameter,
    Part,
    Sequence,
    Substitution,
    Text,
    Word,
)

BLANKS = " \t"
DELIMITERS = " \t\n;&|<>()"
_SPECIAL = "?$#@*!-0123456789"
_OPERATORS = (":-", ":=", ":?", ":+", "%%", "##", "//", "-", "=", "?", "+", "%", "#", "/")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
MAX_DEPTH = 40
"""How deep substitutions and compound commands may nest."""


class ShellSyntaxError(Exception):
    """The text is no shell program; the message is what the shell prints."""


def is_name(text: str) -> bool:
    """Whether `text` can be a variable's name."""
    return text.isidentifier() and text.isascii()


class Lexer:
    """A position in a text, and what can be read there.

    Args:
        text: The program.
        depth: How deep inside other programs this one stands.
    """

    def __init__(self, text: str, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise ShellSyntaxError("syntax error: nesting too deep")
        self.text = text
        self.at = 0
        self.depth = depth

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self.at >= len(self.text)

    def peek(self, count: int = 1) -> str:
        """The next characters, fewer at the end."""
        return self.text[self.at : self.at + count]

    def starts(self, prefix: str) -> bool:
        """Whether `prefix` comes next."""
        return self.text.startswith(prefix, self.at)

    def accept(self, prefix: str) -> bool:
        """Reads `prefix` if it comes next."""
        if self.starts(prefix):
            self.at += len(prefix)
            return True
        return False

    def unexpected(self) -> ShellSyntaxError:
        """The error that what comes next has no place here."""
        if self.ended:
            return ShellSyntaxError("syntax error: unexpected EOF")
        token = self.peek(2) if self.peek(2) in ("&&", "||", ";;") else self.peek()
        return ShellSyntaxError(f"syntax error: unexpected '{'newline' if token == chr(10) else token}'")

    def blanks(self) -> None:
        """Skips blanks, continued lines and a comment."""
        while True:
            if self.peek() and self.peek() in BLANKS:
                self.at += 1
            elif self.starts("\\\n"):
                self.at += 2
            elif self.starts("#"):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def word(self) -> Word:
        """A word; empty when a delimiter or the end comes next."""
        return self._parts(lambda: self.peek() in DELIMITERS)

    def _parts(self, stop: Callable[[], bool]) -> Word:
        """Parts up to where `stop` says."""
        parts: list[Part] = []
        plain: list[str] = []

        def flush() -> None:
            if plain:
                parts.append(Text("".join(plain)))
                plain.clear()

        while not self.ended and not stop():
            char = self.peek()
            if char not in "\\'\"$`":
                plain.append(char)
                self.at += 1
                continue
            flush()
            if char == "\\":
                self._escape(parts)
            elif char == "'":
                self.at += 1
                parts.append(Text(self._until("'"), quoted=True))
            elif char == '"':
                self.at += 1
                parts.extend(self._double('"'))
            elif char == "`":
                parts.append(self._backquotes(quoted=False))
            else:
                parts.append(self._dollar(quoted=False))
        flush()
        return tuple(parts)

    def _escape(self, parts: list[Part]) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following != "\n":
            parts.append(Text(following or "\\", quoted=True))

    def _until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise ShellSyntaxError("no closing quote")
        found = self.text[self.at : stop]
        self.at = stop + len(end)
        return found

    def _double(self, end: str, closed: bool = True) -> list[Part]:
        """What stands between double quotes, up to `end`; at least one (empty) quoted part."""
        parts: list[Part] = []
        plain: list[str] = []

        def flush() -> None:
            if plain or not parts:
                parts.append(Text("".join(plain), quoted=True))
                plain.clear()

        while True:
            if self.ended:
                if closed:
                    raise ShellSyntaxError("no closing quote")
                break
            char = self.peek()
            if end and char == end:
                self.at += 1
                break
            if char == "\\":
                self._double_escape(plain)
            elif char in "$`":
                if plain:
                    flush()
                parts.append(self._dollar(quoted=True) if char == "$" else self._backquotes(quoted=True))
            else:
                plain.append(char)
                self.at += 1
        flush()
        return parts

    def _double_escape(self, plain: list[str]) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following and following in '$`"\\':
            plain.append(following)
        elif following != "\n":
            plain.append("\\" + following)
        self.at += 2

    def _backquotes(self, quoted: bool) -> Part:
        inner: list[str] = []
        self.at += 1
        while not self.accept("`"):
            if self.ended:
                raise ShellSyntaxError("no closing quote")
            if self.peek() == "\\" and self.peek(2)[1:] in ("`", "\\", "$") and self.peek(2)[1:]:
                self.at += 1
            inner.append(self.peek())
            self.at += 1
        return Substitution(self.program("".join(inner)), quoted)

    def program(self, text: str) -> Sequence:
        """Parses a program inside this one; the parser says how."""
        raise NotImplementedError

    def enclosed(self) -> Sequence:
        """Parses a program up to a closing parenthesis and reads that; the parser says how."""
        raise NotImplementedError

    def _dollar(self, quoted: bool) -> Part:
        self.at += 1
        if self.starts("(("):
            return self._arithmetic(quoted)
        if self.accept("("):
            return Substitution(self.enclosed(), quoted)
        if self.accept("{"):
            return self._braces(quoted)
        if self.starts("'") and not quoted:
            self.at += 1
            return Text(self._ansi(), quoted=True)
        if self.peek() and self.peek() in _SPECIAL:
            self.at += 1
            return Parameter(self.text[self.at - 1], quoted=quoted)
        name = self._name()
        return Parameter(name, quoted=quoted) if name else Text("$", quoted)

    def _name(self) -> str:
        end = self.at
        while end < len(self.text) and is_name(self.text[self.at : end + 1]):
            end += 1
        name = self.text[self.at : end]
        self.at = end
        return name

    def _arithmetic(self, quoted: bool) -> Part:
        start, depth, at = self.at, 0, self.at
        while at < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            at += 1
            if depth == 0:
                break
        inside = self.text[start + 2 : at - 2]
        if depth or not self.text.startswith("))", at - 2):
            raise ShellSyntaxError("syntax error: unexpected '(('")
        self.at = at
        return Arithmetic(self.quoted_text(inside), quoted)

    def quoted_text(self, text: str) -> Word:
        """Reads all of `text` as if it stood between double quotes."""
        outer, self.text, self.at = (self.text, self.at), text, 0
        try:
            return tuple(self._double("", closed=False))
        finally:
            self.text, self.at = outer

    def _braces(self, quoted: bool) -> Part:
        if self.starts("#") and self.peek(2) != "#}":
            self.at += 1
            name = self._parameter_name()
            if not self.accept("}"):
                raise ShellSyntaxError("syntax error: bad substitution")
            return Parameter(name, length=True, quoted=quoted)
        name = self._parameter_name()
        if self.accept("}"):
            return Parameter(name, quoted=quoted)
        operator = next((each for each in _OPERATORS if self.starts(each)), "")
        if not operator:
            raise ShellSyntaxError("syntax error: bad substitution")
        self.at += len(operator)
        operand = self._parts(lambda: self.starts("}"))
        if not self.accept("}"):
            raise ShellSyntaxError("no closing quote")
        return Parameter(name, operator, operand, quoted=quoted)

    def _parameter_name(self) -> str:
        if self.peek() and self.peek() in _SPECIAL:
            start = self.at
            self.at += 1
            while self.text[start].isdecimal() and self.peek().isdecimal():
                self.at += 1
            return self.text[start : self.at]
        name = self._name()
        if not name:
            raise ShellSyntaxError("syntax error: bad substitution")
        return name

    def _ansi(self) -> str:
        r"""What stands in $'…' with its \n, \t, \xHH and \uHHHH decoded."""
        out: list[str] = []
        while not self.accept("'"):
            if self.ended:
                raise ShellSyntaxError("no closing quote")
            char = self.peek()
            self.at += 1
            out.append(self._ansi_escape() if char == "\\" else char)
        return "".join(out)

    def _ansi_escape(self) -> str:
        char = self.peek()
        self.at += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in ("x", "u", "U"):
            digits = ""
            while len(digits) < {"x": 2, "u": 4, "U": 8}[char] and self.peek() in tuple(
                "0123456789abcdefABCDEF"
            ):
                digits += self.peek()
                self.at += 1
            code = int(digits or "0", 16)
            if char == "x" and code > 0x7F:
                return bytes([code]).decode("utf-8", "surrogateescape")
            return chr(code) if code <= 0x10FFFF else ""
        return char
