"""The language of the simulated phone's shell: from a line to the pipelines that it consists of.

Words with '…', "…", backslashes, $NAME, ${NAME}, $? and $!; * ? [ ] against file names; NAME=VALUE; > >> <
and 2>&1; pipelines joined by ; && || & and line ends. Anything else of a shell's language is an error that
names what is not supported. tests/simulator/adb/client_commands.yaml is the specification.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_UNSUPPORTED_WORDS = re.compile(
    r"[!{}]|\[\[|if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|time"
)


class ShellError(Exception):
    """A line is not understood, or a redirection fails; the message is what the shell prints."""


class Incomplete(ShellError):
    """The line may become complete when more lines follow."""


@dataclass(frozen=True)
class Part:
    """A piece of a word: literal text, or a variable's name."""

    text: str
    is_quoted: bool
    is_variable: bool = False


Word = tuple[Part, ...]


@dataclass(frozen=True)
class Redirection:
    """`[FD]OPERATOR WORD`; ">&" duplicates the descriptor that the word names."""

    fd: int
    operator: str
    target: Word


@dataclass
class Simple:
    """One command: assignments, words and redirections."""

    assignments: list[tuple[str, Word]] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass
class Pipeline:
    """Commands joined by "|".

    Attributes:
        runs_if: "&&" or "||" when it depends on the status before it, else "".
        is_background: Whether it ends in "&".
    """

    commands: list[Simple]
    runs_if: str = ""
    is_background: bool = False


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BLANK = re.compile(r"(?:[ \t]|\\\n|#[^\n]*)+")
_UNSUPPORTED = re.compile(r"<<|[<>]\(|>\||<>|&>|<&|[()]|`|\$[({0-9*@#$'\"-]")
_OPERATOR = re.compile(r"&&|\|\||[0-9]?(?:>>|>&|[<>])|[;|\n&]")
_PIECE = re.compile(
    rf"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)"""
    rf"""|\$(?:(?P<name>{_NAME}|[?!])|\{{(?P<braced>{_NAME})\}})|(?P<plain>[^ \t\n'"\\$`;&|<>()]+|\$)""",
    re.DOTALL,
)
_DOUBLE = re.compile(
    rf"""\\(?P<escaped>[$`"\\\n])|\$(?:(?P<name>{_NAME}|[?!])|\{{(?P<braced>{_NAME})\}})"""
    r"""|(?P<bad>`|\$[({0-9*@#$-])|(?P<plain>[^\\$`]+|.)""",
    re.DOTALL,
)


def _unsupported(what: str) -> ShellError:
    return ShellError(f"syntax error: '{what}' is not supported by the simulated phone's shell")


def _tokens(text: str) -> list[str | Word]:
    """Operators (as text) and words."""
    found: list[str | Word] = []
    at = 0
    while at < len(text):
        if match := _BLANK.match(text, at):
            at = match.end()
        elif match := _OPERATOR.match(text, at):
            if bad := _UNSUPPORTED.match(text, at):
                raise _unsupported(bad.group())
            found.append(match.group())
            at = match.end()
        else:
            word, at = _word(text, at)
            found.append(word)
    return found


def _word(text: str, at: int) -> tuple[Word, int]:
    parts: list[Part] = []
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None or match.group() == "$":
            bad = _UNSUPPORTED.match(text, at)
            if bad and bad.group()[0] not in "<>&":
                raise _unsupported(bad.group())
        if match is None:
            if text[at] in "'\"\\":
                raise Incomplete("no closing quote")
            break
        if match["double"] is not None:
            parts += _double_quoted(match["double"])
        elif match["name"] or match["braced"]:
            parts.append(Part(match["name"] or match["braced"], is_quoted=False, is_variable=True))
        elif match["plain"] is not None:
            parts.append(Part(match["plain"], is_quoted=False))
        else:
            literal = match["single"] if match["escaped"] is None else match["escaped"].replace("\n", "")
            parts.append(Part(literal, is_quoted=True))
        at = match.end()
    return tuple(parts), at


def _double_quoted(text: str) -> list[Part]:
    parts = [Part("", is_quoted=True)]
    for match in _DOUBLE.finditer(text):
        if match["bad"]:
            raise _unsupported(match["bad"])
        if match["name"] or match["braced"]:
            parts.append(Part(match["name"] or match["braced"], is_quoted=True, is_variable=True))
        else:
            parts.append(Part(match["plain"] or match["escaped"].replace("\n", ""), is_quoted=True))
    return parts


def parse(text: str) -> list[Pipeline]:
    """The pipelines of a program, in order. Raises ShellError at what this shell does not support."""
    found: list[Pipeline] = []
    joiner, current = "", Pipeline([Simple()])
    tokens: list[str | Word] = [*_tokens(text), "\n"]
    place = 0
    while place < len(tokens):
        token = tokens[place]
        place += 1
        command = current.commands[-1]
        if not isinstance(token, str):
            _add_word(command, token)
        elif token[-1] in "<>" or token.endswith(">&"):
            target = tokens[place]
            if isinstance(target, str):
                raise ShellError(f"syntax error: unexpected {_shown(target)}")
            place += 1
            fd, operator = (
                (int(token[0]), token[1:]) if token[0].isdecimal() else (int("<" not in token), token)
            )
            command.redirections.append(Redirection(fd, operator, target))
        elif command == Simple():
            if token == "\n" and len(current.commands) == 1 and not joiner:
                continue
            if token != "\n":
                raise ShellError(f"syntax error: unexpected {_shown(token)}")
            if place == len(tokens):
                raise Incomplete("syntax error: unexpected end of the line")
        elif token == "|":
            current.commands.append(Simple())
        elif token == "&" and joiner:
            raise _unsupported(f"{joiner} … &")
        else:
            current.runs_if = joiner
            current.is_background = token == "&"
            found.append(current)
            joiner, current = (token if token in ("&&", "||") else ""), Pipeline([Simple()])
    return found


def _shown(token: str) -> str:
    return "line end" if token == "\n" else f"'{token}'"


def _add_word(command: Simple, word: Word) -> None:
    first = word[0] if word else Part("", is_quoted=True)
    literal = not (first.is_quoted or first.is_variable)
    if not command.words and literal:
        name, equals, value = first.text.partition("=")
        if equals and re.fullmatch(_NAME, name):
            command.assignments.append((name, (Part(value, is_quoted=False), *word[1:])))
            return
        if len(word) == 1 and _UNSUPPORTED_WORDS.fullmatch(first.text):
            raise _unsupported(first.text)
    bare = "".join(part.text for part in word if not (part.is_quoted or part.is_variable))
    if re.search(r"\{[^{}]*,[^{}]*\}", bare):
        raise _unsupported(bare)
    command.words.append(word)
