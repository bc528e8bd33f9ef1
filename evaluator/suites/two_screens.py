"""The suite of the environment `two_screens`: a minimal test of whether a model learns to tap what it sees.

Templates, each in two screens:

    press   one button, of any colour, at one of four places: needs only vision
    pick    two buttons at two of four places, and the goal names the colour: needs reading too

In each split the right buttons cover all pairs of places equally, so always tapping the same two places has
a success of 1/16. No arrangement of both screens is in two splits. The buttons' exact positions, drawn from
the task's seed, differ everywhere: no picture of `val` or `test` is one of `train`.
"""

from __future__ import annotations

import random
from typing import Any

from distrl.core.types import Task

SUITE = "two_screens"
DISJOINT = ("tasks",)
"""Not shared with `train`; goals and pairs of places are few, so they are."""
MAX_STEPS = 4
COLORS = ("red", "green", "blue", "yellow")
NUM_PLACES = 4
COUNTS = {"train": 128, "val": 16, "test": 48}
"""Instances of each template in each split; each is a multiple of the 16 pairs of places."""


def tasks() -> list[Task]:
    """Every instance of every split, the same on every machine."""
    made: list[Task] = []
    for template, num_buttons in (("press", 1), ("pick", 2)):
        rng = random.Random(f"{SUITE}/1/{template}")
        arrangements = iter(_arrangements(rng, num_buttons, sum(COUNTS.values())))
        for split, count in COUNTS.items():
            for index in range(count):
                params = next(arrangements)
                made.append(
                    Task(
                        id=f"{SUITE}/{template}/{split}/{index:04d}",
                        suite=SUITE,
                        template=template,
                        split=split,
                        goal=goal(template, params),
                        params=params,
                        seed=random.Random(f"{SUITE}/1/{template}/{split}/{index}").getrandbits(31),
                        max_steps=MAX_STEPS,
                    )
                )
    return made


def goal(template: str, params: dict[str, Any]) -> str:
    """The instruction of a task."""
    if template == "press":
        return "Tap the button on both screens."
    first, then = (s[right]["color"] for s, right in zip(params["screens"], params["right"], strict=True))
    return f"Tap {first}, then {then}."


def _arrangements(rng: random.Random, num_buttons: int, count: int) -> list[dict[str, Any]]:
    """`count` distinct arrangements of both screens; the right places cycle through all pairs of places."""
    made: dict[str, dict[str, Any]] = {}
    while len(made) < count:
        places = (len(made) % NUM_PLACES, len(made) // NUM_PLACES % NUM_PLACES)
        screens = [_screen(rng, num_buttons, place) for place in places]
        made.setdefault(repr(screens), {"screens": screens, "right": [0, 0]})
    return list(made.values())


def _screen(rng: random.Random, num_buttons: int, right: int) -> list[dict[str, Any]]:
    """Buttons of different colours at different places, the right one first."""
    others = [place for place in range(NUM_PLACES) if place != right]
    places = [right, *rng.sample(others, num_buttons - 1)]
    return [
        {"color": color, "place": place}
        for color, place in zip(rng.sample(COLORS, num_buttons), places, strict=True)
    ]
