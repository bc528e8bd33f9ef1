"""What a task template is: start state, check on the state, and scripted expert.

What a template needs is in a task's `params`, plain data; instances are made in `distrl.evaluator.suites`.
Every template takes `layout`, and may be given `interruptions`, of which it need not know. The expert has
no memory: it looks at the state and does what is right now, so it recovers from any wrong turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from distrl.core.actions import Action
from distrl.simulator.apps import BUILT_IN
from distrl.simulator.phone.hand import COMPLETE, Hand
from distrl.simulator.phone.keeping import May
from distrl.simulator.phone.state import State

Params = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """One kind of task.

    Attributes:
        needs: The parameters besides `layout`, and their types.
        start: Changes a fresh state into the task's start; given a seeded generator.
        check: Whether the state fulfils the task.
        expert: What to do now.
        choices: The values that a parameter may have; any of its type where it is not named.
        apps: The apps on the phone at the start, by name.
        removes: The parameter that names an app to be uninstalled, "" for none.
        shade: Whether the phone has a notification shade; the quickstart's templates do without.
        app: The app that its tasks are done in, "" where the parameters name it.
        may: What of the lasting parts of the state may be another at the end; None if nobody looks.
    """

    needs: dict[str, type]
    start: Callable[[State, Params, random.Random], None]
    check: Callable[[State, Params], bool]
    expert: Callable[[Hand, Params], Action]
    choices: Mapping[str, Container[Any]] = field(default_factory=dict)
    apps: tuple[str, ...] = BUILT_IN
    removes: str = ""
    shade: bool = True
    app: str = ""
    may: tuple[May, ...] | None = ()


def is_open(state: State, params: Params) -> bool:
    """A `check`: the app that `params` name is in front."""
    return bool(state["front"] == params["app"])


def open_it(hand: Hand, params: Params) -> Action:
    """An `expert` that opens that app."""
    return hand.open(params["app"]) or COMPLETE


def fresh(state: State, params: Params, rng: random.Random) -> None:
    """A `start` for tasks that begin on the fresh phone."""
