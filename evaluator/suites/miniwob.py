"""The miniwob suite: every page of MiniWoB++ that a scripted expert solves.

| split | |
|---|---|
| `train`, `val`, `test` | the same pages; a seed determines an instance, and each split has its own seeds |
| `unseen_template` | the pages in `UNSEEN`, which are not trained on |

The page writes the instruction when the episode begins; here a task's goal is the pattern of its page, with …
for what differs between instances. `miniwob.json` has the pages, their patterns and step limits, and the
instances that are left out: the expert cannot solve them, or training has the same. Run
`python -m distrl.evaluator.suites.miniwob` to write it again after changing pages, experts, seeds or counts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.core.types import Task

if TYPE_CHECKING:
    from distrl.workers.envs.browser import BrowserEnv

SUITE = "miniwob"
DISJOINT = ()
"""Goals and parameters are in every split. No seed is, and no instance of a page that has many."""
FIRST_SEEDS = {"train": 1_000_000, "val": 2_000_000, "test": 3_000_000, "unseen_template": 4_000_000}
COUNTS = {"train": 200, "val": 1, "test": 5, "unseen_template": 34}
"""Instances of each page by split."""
UNSEEN = (
    *("choose-date-medium", "click-checkboxes-large", "click-dialog-2", "click-tab-2-easy", "click-test-2"),
    *("drag-circle", "email-inbox-noscroll", "email-inbox-star-reply", "enter-password", "find-greatest"),
    *("multi-orderings", "unicode-test"),
)
GOALS_FILE = Path(__file__).with_name("miniwob.json")
CHECKED = 6
"""How many instances of a page and split the expert plays when the data file is made; none of `train`."""
MIN_SHARE = 0.5
"""A page of which the expert solves less is left out."""
MOST_STEPS = 40
"""After so many an expert has failed."""
TRAINED, TYPED = 15, 60
"""How many instances of `train` the expert plays for the vocabulary; more if it types what nothing shows."""
COMMON = 4
"""A word of fewer instances is a name."""


def pages(split: str) -> list[str]:
    """The pages of a split."""
    return [page for page in _data()["pages"] if (page in UNSEEN) == (split == "unseen_template")]


def seeds(split: str) -> range:
    """The seeds of a split, the same for every page."""
    return range(FIRST_SEEDS[split], FIRST_SEEDS[split] + COUNTS[split])


def tasks() -> list[Task]:
    """Every instance of every split; pages take turns, so the first few of a split have all of them."""
    made: list[Task] = []
    for name in FIRST_SEEDS:
        for index, seed in enumerate(seeds(name)):
            for page in pages(name):
                about = _data()["pages"][page]
                if seed not in about["left_out"]:
                    made.append(
                        Task(
                            id=f"{SUITE}/{page}/{name}/{index:04d}",
                            suite=SUITE,
                            template=page,
                            split=name,
                            goal=about["goal"],
                            params={"env": page},
                            seed=seed,
                            max_steps=about["max_steps"],
                        )
                    )
    return made


def vocabulary() -> list[str]:
    """Words that several training instances have, and what experts type that nothing shows."""
    words: list[str] = _data()["words"]
    return words


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(GOALS_FILE.read_text(encoding="utf-8"))
    return data


def pattern(goals: list[str]) -> str:
    """A goal with … for the words that not all goals of a page have."""
    shared = set.intersection(*(set(goal.split()) for goal in goals))
    words = [word if word in shared else "…" for word in goals[0].split()]
    return " ".join(word for at, word in enumerate(words) if word != "…" or at == 0 or words[at - 1] != "…")


def describe_pages(names: list[str]) -> dict[str, Any]:
    """The data file: plays the instances of all splits but `train` with the experts, in a browser."""
    from distrl.workers.envs.browser import BrowserEnv
    from distrl.workers.envs.miniwob import MiniWob

    site = MiniWob()
    env = BrowserEnv(site)
    about: dict[str, Any] = {}
    said: Counter[str] = Counter()
    typed: set[str] = set()
    try:
        for page in names:
            splits = ["unseen_template"] if page in UNSEEN else ["train", "val", "test"]
            checked = [seed for split in splits if split != "train" for seed in seeds(split)[:CHECKED]]
            steps: dict[int, int] = {}
            for seed in checked:
                if taken := play(env, page, seed)[0]:
                    steps[seed] = taken
            left_out = [seed for seed in checked if seed not in steps]
            if len(steps) < MIN_SHARE * len(checked):
                print(f"{page}: left out, {len(steps)} of {len(checked)} solved", flush=True)
                continue
            assert env.browser is not None
            shown = {split: site.describe(env.browser, page, seeds(split)) for split in splits}
            trained = {html for _, html in shown.get("train", [])}
            repeated = [
                seed
                for split in splits[1:]
                for seed, (_, html) in zip(seeds(split), shown[split], strict=True)
                if html in trained
            ]
            # A page with few instances, such as click-test, repeats them in every split.
            left_out += repeated if len(repeated) < len(checked) / 2 else []
            goals = [goal for goal, _ in shown[splits[0]][:30]]
            most, texts = max(steps.values()), set[str]()
            for at, seed in enumerate(seeds("train") if page not in UNSEEN else ()):
                if at == (TYPED if texts else TRAINED):
                    break
                taken, words, others = play(env, page, seed)
                most = max(most, taken)
                said.update(words)
                texts |= others
            typed |= texts
            limit = most * 4 // 3 + 2
            about[page] = {"goal": pattern(goals), "max_steps": limit, "left_out": left_out}
            print(f"{page}: {len(steps)} of {len(checked)}, at most {most} steps", flush=True)
    finally:
        env.close()
    words = {word for word, count in said.items() if count >= COMMON} | typed
    return {"pages": about, "words": sorted(words)}


def play(env: BrowserEnv, page: str, seed: int) -> tuple[int, set[str], set[str]]:
    """Plays an instance with the page's expert.

    Returns:
        Its steps, 0 where it fails; the words of its goal and elements; the short texts typed that neither
        has.
    """
    env.reset(Task(id=page, suite=SUITE, template=page, split="", goal="", params={"env": page}, seed=seed))
    texts, typed = {env.goal}, set()
    taken, is_over = 0, False
    while not is_over and taken < MOST_STEPS:
        texts |= (labels := {text for one in env.elements() for text in (one.text, one.description)})
        action = env.expert_action()
        is_shown = action.text in env.goal or action.text in labels
        if action.text and not is_shown and len(action.text) <= 12:
            typed.add(action.text)
        taken, is_over = taken + 1, action.is_terminal or env.step(action).done
    words = {word.lower() for text in texts for word in re.findall(r"[^\W\d_]+|[^\w\s]", text)}
    return (taken if env.evaluate() == 1.0 else 0), words, typed


if __name__ == "__main__":
    from distrl.workers.envs.miniwob import EXPERT_PAGES

    made = describe_pages(sorted(EXPERT_PAGES))
    GOALS_FILE.write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")
