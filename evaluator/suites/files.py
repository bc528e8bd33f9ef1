"""Task files of users: YAML (a list, or a mapping with `tasks`) or JSON lines, one task each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from distrl.core.errors import TaskError
from distrl.core.types import Task

_YAML = (".yaml", ".yml")
_LINES = (".jsonl", ".ndjson")
MAX_ID = 200
"""Most characters of a task's id."""
_REMEDY = "A task has id and goal, and may have template, params, split, suite, seed and max_steps."


def load_file(path: Path) -> list[Task]:
    """The tasks of a file, in its order.

    Raises:
        TaskError: If the file cannot be read, or an entry is no task or repeats an id; it names
            file, entry and rule.
    """
    text = read_text(path, "task file")
    if path.suffix in _YAML:
        entries = list(_yaml_entries(path, text))
    elif path.suffix in _LINES:
        entries = list(_line_entries(path, text))
    else:
        raise TaskError(
            f"{path}: a task file ends in {', '.join(_YAML + _LINES)}; this one in {path.suffix!r}.",
            "Rename it.",
        )
    if not entries:
        raise TaskError(f"{path}: the task file holds no task.", "Add at least one.")
    return _validated(path, entries)


def read_text(path: Path, what: str) -> str:
    """The text of a file in UTF-8, with or without a byte order mark.

    Args:
        what: What the file should be, for people.

    Raises:
        TaskError: If it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        rule = f"{path}: the {what} cannot be read: {error.strerror}."
        raise TaskError(rule, "Check the path.") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise TaskError(f"{path}, line {line}: the {what} is not in UTF-8.", "Save it as UTF-8.") from error


def _yaml_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else "the file"
        raise TaskError(f"{path}, {where}: not valid YAML.", "Correct the syntax.") from error
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


def _line_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise TaskError(
                    f"{path}, line {number}: not valid JSON: {error.msg}.", "Correct it."
                ) from error


def _validated(path: Path, entries: list[tuple[str, Any]]) -> list[Task]:
    tasks: dict[str, Task] = {}
    for where, entry in entries:
        if not isinstance(entry, dict):
            raise TaskError(f"{path}, {where}: a task is a mapping, not {str(entry)[:40]!r}.", _REMEDY)
        entry = {"suite": path.stem, "split": "test", "template": "custom", **entry}
        try:
            task = Task.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            rule = f"{field}: {first['msg']}" if field else first["msg"]
            raise TaskError(f"{path}, {where}: {rule}.", _REMEDY) from error
        if not task.id or not task.goal.strip():
            raise TaskError(f"{path}, {where}: id and goal must not be empty.", "Fill them in.")
        if len(task.id) > MAX_ID or not task.id.isprintable():
            rule = f"an id is one line of at most {MAX_ID} characters"
            raise TaskError(f"{path}, {where}: {rule}, not {task.id[:40]!r}.", "Choose a shorter one.")
        if task.id in tasks:
            raise TaskError(f"{path}, {where}: the id {task.id!r} occurs twice.", "Ids must be unique.")
        tasks[task.id] = task
    return list(tasks.values())


def check_file(path: Path) -> None:
    """Raises TaskError unless `write_file` can write there."""
    if path.suffix not in (*_YAML, ".jsonl"):
        raise TaskError(f"{path}: a task file ends in .jsonl or .yaml.", "Choose another name.")
    if path.exists():
        raise TaskError(f"{path} is there already.", "Choose another name, or remove it.")
    if not path.parent.is_dir():
        raise TaskError(f"{path}: there is no directory {path.parent}.", "Make it first.")


def write_file(tasks: Sequence[Task], path: Path) -> None:
    """Writes a task file that `load_file` reads: one JSON a line, or YAML.

    Raises:
        TaskError: It cannot be written, or is there already.
    """
    check_file(path)
    entries = [task.model_dump(mode="json") for task in tasks]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    else:
        text = yaml.safe_dump({"tasks": entries}, sort_keys=False, allow_unicode=True, width=110)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TaskError(f"{path} cannot be written: {error.strerror}.", "Check the path.") from error
