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
import re
from pathlib import Path
from typing import TYPE_CHECKING

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


def vocabulary() -> list[str]:
    """Every word, number and mark in the goals, over all splits, sorted."""
    goals = {task.goal for task in tasks()}
    return sorted({word for goal in goals for word in re.findall(r"\w+|[^\w\s]", goal)})


def read_instances(browser: Chromium, page: str) -> dict[str, list[tuple[str, str]]]:
    """By split, the instruction and the HTML of each of the page's instances.

    Raises:
        TaskError: One instance is in two splits.
    """
    from distrl.workers.envs.miniwob import MiniWob

    site = MiniWob()
    instances: dict[str, list[tuple[str, str]]] = {}
    split_of: dict[str, str] = {}
    for split in FIRST_SEEDS:
        instances[split] = site.describe(browser, page, seeds(split))
        for _, html in instances[split]:
            other = split_of.setdefault(html, split)
            if other != split:
                raise TaskError(
                    f"An instance of MiniWoB page {page!r} is both in {other!r} and in {split!r}.",
                    "Choose other seeds.",
                )
    return instances


def goals_by_page(browser: Chromium) -> dict[str, dict[str, list[str] | list[int]]]:
    """The data file: each page's distinct goals, and by split the index of each instance's goal."""
    made: dict[str, dict[str, list[str] | list[int]]] = {}
    for page in MAX_STEPS:
        instances = read_instances(browser, page)
        goals = sorted({goal for pairs in instances.values() for goal, _ in pairs})
        made[page] = {"goals": goals}
        for split, pairs in instances.items():
            made[page][split] = [goals.index(goal) for goal, _ in pairs]
    return made


def write() -> None:
    """Reads the pages and writes the data file, one line for each page and split."""
    from distrl.workers.envs.chromium import Chromium
    from distrl.workers.envs.miniwob import SIZE

    browser = Chromium(SIZE)
    try:
        made = goals_by_page(browser)
    finally:
        browser.close()
    pages = [
        f'"{page}": {{\n  '
        + ",\n  ".join(f'"{key}": {json.dumps(value)}' for key, value in parts.items())
        + "\n}"
        for page, parts in made.items()
    ]
    GOALS_FILE.write_text("{\n" + ",\n".join(pages) + "\n}\n", encoding="utf-8")
    print(f"{GOALS_FILE}: {', '.join(made)}")


if __name__ == "__main__":
    write()
