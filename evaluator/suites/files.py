"""Task files, YAML (a list, or a mapping with `tasks`) or JSON lines, and tasks from lists of instructions.

Lists of instructions, such as AitW's, are text files with an instruction per line, CSV files, or JSON
lines: strings, or objects with the instruction under one of `KEYS`. Their tasks have no template of a
simulated phone: they are for real devices and a judge.

Instructions are normalised (Unicode, one space between words, no control characters, no quotes around them,
no numbering). Instructions with the same `leakage.folded` form are duplicates. A task's id is made from the
instruction, not from its position, so lists can grow and be reordered while results stay comparable.
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

import yaml
from pydantic import ValidationError

from distrl.configs.parse import parse_yaml
from distrl.core.errors import ConfigError, TaskError
from distrl.core.files import write_atomically
from distrl.core.importing import did_you_mean
from distrl.core.types import Task
from distrl.core.user_errors import first_problem
from distrl.evaluator.suites.leakage import folded, says_something

_YAML = (".yaml", ".yml")
_LINES = (".jsonl", ".ndjson")
MAX_ID = 160
"""The longest id of a task. Leases' ids contain it, and have at most 200 characters."""
_REMEDY = "A task has id and goal; template, params, split, suite, seed and max_steps are optional."


def load_file(path: Path) -> list[Task]:
    """The tasks of a file, in its order."""
    text = read_text(path, "task file")
    if path.suffix not in _YAML + _LINES:
        known = ", ".join(_YAML + _LINES)
        raise TaskError(f"{path}: {path.suffix!r} is not a task file's extension ({known}).", "Rename it.")
    tasks: dict[str, Task] = {}
    for where, entry in _yaml_entries(path, text) if path.suffix in _YAML else _line_entries(text):
        found = _task(entry, path.stem)
        if isinstance(found, Task) and found.id in tasks:
            found = f"the id {found.id!r} occurs twice"
        if not isinstance(found, Task):
            raise TaskError(f"{path}, {where}: {found}.", _REMEDY)
        tasks[found.id] = found
    if not tasks:
        raise TaskError(f"{path}: the task file contains no tasks.", "Add at least one.")
    return list(tasks.values())


def read_text(path: Path, what: str) -> str:
    """The text of a file in UTF-8, with or without a byte order mark; `what` is its kind, for errors."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        rule = f"{path}: the {what} cannot be read: {error.strerror}."
        raise TaskError(rule, "Check the path.") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise TaskError(
            f"{path}, line {line}: the {what} is not encoded in UTF-8.", "Save it as UTF-8."
        ) from error


def _yaml_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        data = parse_yaml(text, str(path))
    except ConfigError as error:
        raise TaskError(error.message, error.remedy) from error
    if data is None:
        return
    if isinstance(data, dict) and set(data) == {"tasks"}:
        data = data["tasks"]
    if not isinstance(data, list):
        raise TaskError(
            f"{path}: a YAML task file is a list of tasks, or a mapping whose only key is 'tasks'.",
            "Correct it.",
        )
    for number, entry in enumerate(data, 1):
        yield f"entry {number}", entry


def _line_entries(text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                yield f"line {number}", error


def _task(entry: Any, suite: str) -> Task | str:
    """The task of an entry, or its mistake."""
    if isinstance(entry, json.JSONDecodeError):
        return f"not valid JSON: {entry.msg}"
    if not isinstance(entry, dict):
        return f"a task is a mapping, not {str(entry)[:40]!r}"
    try:
        task = Task.model_validate({"suite": suite, "split": "test", "template": "custom", **entry})
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            if problem["type"] == "extra_forbidden":  # first: a mistyped key is often missing, too
                key = str(problem["loc"][-1])
                hint = did_you_mean(key, Task.model_fields).strip()
                return f"unknown key {key!r}{f' ({hint})' if hint else ''}"
        return first_problem(error)
    if not task.id or not task.goal.strip():
        return "id and goal must not be empty"
    if len(task.id) > MAX_ID or not task.id.isprintable():
        return f"an id is one line of at most {MAX_ID} characters, not {task.id[:40]!r}"
    return task


def check_file(path: Path) -> None:
    """Raises TaskError unless `write_file` can write there."""
    if path.suffix not in (*_YAML, ".jsonl"):
        raise TaskError(f"{path}: a task file's extension is .jsonl or .yaml.", "Choose another name.")
    if path.exists():
        raise TaskError(f"{path} exists already.", "Choose another name, or remove it.")
    if not path.parent.is_dir():
        raise TaskError(f"{path}: the directory {path.parent} does not exist.", "Create it first.")


def write_file(tasks: Sequence[Task], path: Path) -> None:
    """Writes a task file that `load_file` reads: JSON lines or YAML."""
    check_file(path)
    entries = [task.model_dump(mode="json") for task in tasks]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    else:
        text = yaml.safe_dump({"tasks": entries}, sort_keys=False, allow_unicode=True, width=110)
    write_atomically(path, text)


TEMPLATE = "instruction"
KEYS = ("goal", "instruction", "goal_info", "task", "query")
"""Keys or columns of the instruction; the first one present is used."""
DIGEST_BYTES = 5
MAX_LENGTH = 4000
"""The longest instruction; a longer one indicates a broken file."""
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}


REPEATED = "repeat an instruction of their list"
EMPTY = "have no instruction"
LEAKED = "a later list has too"


@dataclass(frozen=True)
class LeftOut:
    """An entry of a list that became no task: its split, its text, and why."""

    split: str
    text: str
    why: str


def import_lists(lists: Sequence[str], suite: str, max_steps: int) -> tuple[list[Task], list[LeftOut]]:
    """The tasks of lists "SPLIT=FILE", and the entries that became none.

    An instruction that is in several splits stays in the one named last, as one names the test split after
    the training split: nothing that is tested is trained on.
    """
    found: dict[str, dict[str, str]] = {}
    left_out: list[LeftOut] = []
    for text in lists:
        split, file = _parse(text)
        if split in found:
            raise TaskError(f"the split {split!r} is named twice.", "Put the files together, or rename one.")
        goals, without = read_list(file)
        left_out += [LeftOut(split, entry, EMPTY) for entry in without]
        found[split] = {}
        for goal in goals:
            if found[split].setdefault(folded(goal), goal) is not goal:
                left_out.append(LeftOut(split, goal, REPEATED))
    tasks, later = list[Task](), set[str]()
    for split, distinct in reversed(found.items()):
        left_out += [LeftOut(split, goal, LEAKED) for name, goal in distinct.items() if name in later]
        kept = {name: goal for name, goal in distinct.items() if name not in later}
        if not kept:
            raise TaskError(f"every instruction of {split!r} is also in a later list.", "Choose other lists.")
        kind = {"suite": suite, "template": TEMPLATE, "split": split, "max_steps": max_steps}
        made = []
        for name, goal in kept.items():
            digest = hashlib.blake2b(name.encode(), digest_size=DIGEST_BYTES).hexdigest()
            id_ = f"{suite}/{TEMPLATE}/{split}/{digest}"
            made.append(Task.model_validate({"id": id_, "goal": goal, **kind}))
        tasks = [*made, *tasks]
        later |= distinct.keys()
    return tasks, left_out


def normalised(instruction: str) -> str:
    """The instruction in one form: one spelling, single spaces, no control characters, quotes or number."""
    text = "".join(" " if unicodedata.category(c) == "Cc" else c for c in instruction)
    text = " ".join(unicodedata.normalize("NFC", text).split())
    text = re.sub(r"^(?:\d{1,4}[.)]|[-*\u2022])\s+", "", text)
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and not {text[0], text[-1]} & set(text[1:-1]):
        text = text[1:-1].strip()
    return text


def read_list(file: Path) -> tuple[list[str], list[str]]:
    """The instructions of a list, normalised, in its order; and the entries that have none."""
    entries = list(_entries(file, read_text(file, "list")))
    for number, entry in enumerate(entries, 1):
        if len(entry) > MAX_LENGTH:
            rule = (
                f"instruction {number} has {len(entry)} characters, more than {MAX_LENGTH}: {entry[:40]!r}…"
            )
            raise TaskError(f"{file}: {rule}.", "A list has one instruction for each line or entry.")
    goals = [goal for goal in map(normalised, entries) if says_something(goal)]
    if not goals:
        raise TaskError(f"{file} contains no instructions.", "Add at least one.")
    return goals, [entry for entry in entries if not says_something(normalised(entry))]


def _entries(file: Path, text: str) -> Iterator[str]:
    """The instructions of a list as they are written."""
    if file.suffix == ".txt":
        yield from filter(str.strip, text.splitlines())
    elif file.suffix == ".csv":
        yield from _table(file, text)
    elif file.suffix == ".jsonl":
        for where, entry in _line_entries(text):
            if isinstance(entry, json.JSONDecodeError):
                raise TaskError(f"{file}, {where}: not valid JSON: {entry.msg}.", "Correct it.")
            if isinstance(entry, dict):
                entry = next((entry[name] for name in KEYS if name in entry), None)
            if not isinstance(entry, str):
                remedy = "Write a string, or an object with 'goal'."
                raise TaskError(f"{file}, {where}: there is no instruction.", remedy)
            yield entry
    else:
        raise TaskError(f"{file}: a list's extension is one of .txt, .csv, .jsonl.", "Rename or convert it.")


def _parse(text: str) -> tuple[str, Path]:
    split, equals, file = text.partition("=")
    if not equals or not re.fullmatch(r"\w[\w-]*", split) or not file:
        raise TaskError(
            f"{text!r} is not a valid list.", "Write SPLIT=FILE; with --androidworld, task names."
        )
    return split, Path(file).expanduser()


def _table(file: Path, text: str) -> Iterator[str]:
    """The column of the instructions. Other columns may contain line breaks in quotes."""
    rows = csv.reader(io.StringIO(text), strict=True)
    before = 0
    try:
        columns = [name.strip() for name in next(rows, [])]
        name = next((name for name in KEYS if name in columns), None)
        if name is None or columns.count(name) > 1:
            raise TaskError(
                f"{file}: one column must be named {' or '.join(KEYS)}; its columns: "
                f"{', '.join(columns)[:200]}.",
                "Name the column of the instructions, and no other one.",
            )
        column, before = columns.index(name), rows.line_num
        for row in rows:
            entry = row[column] if column < len(row) else ""
            if "\n" in entry.strip():
                rule = f"the instruction that begins in line {before + 1} continues to line {rows.line_num}"
                raise TaskError(f"{file}: {rule}.", "Close its quote, or write it in one line.")
            before = rows.line_num
            if row:
                yield entry
    except csv.Error as error:
        rule = f"the row that begins in line {before + 1} is not valid CSV, or has an open quote: {error}"
        raise TaskError(f"{file}: {rule}.", "Correct it.") from error
