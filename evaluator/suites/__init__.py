"""Task suites by name, by a user's file, or by import path. A new suite: one module, one line in `SUITES`.

A suite's module has `tasks() -> list[Task]`: plain data, made without starting anything.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from distrl.configs.schema import TasksConfig
from distrl.core.errors import ConfigError, DistrlError, TaskError
from distrl.core.importing import did_you_mean, import_object
from distrl.core.types import Task
from distrl.core.user_errors import ALL_OF_IT, raised_by_own_code
from distrl.evaluator.suites.files import load_file
from distrl.evaluator.suites.leakage import DEFAULT_RULES, Named, masked, nameless, without

SUITES: dict[str, str] = {
    "quickstart": "distrl.simulator.tasks.suites.quickstart:tasks",
    "webshop": "distrl.simulator.apps.webshop.suite:tasks",
    "general": "distrl.simulator.tasks.suites.general:tasks",
    "install": "distrl.simulator.apps.store_tasks:tasks",
    "miniwob": "distrl.evaluator.suites.miniwob:tasks",
    "two_screens": "distrl.evaluator.suites.two_screens:tasks",
    "metaworld": "distrl.evaluator.suites.metaworld:tasks",
    "metaworld_ten": "distrl.evaluator.suites.metaworld:ten",
    "libero_spatial": "distrl.evaluator.suites.libero:spatial",
    "libero_object": "distrl.evaluator.suites.libero:objects",
    "libero_goal": "distrl.evaluator.suites.libero:goal",
    "libero_10": "distrl.evaluator.suites.libero:long",
    "libero_90": "distrl.evaluator.suites.libero:ninety",
}
"""Names and loaders ("module:function", the function returns the suite's tasks)."""
_SUITE = "A suite is a list of distrl.core.types.Task, or a function that returns one."


def load_suite(name_or_path: str, split: str | None = None) -> list[Task]:
    """The tasks of a suite, or of one of its splits.

    Args:
        name_or_path: A name in `SUITES`, a task file (.yaml, .yml, .jsonl), or "pkg.mod:Name" of a function
            that returns tasks or of a list of tasks.
    """
    tasks = list(_load(name_or_path))
    if split is None:
        return tasks
    chosen = [task for task in tasks if task.split == split]
    if not chosen:
        known = ", ".join(dict.fromkeys(task.split for task in tasks))
        raise TaskError(f"suite {name_or_path!r} has no split {split!r}.", f"Its splits: {known}.")
    return chosen


def load_tasks(config: TasksConfig, split: str | None = None) -> list[Task]:
    """The tasks of `config.suite`, or of one of its splits, without the templates in `leave_out`."""
    tasks = load_suite(config.suite, split)
    templates = {task.template: None for task in _load(config.suite)}
    for name in config.leave_out:
        if name not in templates:
            hint = did_you_mean(name, templates)
            raise TaskError(
                f"the suite {config.suite!r} has no template {name!r}, which tasks.leave_out names.",
                f"{hint}`distrl tasks list` shows each task's template.",
            )
    kept = [task for task in tasks if task.template not in config.leave_out]
    if not kept:
        raise TaskError(f"tasks.leave_out leaves no task in the split {split!r}.", "Name fewer templates.")
    return kept


def get_task(task_id: str, suite: str | None = None) -> Task:
    """The task with this id, by default of the suite that the id begins with."""
    if suite is None:
        suite = task_id.split("/", 1)[0]
        if suite not in SUITES:
            remedy = f"Ids begin with a suite: {', '.join(SUITES)}."
            raise TaskError(f"no suite has a task {task_id!r}.", remedy)
    by_id = {task.id: task for task in _load(suite)}
    if task_id not in by_id:
        hint = did_you_mean(task_id, by_id)
        raise TaskError(
            f"the suite {suite!r} has no task {task_id!r}.", f"{hint}See `distrl tasks list {suite}`."
        )
    return by_id[task_id]


def vocabulary(config: TasksConfig, policy: str = "") -> list[str]:
    """The words that a policy of this kind needs: its module's `vocabulary()`, else those of its goals.

    If the module says which names a task is about, the kind `reader` gets the words of the training goals
    without names. Others are as new to it in evaluation as they are in use.
    """
    tasks, module = _load(config.suite), _module(config.suite)
    given = getattr(module, "vocabulary", None)
    names = getattr(module, "names", None) if policy == "reader" else None
    if given is not None and names is None:
        return list(given())
    if names is None:
        texts = {task.goal for task in tasks}
    else:
        splits = {config.train, config.drift and config.drift.split}
        texts = {without(task.goal, names(task)) for task in tasks if task.split in splits}
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)})


@dataclass(frozen=True)
class Promises:
    """How a suite's splits differ from `train`, according to its module.

    Attributes:
        rules: Names in `leakage.RULES` of what they do not share with it (the module's `DISJOINT`).
        phrasing: A task's wording without its parameters (its function `phrasing`).
        names: The names that a task is about (its function `names`).
    """

    rules: tuple[str, ...] = DEFAULT_RULES
    phrasing: Callable[[Task], str] = masked
    names: Named = nameless


def promises(name_or_path: str) -> Promises:
    """The suite's promises; a file promises that no task and no goal is in training."""
    _load(name_or_path)
    module = _module(name_or_path)
    rules = tuple(getattr(module, "DISJOINT", DEFAULT_RULES))
    return Promises(rules, getattr(module, "phrasing", masked), getattr(module, "names", nameless))


def is_trained_on(split: str) -> bool:
    """Whether a split is for training; the others are for evaluation."""
    return split == "drift" or split.startswith("train")


def _module(name_or_path: str) -> ModuleType | None:
    """The module of a suite that is loaded; None for a file."""
    name, colon, _ = SUITES.get(name_or_path, name_or_path).partition(":")
    return sys.modules.get(name) if colon else None


def _load(name_or_path: str) -> tuple[Task, ...]:
    if name_or_path in SUITES:
        return _import(SUITES[name_or_path])
    if ":" in name_or_path and not Path(name_or_path).exists():
        return _import(name_or_path)
    if Path(name_or_path).suffix:
        return tuple(load_file(Path(name_or_path)))
    raise TaskError(
        f"there is no suite {name_or_path!r}.",
        f"Suites: {', '.join(SUITES)}; or give a .yaml or .jsonl file, or pkg.mod:Name.",
    )


@lru_cache(maxsize=16)
def _import(path: str) -> tuple[Task, ...]:
    try:
        found = import_object(path)
    except ConfigError as error:
        raise TaskError(f"suite {path!r} cannot be imported: {error.message}", error.remedy) from error
    tasks = _call(path, found)
    wrong = [task for task in tasks if not isinstance(task, Task)]
    if wrong or not tasks:
        what = f"contains a {type(wrong[0]).__name__}" if wrong else "is empty"
        raise TaskError(f"suite {path!r} is not a list of Task: it {what}.", _SUITE)
    name, count = Counter(task.id for task in tasks).most_common(1)[0]
    if count > 1:  # results are by id
        raise TaskError(f"suite {path!r}: {count} tasks have the id {name!r}.", "Give each its own.")
    return tasks


def _call(path: str, found: Any) -> tuple[Any, ...]:
    """The elements of a list, or of a function's result."""
    try:
        given = found() if callable(found) and not isinstance(found, type) else found
        if isinstance(given, Iterable):
            return tuple(given)
    except DistrlError:
        raise
    except Exception as error:
        reason = raised_by_own_code(error)
        if reason is None:
            raise
        raise TaskError(f"suite {path!r}: {reason}.", ALL_OF_IT) from error
    what = f"the class {given.__name__}" if isinstance(given, type) else repr(given)[:40]
    raise TaskError(f"suite {path!r} is not a list of Task but {what}.", _SUITE)
