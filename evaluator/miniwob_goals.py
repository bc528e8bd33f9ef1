"""Makes `suites/miniwob.json`: the instructions that the real pages write for the miniwob suite's seeds.

Run `python -m distrl.evaluator.miniwob_goals` after changing the suite's pages, seeds or counts.
"""

from __future__ import annotations

import json

from distrl.core.errors import TaskError
from distrl.evaluator.suites.miniwob import FIRST_SEEDS, GOALS_FILE, MAX_STEPS, seeds
from distrl.workers.envs.chromium import Chromium
from distrl.workers.envs.miniwob import SIZE, MiniWob


def read_instances(browser: Chromium, page: str) -> dict[str, list[tuple[str, str]]]:
    """By split, the instruction and the HTML of each of the page's instances.

    Raises:
        TaskError: One instance is in two splits.
    """
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
    """What the data file holds: each page's distinct goals, and by split the index of every instance's."""
    made: dict[str, dict[str, list[str] | list[int]]] = {}
    for page in MAX_STEPS:
        instances = read_instances(browser, page)
        goals = sorted({goal for pairs in instances.values() for goal, _ in pairs})
        made[page] = {"goals": goals}
        for split, pairs in instances.items():
            made[page][split] = [goals.index(goal) for goal, _ in pairs]
    return made


def write() -> None:
    """Asks the pages and writes the data file, one line for each page and split."""
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
