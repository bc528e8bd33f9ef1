"""The miniwob suite: click tasks of MiniWoB++ whose targets differ by colour, shape and place.

| page | what to click | clicks |
|---|---|---|
| click-test | a button of any size anywhere | 1 |
| click-color | of four coloured boxes the one that the goal names | 1 |
| click-tab | the tab whose number the goal names | 1 |
| click-dialog | the cross of a dialog that lies somewhere | 1 |
| focus-text-2 | the first, second or third of three text fields | 1 |
| click-collapsible-nodelay | a section's head, then the button below, which has moved | 2 |

A seed determines the instance, and each split has seeds of its own. The pages write the instructions; they
are kept in `miniwob.json`, which `python -m distrl.evaluator.miniwob_goals` makes from the pages, so that a
list of tasks needs no browser.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from distrl.core.types import Task

SUITE = "miniwob"
DISJOINT = ()
"""What a task says is in every split: instances differ by their seeds alone, which no two splits share."""
FIRST_SEEDS = {"train": 1_000_000, "val": 2_000_000, "test": 3_000_000}
COUNTS = {"train": 400, "val": 16, "test": 40}
"""Instances of each page by split."""
MAX_STEPS = {
    "click-test": 3,
    "click-color": 3,
    "click-tab": 3,
    "click-dialog": 3,
    "focus-text-2": 3,
    "click-collapsible-nodelay": 4,
}
"""The pages, and how many actions an episode may take: one or two more than it needs, after misses."""
GOALS_FILE = Path(__file__).with_name("miniwob.json")


def seeds(split: str) -> range:
    """The seeds of a split, the same for every page."""
    return range(FIRST_SEEDS[split], FIRST_SEEDS[split] + COUNTS[split])


def tasks(split: str | None = None) -> list[Task]:
    """Every instance of a split, or of all splits; pages take turns, so the first few have all of them."""
    data = json.loads(GOALS_FILE.read_text(encoding="utf-8"))
    made: list[Task] = []
    for name in FIRST_SEEDS if split is None else (split,):
        for index, seed in enumerate(seeds(name)):
            for page, max_steps in MAX_STEPS.items():
                made.append(
                    Task(
                        id=f"{SUITE}/{page}/{name}/{index:04d}",
                        suite=SUITE,
                        template=page,
                        split=name,
                        goal=data[page]["goals"][data[page][name][index]],
                        params={"env": page},
                        seed=seed,
                        max_steps=max_steps,
                    )
                )
    return made


def vocabulary() -> list[str]:
    """Every word, number and mark in the goals, over all splits, sorted."""
    goals = {task.goal for task in tasks()}
    return sorted({word for goal in goals for word in re.findall(r"\w+|[^\w\s]", goal)})
