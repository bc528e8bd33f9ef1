"""Task files of users: YAML (a list, or a mapping with `tasks`) or JSON lines, one task each."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from distrl.configs.parse import parse_yaml
from distrl.core.errors import ConfigError, TaskError
from distrl.core.types import Task

_YAML = (".yaml", ".yml")
_LINES = (".jsonl", ".ndjson")
MAX_ID = 200
"""Most characters of a task's id."""
MAX_MISTAKES = 10
"""Most mistakes that are told at a time."""
_REMEDY = "A task has id and goal, and may have template, params, split, suite, seed and max_steps."


def load_file(path: Path) -> list[Task]:
    """The tasks of a file, in its order.

    Raises:
        TaskError: If the file cannot be read, or an entry is no task or repeats an id; it names
            file, entries and rules.
    """
    text = read_text(path, "task file")
    if path.suffix in _YAML:
        entries = list(_yaml_entries(path, text))
    elif path.suffix in _LINES:
        entries = list(_line_entries(text))
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


def _validated(path: Path, entries: list[tuple[str, Any]]) -> list[Task]:
    tasks: dict[str, Task] = {}
    mistakes: list[str] = []
    for where, entry in entries:
        found = _task(entry, path.stem)
        if isinstance(found, Task) and found.id in tasks:
            found = [f"the id {found.id!r} occurs twice"]
        if isinstance(found, Task):
            tasks[found.id] = found
        else:
            mistakes += [f"{where}: {mistake}" for mistake in found]
    if mistakes:
        more = f"; and {len(mistakes) - MAX_MISTAKES} more" if len(mistakes) > MAX_MISTAKES else ""
        told = f"{path}, {'; '.join(mistakes[:MAX_MISTAKES])}{more}"
        raise TaskError(told if told.endswith("?") else f"{told}.", _REMEDY)
    return list(tasks.values())


def _task(entry: Any, suite: str) -> Task | list[str]:
    """The task of an entry, or what is wrong with it."""
    if isinstance(entry, json.JSONDecodeError):
        return [f"not valid JSON: {entry.msg}"]
    if not isinstance(entry, dict):
        return [f"a task is a mapping, not {str(entry)[:40]!r}"]
    try:
        task = Task.model_validate({"suite": suite, "split": "test", "template": "custom", **entry})
    except ValidationError as error:
        return _explain(error)
    if not task.id or not task.goal.strip():
        return ["id and goal must not be empty"]
    if len(task.id) > MAX_ID or not task.id.isprintable():
        return [f"an id is one line of at most {MAX_ID} characters, not {task.id[:40]!r}"]
    return task


def _explain(error: ValidationError) -> list[str]:
    """Unknown keys first; a key that one of them was meant to be is not missing besides."""
    unknown: list[str] = []
    others: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        field = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            unknown.append(field)
        elif problem["type"] == "missing":
            others[field] = f"{field} is missing"
        else:
            others[field] = f"{field}: {problem['msg']}" if field else problem["msg"]
    told = []
    for key in unknown:
        near = difflib.get_close_matches(key, Task.model_fields, n=1)
        told.append(f"unknown key {key!r}{f', did you mean {near[0]!r}?' if near else ''}")
        if near:
            others.pop(near[0], None)
    return told + list(others.values())


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
