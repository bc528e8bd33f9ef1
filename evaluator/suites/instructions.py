"""Tasks from lists of instructions, such as those of AitW that DigiRL and DistRL train on.

A list is a text file with an instruction a line, a CSV or TSV file, or JSON (lines): strings, or objects with
the instruction under one of `KEYS`. Its tasks have no template of a simulated phone: they are for real
devices and a judge.

Instructions are normalised (Unicode, one space between words, no control characters, no quotes around them,
no numbering), and those are one that then differ only in what `wording.folded` folds: case, quotes and
punctuation at the end. A task's id is made of the instruction, not of its place: lists can grow and be put in
another order, and results stay comparable.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import TaskError
from distrl.core.types import Task
from distrl.evaluator.suites.files import read_text
from distrl.evaluator.suites.wording import folded, says_something, standard

TEMPLATE = "instruction"
KEYS = ("goal", "instruction", "goal_info", "task", "query")
"""Where an object or a table has the instruction; the first that is there."""
DIGEST_BYTES = 5
MAX_LENGTH = 4000
"""Most characters of an instruction; what is longer is no instruction but a broken file."""
_QUOTED_FIELD = re.compile(r'"(?:[^"]|"")*"')
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}


@dataclass(frozen=True)
class LeftOut:
    """An entry of a list that is no task: its list's split, what it says, and what is there in its stead."""

    split: str
    text: str
    kept: str = ""


@dataclass(frozen=True)
class Imported:
    """What came of lists.

    Attributes:
        tasks: The tasks, list by list.
        repeated: Instructions that their own list had already.
        empty: Entries without an instruction.
        leaked: Instructions of a list that a list named after it has too.
    """

    tasks: list[Task]
    repeated: list[LeftOut]
    empty: list[LeftOut]
    leaked: list[LeftOut]


def import_lists(lists: Sequence[str], suite: str, max_steps: int) -> Imported:
    """The tasks of lists "SPLIT=FILE".

    An instruction that is in several splits stays in the one named last, as one names the test split after
    the training split: nothing that is tested is trained on.

    Raises:
        TaskError: An argument has no split, two have the same, or a file cannot be read or holds nothing.
    """
    found: dict[str, dict[str, str]] = {}
    repeated: list[LeftOut] = []
    empty: list[LeftOut] = []
    for text in lists:
        split, file = _parse(text)
        if split in found:
            raise TaskError(f"the split {split!r} is named twice.", "Put the files together, or rename one.")
        goals, without = read_list(file)
        empty += [LeftOut(split, entry) for entry in without]
        found[split], again = _distinct(goals)
        repeated += [LeftOut(split, goal, kept) for goal, kept in again]
    leaked = _drop_leaked(found)
    tasks = [
        _task(suite, split, goal, max_steps)
        for split, distinct in found.items()
        for goal in distinct.values()
    ]
    return Imported(tasks, repeated, empty, leaked)


def normalised(instruction: str) -> str:
    """The instruction in one form: one spelling, single spaces, no control characters, quotes or number."""
    text = "".join(" " if unicodedata.category(c) == "Cc" else c for c in instruction)
    text = " ".join(standard(text).split())
    text = re.sub(r"^(?:\d{1,4}[.)]|[-*\u2022])\s+", "", text)
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and not {text[0], text[-1]} & set(text[1:-1]):
        text = text[1:-1].strip()
    return text


def read_list(file: Path) -> tuple[list[str], list[str]]:
    """The instructions of a list, normalised, in its order; and the entries that have none.

    Raises:
        TaskError: It cannot be read, is of no known kind, holds nothing, or something that is too long.
    """
    text = read_text(file, "list")
    readers = {".txt": _lines, ".csv": _table, ".tsv": _tabbed, ".json": _json, ".jsonl": _json_lines}
    if file.suffix not in readers:
        raise TaskError(f"{file}: a list ends in {', '.join(readers)}.", "Rename or convert it.")
    entries = list(readers[file.suffix](file, text))
    for number, entry in enumerate(entries, 1):
        if len(entry) > MAX_LENGTH:
            rule = (
                f"instruction {number} has {len(entry)} characters, more than {MAX_LENGTH}: {entry[:40]!r}…"
            )
            raise TaskError(f"{file}: {rule}.", "A list has one instruction for each line or entry.")
    goals = [goal for goal in map(normalised, entries) if says_something(goal)]
    if not goals:
        raise TaskError(f"{file} holds no instruction.", "Add at least one.")
    return goals, [entry for entry in entries if not says_something(normalised(entry))]


def _parse(text: str) -> tuple[str, Path]:
    split, equals, file = text.partition("=")
    if not equals or not re.fullmatch(r"\w[\w-]*", split) or not file:
        raise TaskError(f"{text!r} is no list.", "Write SPLIT=FILE; with --androidworld, task names.")
    return split, Path(file).expanduser()


def _distinct(goals: Sequence[str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Goals as folded, each in its first spelling; and the others, each with that one."""
    found: dict[str, str] = {}
    again = []
    for goal in goals:
        name = folded(goal)
        if name in found:
            again.append((goal, found[name]))
        found.setdefault(name, goal)
    return found, again


def _drop_leaked(found: dict[str, dict[str, str]]) -> list[LeftOut]:
    """Takes what a later split has out of each split. Returns what was taken."""
    leaked = []
    splits = list(found)
    for place, split in enumerate(splits):
        later = {name: goal for other in splits[place + 1 :] for name, goal in found[other].items()}
        shared = [name for name in found[split] if name in later]
        leaked += [LeftOut(split, found[split].pop(name), later[name]) for name in shared]
        if not found[split]:
            raise TaskError(f"every instruction of {split!r} is in a later list too.", "Choose other lists.")
    return leaked


def _task(suite: str, split: str, goal: str, max_steps: int) -> Task:
    digest = hashlib.blake2b(folded(goal).encode(), digest_size=DIGEST_BYTES).hexdigest()
    return Task(
        id=f"{suite}/{TEMPLATE}/{split}/{digest}",
        suite=suite,
        template=TEMPLATE,
        split=split,
        goal=goal,
        max_steps=max_steps,
    )


def _lines(file: Path, text: str) -> Iterator[str]:
    yield from filter(str.strip, text.splitlines())


def _table(file: Path, text: str) -> Iterator[str]:
    """The column of the instructions. Other columns may go over several lines, in quotes that are closed."""
    rows = csv.reader(io.StringIO(text), strict=True)
    before = 0
    try:
        column = _column(file, next(rows, []))
        before = rows.line_num
        for row in rows:
            entry = row[column] if column < len(row) else ""
            if "\n" in entry.strip():
                rule = f"the instruction that begins in line {before + 1} goes on to line {rows.line_num}"
                raise TaskError(f"{file}: {rule}.", "Close its quote, or write it in one line.")
            before = rows.line_num
            if row:
                yield entry
    except csv.Error as error:
        rule = f"the row that begins in line {before + 1} is not CSV, or a quote in it is not closed: {error}"
        raise TaskError(f"{file}: {rule}.", "Correct it, or save the table as .tsv.") from error


def _tabbed(file: Path, text: str) -> Iterator[str]:
    """The column of the instructions. A line is a row; quotes mean something only around a whole field."""
    head, *lines = text.splitlines() or [""]
    column = _column(file, head.split("\t"))
    for line in filter(str.strip, lines):
        fields = line.split("\t")
        field = fields[column].strip() if column < len(fields) else ""
        yield field[1:-1].replace('""', '"') if _QUOTED_FIELD.fullmatch(field) else field


def _column(file: Path, names: Sequence[str]) -> int:
    """Which column has the instructions."""
    columns = [name.strip().strip('"') for name in names]
    name = next((name for name in KEYS if name in columns), None)
    if name is None:
        raise TaskError(
            f"{file}: no column is named {', '.join(KEYS)}; it has {', '.join(columns)[:200] or 'none'}.",
            "Name the one of the instructions.",
        )
    if columns.count(name) > 1:
        raise TaskError(f"{file}: {columns.count(name)} columns are named {name!r}.", "Rename all but one.")
    return columns.index(name)


def _json(file: Path, text: str) -> Iterator[str]:
    entries = _parsed(file, "the file", text)
    if not isinstance(entries, list):
        raise TaskError(f"{file}: a list in JSON is an array.", "Correct it.")
    for number, entry in enumerate(entries, 1):
        yield _instruction(file, f"entry {number}", entry)


def _json_lines(file: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _instruction(file, f"line {number}", _parsed(file, f"line {number}", line))


def _parsed(file: Path, where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TaskError(f"{file}, {where}: not valid JSON: {error.msg}.", "Correct it.") from error


def _instruction(file: Path, where: str, entry: Any) -> str:
    if isinstance(entry, dict):
        entry = next((entry[name] for name in KEYS if name in entry), None)
    if not isinstance(entry, str):
        raise TaskError(f"{file}, {where}: no instruction.", "Write a string, or an object with 'goal'.")
    return entry
