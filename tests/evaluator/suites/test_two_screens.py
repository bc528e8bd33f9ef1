"""The two-screen suite: what its splits share, and what its goals say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.two_screens import COLORS, COUNTS, NUM_PLACES
from distrl.workers.envs.two_screens import COLORS as DRAWN
from distrl.workers.envs.two_screens import PLACES


def screens_of(task: Task) -> list[tuple[list[dict[str, Any]], int]]:
    """The buttons of each screen, and which is right."""
    return list(zip(task.params["screens"], task.params["right"], strict=True))


def test_no_arrangement_and_no_seed_is_in_two_splits() -> None:
    tasks = load_suite("two_screens")
    assert len({task.id for task in tasks}) == len({task.seed for task in tasks}) == len(tasks)
    assert len({repr(task.params) for task in tasks}) == len(tasks)
    assert Counter((t.template, t.split) for t in tasks) == {
        (template, split): count for template in ("press", "pick") for split, count in COUNTS.items()
    }


def test_the_goal_of_pick_names_the_right_colours_and_that_of_press_tells_nothing() -> None:
    assert set(COLORS) == set(DRAWN)
    assert len(PLACES) == NUM_PLACES
    for task in load_suite("two_screens"):
        first, then = (buttons[right] for buttons, right in screens_of(task))
        if task.template == "pick":
            assert task.goal == f"Tap {first['color']}, then {then['color']}."
            assert all(len({button["color"] for button in screen}) == 2 for screen in task.params["screens"])
        else:
            assert task.goal == "Tap the button on both screens."
            assert all(len(screen) == 1 for screen in task.params["screens"])


def test_who_always_taps_the_same_two_places_has_one_in_sixteen() -> None:
    for split, count in COUNTS.items():
        pairs = Counter(
            (task.template, *(buttons[right]["place"] for buttons, right in screens_of(task)))
            for task in load_suite("two_screens", split)
        )
        assert set(pairs.values()) == {count // NUM_PLACES**2}
        assert len(pairs) == 2 * NUM_PLACES**2
