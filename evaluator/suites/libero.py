"""LIBERO's suites: its tasks by their own sentences, from its own initial states, of which some are held out.

| split | starts |
|---|---|
| `train`, `val`, `test` | of LIBERO's 50 initial states of a task the first 35, the next 5 and the last 10 |
| `train_recorded` | those of the user's recorded demonstrations, which the expert then plays back |

Tasks and sentences are the same in all splits: LIBERO measures new places of known things. Task files are
read from the user's install, without importing it.
"""

from __future__ import annotations

import re
from functools import partial

from distrl.core.errors import MissingDependency
from distrl.core.types import Task
from distrl.workers.envs.libero import INSTALL, places

DISJOINT = ("tasks",)
"""A task's parameters are its name and its start: no start is in two splits."""
MAX_STEPS = 600
"""LIBERO's limit in simulated steps, of which an action has one or more. `env.options.limit` is lower."""
STARTS = {
    "train": ("init", range(35)),
    "val": ("init", range(35, 40)),
    "test": ("init", range(40, 50)),
    "train_recorded": ("recording", range(50)),
}


def _tasks(suite: str) -> list[Task]:
    """Tasks take turns, so that the first few of a split have all of them."""
    folder = places()["bddl_files"] / suite
    goals = {file.stem: _sentence(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.bddl"))}
    if not goals:
        raise MissingDependency(f"LIBERO's task files are not in {folder}.", INSTALL)
    return [
        Task(
            id=f"{suite}/{name}/{split}/{start:02d}",
            suite=suite,
            template=name,
            split=split,
            goal=goal,
            params={"env": f"{suite}/{name}", key: start},
            max_steps=MAX_STEPS,
        )
        for split, (key, starts) in STARTS.items()
        for start in starts
        for name, goal in goals.items()
    ]


def _sentence(bddl: str) -> str:
    found = re.search(r"\(:language ([^)]*)\)", bddl)
    return " ".join(found[1].split()) if found else ""


spatial, objects, goal, long, ninety = (
    partial(_tasks, f"libero_{name}") for name in ("spatial", "object", "goal", "10", "90")
)
