"""The miniwob suite: click tasks of MiniWoB++ whose targets differ by colour, shape and place.

| page | what to click | clicks |
|---|---|---|
| click-test | a button of any size, anywhere | 1 |
| click-color | the box in the colour of the goal, out of four | 1 |
| click-tab | the tab whose number the goal names | 1 |
| click-dialog | the cross of a dialog, anywhere | 1 |
| focus-text-2 | the first, second or third of three text fields | 1 |
| click-collapsible-nodelay | a section's head, then the button below, which moves | 2 |

A seed determines the instance, and each split has its own seeds. The pages write the instructions. They are
stored in `miniwob.json`, so that a list of tasks needs no browser; run `python -m
distrl.evaluator.suites.miniwob` to write that file again after changing the pages, seeds or counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.core.errors import TaskError
from distrl.core.types import Task

if TYPE_CHECKING:
    from distrl.workers.envs.chromium import Chromium

SUITE = "miniwob"
DISJOINT = ()
"""Goals and parameters are in every split: instances differ only by seeds, which no two splits share."""
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
"""The pages, and how many actions an episode may take: one or two more than needed."""
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


def goals_by_page(browser: Chromium) -> dict[str, dict[str, list[Any]]]:
    """The data file: each page's distinct goals, and by split the index of each instance's goal."""
    from distrl.workers.envs.miniwob import MiniWob

    site = MiniWob()
    made: dict[str, dict[str, list[Any]]] = {}
    for page in MAX_STEPS:
        instances = {split: site.describe(browser, page, seeds(split)) for split in FIRST_SEEDS}
        distinct = [{html for _, html in pairs} for pairs in instances.values()]
        if len(set().union(*distinct)) < sum(map(len, distinct)):
            raise TaskError(f"An instance of MiniWoB page {page!r} is in two splits.", "Choose other seeds.")
        goals = sorted({goal for pairs in instances.values() for goal, _ in pairs})
        indices = {split: [goals.index(goal) for goal, _ in pairs] for split, pairs in instances.items()}
        made[page] = {"goals": goals, **indices}
    return made


if __name__ == "__main__":
    from distrl.workers.envs.chromium import Chromium
    from distrl.workers.envs.miniwob import SIZE

    opened = Chromium(SIZE)
    GOALS_FILE.write_text(json.dumps(goals_by_page(opened)) + "\n", encoding="utf-8")
    opened.close()
