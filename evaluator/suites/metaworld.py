"""The suites `metaworld` and `metaworld_ten`: Meta-World's tasks, each with this project's own sentences.

| split | |
|---|---|
| `train` | the seeds from which objects and goals are placed are below a million |
| `val`, `test` | other seeds, and sentences that are not trained on |
| `unseen_template` | five tasks that are not trained on, by their test sentences |

`metaworld` holds out the five tasks that ML45 holds out, and trains on the other 45. `metaworld_ten` trains
on ten of those, of which the picture alone does not always say what is to be done, and holds out five others.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from distrl.core.errors import TaskError
from distrl.core.importing import did_you_mean
from distrl.core.types import Task

SUITE = "metaworld"
DISJOINT = ("goals",)
"""A task of Meta-World is one template, whose parameters are its name. No seed is in two splits."""
MAX_STEPS = 500
"""Meta-World's limit in simulated steps, of which an action has one or more. `env.options.limit` is lower."""
ML45_UNSEEN = ("bin-picking", "box-close", "door-lock", "door-unlock", "hand-insert")
TEN = (
    *("button-press-topdown", "coffee-button", "door-open", "drawer-close", "drawer-open"),
    *("faucet-close", "faucet-open", "plate-slide", "window-close", "window-open"),
)
TEN_UNSEEN = ("button-press", "door-close", "handle-press", "plate-slide-side", "reach")
FIRST_SEEDS = {"train": 1, "val": 1_000_000, "test": 2_000_000, "unseen_template": 3_000_000}
COUNTS = {"train": 500, "val": 5, "test": 40, "unseen_template": 80}
"""Seeds of each task by split."""


@cache
def sentences() -> dict[str, tuple[list[str], list[str]]]:
    """For each task the sentences of training, and those of measurements."""
    text = Path(__file__).with_name("metaworld.json").read_text(encoding="utf-8")
    return {name: (trained, measured) for name, (trained, measured) in json.loads(text).items()}


def tasks() -> list[Task]:
    """All 50 tasks."""
    return _tasks([name for name in sentences() if name not in ML45_UNSEEN], ML45_UNSEEN, SUITE)


def ten() -> list[Task]:
    """Ten tasks, and five that are not trained on."""
    return _tasks(TEN, TEN_UNSEEN, f"{SUITE}_ten")


def known(task: Task) -> None:
    """Raises TaskError if it is not a task of Meta-World."""
    names = [f"{name}-v3" for name in sentences()]
    if (name := task.params.get("env")) not in names:
        raise TaskError(
            f"Task {task.id!r} is not a task of the env metaworld: it has no task {name!r}.",
            f"{did_you_mean(str(name), names)}Set params.env to one of its tasks, such as drawer-open-v3.",
        )


def vocabulary() -> list[str]:
    """The words of all sentences of training."""
    among = [trained for name, (trained, _) in sentences().items() if name not in ML45_UNSEEN]
    return sorted({word for texts in among for text in texts for word in re.findall(r"\w+", text.lower())})


def _tasks(names: list[str] | tuple[str, ...], unseen: tuple[str, ...], suite: str) -> list[Task]:
    """Tasks take turns, so that the first few of a split have all of them."""
    made = []
    for split, count in COUNTS.items():
        for index in range(count):
            for name in unseen if split == "unseen_template" else names:
                texts = sentences()[name][split != "train"]
                made.append(
                    Task(
                        id=f"{suite}/{name}/{split}/{index:04d}",
                        suite=suite,
                        template=name,
                        split=split,
                        goal=texts[index % len(texts)],
                        params={"env": f"{name}-v3"},
                        seed=FIRST_SEEDS[split] + index,
                        max_steps=MAX_STEPS,
                    )
                )
    return made
