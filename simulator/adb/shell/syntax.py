"""The shell language's syntax tree: what the parser makes and the interpreter runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Text:
    """Literal characters; unquoted ones may be patterns."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Parameter:
    """`$name`, `${name}`, `${#name}` or `${name OPERATOR operand}`."""

    name: str
    operator: str = ""
    operand: Word = ()
    length: bool = False
    quoted: bool = False


@dataclass(frozen=True)
class Substitution:
    """`$(…)` or backquotes: the output of commands."""

    body: Sequence
    quoted: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """`$((…))`."""

    expression: Word
    quoted: bool = False


Part = Union[Text, Parameter, Substitution, Arithmetic]
Word = tuple[Part, ...]


@dataclass(frozen=True)
class Redirect:
    """`[fd]OPERATOR target`.

    Attributes:
        fd: The file descriptor that is redirected.
        operator: ">", ">>", "<", "<>", ">&", "<&", or "<<" with the text itself as the target.
        target: A file name, a descriptor's number or "-", or the text of a here-document.
    """

    fd: int
    operator: str
    target: Word


@dataclass(frozen=True)
class Simple:
    """Assignments, and a command with its arguments."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True)
class Pipeline:
    """Commands whose output and input are joined; `negated` by a leading `!`."""

    commands: tuple[Command, ...]
    negated: bool = False


@dataclass(frozen=True)
class AndOr:
    """Pipelines joined by `&&` and `||`: the first, then (operator, pipeline)."""

    first: Pipeline
    rest: tuple[tuple[str, Pipeline], ...] = ()


@dataclass(frozen=True)
class Sequence:
    """Lists one after the other; `background` ones end in `&`."""

    items: tuple[tuple[AndOr, bool], ...]


@dataclass(frozen=True)
class Group:
    """`{ …; }`, or `( … )` which runs in a copy of the shell."""

    body: Sequence
    subshell: bool


@dataclass(frozen=True)
class If:
    """Conditions with what they lead to, and what else is done."""

    branches: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None


@dataclass(frozen=True)
class For:
    """A loop over words, or over the positional parameters when `words` is None."""

    name: str
    words: tuple[Word, ...] | None
    body: Sequence


@dataclass(frozen=True)
class While:
    """A loop that runs while its condition holds, or until it does."""

    condition: Sequence
    body: Sequence
    until: bool


@dataclass(frozen=True)
class Case:
    """The first of the branches one of whose patterns matches the word."""

    word: Word
    branches: tuple[tuple[tuple[Word, ...], Sequence], ...]


@dataclass(frozen=True)
class Function:
    """A definition."""

    name: str
    body: Command


@dataclass(frozen=True)
class Redirected:
    """A compound command with redirections."""

    command: Command
    redirects: tuple[Redirect, ...]


Command = Union[Simple, Group, If, For, While, Case, Function, Redirected]
