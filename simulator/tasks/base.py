"""What a task is made of: a template with start, check and expert, and a family with wordings of its goal.

A task's `params` are plain data. Every template takes `layout`, and may be given `interruptions`, which it
need not handle. Experts have no memory: they look at the state and do what is right now. They recover from
wrong pages and wrong input, but do not undo what else was changed: they complete a task that then scores 0.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from distrl.core.actions import Action
from distrl.core.types import Task
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone.nodes import Arg
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.expert import BACK, COMPLETE, IMPOSSIBLE, Expert

Params = dict[str, Any]
Start = Callable[[State, Params, Names], None]
Check = Callable[[State, Params], bool]
Step = Callable[[Expert, Params], Action]
Rest = Callable[[Any, Params], Any]
Tasks = Callable[[], list[Task]]
Aside = Callable[[Task], list[str]]
Phrasing = Callable[[Task], str]


def nothing(entry: Any, params: Params) -> None:
    """Leaves nothing of an entry to be compared: it may come, go and change."""


@dataclass(frozen=True)
class May:
    """A lasting part of the state that a task may change.

    Attributes:
        part: Its name as in `state_diff.lasting`; "{name}" stands for the task's parameter of that name.
        rest: What of an entry (of a part that is neither list nor mapping: of its value) must stay as it was;
            None for nothing. Entries of a mapping are lists of key and value.
    """

    part: str
    rest: Rest = nothing


def only(key: str, value: str, *fields: str) -> Rest:
    """The entry whose field `key` ("" for the entry itself) is the parameter `value`; of it only `fields`."""
    return where(lambda entry, params: (entry[key] if key else entry) == params[value], *fields)


def where(is_meant: Callable[[Any, Params], bool], *fields: str) -> Rest:
    """The entries that `is_meant` finds; of them only `fields`, if any are named."""

    def rest(entry: Any, params: Params) -> Any:
        if not is_meant(entry, params):
            return entry
        return {key: value for key, value in entry.items() if key not in fields} if fields else None

    return rest


@dataclass(frozen=True)
class Template:
    """One kind of task.

    Attributes:
        start: Changes a fresh state into the task's start; given a seeded generator.
        choices: The values that a parameter may have; any of its type where it is not named.
        phone: The phone that it starts on, one of `play.PHONES`.
        app: The app that its tasks are done in, "" where the parameters name it.
        removes: The parameter that names an app to be uninstalled, "" for none.
    """

    needs: Mapping[str, type]
    start: Start
    check: Check
    expert: Step
    choices: Mapping[str, Container[Any]] = field(default_factory=dict)
    phone: str = "new"
    app: str = ""
    may: tuple[May, ...] = ()
    removes: str = ""


def everyday(
    app: str,
    needs: Mapping[str, type],
    start: Start,
    check: Check,
    step: Callable[[Expert, Params], Action | None],
    choices: Mapping[str, Container[Any]] | None = None,
    may: tuple[May, ...] = (),
    phone: str = "everyday",
) -> Template:
    """A template whose task is done in `app`, of a phone in daily use by default.

    Args:
        step: What to do while `app` is in front and the check fails; None to go back.
    """

    def act(expert: Expert, params: Params) -> Action:
        if check(expert.state, params):
            return COMPLETE
        return expert.open(app) or step(expert, params) or BACK

    return Template(needs, start, check, act, choices or {}, phone, app, may)


def fresh(state: State, params: Params, rng: random.Random) -> None:
    """A `start` that changes nothing."""


def is_shown(state: State, app: str, *page: Arg) -> bool:
    """Whether `app` is in front with this page on top."""
    return bool(state["front"] == app and st.page(state, app) == list(page))


def mark(entry: State) -> None:
    """Marks an entry of a list, so that it is recognised whatever its name and time become."""
    entry["mark"] = True


def is_marked(entries: Iterable[State]) -> bool:
    """Whether the marked entry is still there."""
    return any(entry.get("mark", False) for entry in entries)


@dataclass(frozen=True)
class Entries:
    """A list in an app's data of which tasks name one entry, and their checks and expert's steps with it.

    Attributes:
        app, part: The app, and the list's name in its data.
        key: The field that has the entry's name.
        page, row: The page that shows an entry, and the ids of the rows, without the entry's place.
        param: The task's parameter with the name; `key` by default.
        is_searched: Whether the expert finds an entry by the app's search, and not on its first page.
    """

    app: str
    part: str
    key: str
    page: str
    row: str
    param: str = ""
    is_searched: bool = False

    def all(self, state: State) -> list[State]:
        """The list."""
        entries: list[State] = state["apps"][self.app][self.part]
        return entries

    def find(self, state: State, params: Params) -> int:
        """The place of the task's entry, -1 when there is none."""
        name = params[self.param or self.key]
        return next((place for place, entry in enumerate(self.all(state)) if entry[self.key] == name), -1)

    def entry(self, state: State, params: Params) -> State:
        """The task's entry, empty when there is none."""
        place = self.find(state, params)
        return self.all(state)[place] if place >= 0 else {}

    def is_open(self, state: State, params: Params) -> bool:
        """Whether the entry is shown."""
        at, name = st.page(state, self.app), params[self.param or self.key]
        is_it = at[0] == self.page and self.all(state)[int(at[1])][self.key] == name
        return bool(is_it and state["front"] == self.app)

    def is_gone(self, state: State, params: Params) -> bool:
        """Whether the marked entry was deleted."""
        return not is_marked(self.all(state))

    def remove(self, state: State, params: Params, rng: random.Random) -> None:
        """A `start` without the task's entry."""
        name = params[self.param or self.key]
        self.all(state)[:] = [entry for entry in self.all(state) if entry[self.key] != name]

    def search(self, expert: Expert, params: Params) -> Action:
        """Finds and opens the entry by the app's search."""
        place = self.find(expert.state, params)
        if place < 0:
            return IMPOSSIBLE
        return expert.search(self.app, params[self.param or self.key], f"{self.row}_{place}")

    def open(self, expert: Expert, params: Params) -> Action | None:
        """Opens the entry; None when it is open."""
        place, at = self.find(expert.state, params), expert.page(self.app)
        if place >= 0 and at == [self.page, place]:
            return None
        if place < 0 or self.is_searched:
            return self.search(expert, params)
        return expert.tap(f"{self.row}_{place}") if at[0] == "root" else BACK

    def tap(self, rid: str) -> Step:
        """A step: opens the entry, then taps `rid`."""
        return lambda expert, params: self.open(expert, params) or expert.tap(rid)

    def delete(self, expert: Expert, params: Params) -> Action:
        """Deletes the entry, with its confirmation."""
        if expert.page(self.app) == ["delete", self.find(expert.state, params)]:
            return expert.tap("confirm")
        return self.open(expert, params) or expert.tap("delete")

    def matches(self, field: str, param: str = "", unset: str = "") -> Check:
        """A check: the entry's `field` is the parameter `param`, by default that of the same name.

        The entry's field `unset` must not be set.
        """

        def check(state: State, params: Params) -> bool:
            entry = self.entry(state, params)
            return entry.get(field) == params[param or field] and not entry.get(unset)

        return check

    def may(self, *fields: str) -> tuple[May, ...]:
        """The task's entry may change; of it only `fields`, if any are named."""
        return (May(f"{self.app}.{self.part}", only(self.key, self.param or self.key, *fields)),)


Values = str | Sequence[Any] | Callable[[Names], Any]
"""What a parameter may be: a kind of names, one of a sequence, or whatever a function draws."""


@dataclass(frozen=True)
class Family:
    """Tasks of one kind in a suite.

    Attributes:
        name: What `wordings.txt` has its wordings under.
        values: The parameters other than `layout`.
        words: What fills a wording, from the parameters.
        template: The name of its template, `name` by default.
        fits: Whether parameters go together.
    """

    name: str
    values: Mapping[str, Values]
    words: Callable[[Params], Mapping[str, object]] = dict
    template: str = ""
    fits: Callable[[Params], bool] = lambda params: True

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that are names."""
        return tuple(key for key, values in self.values.items() if isinstance(values, str))

    @property
    def is_finite(self) -> bool:
        """Whether all parameters are of sequences, so that `combos` are all there are."""
        return all(
            isinstance(values, Sequence) and not isinstance(values, str) for values in self.values.values()
        )

    def combos(self) -> list[Params]:
        """Every combination of the parameters, if they are finite."""
        columns: Any = self.values.values()
        every = (dict(zip(self.values, combo, strict=True)) for combo in itertools.product(*columns))
        return [params for params in every if self.fits(params)]

    def draw(self, names: Names) -> Params:
        """A combination of the parameters; names are those of training or held out, as `names` is."""
        while True:
            params = {key: self._draw(values, names) for key, values in self.values.items()}
            if self.fits(params):
                return params

    @staticmethod
    def _draw(values: Values, names: Names) -> Any:
        if isinstance(values, str):
            return names.name(values)
        return values(names) if callable(values) else names.choice(values)


def instance(
    name: str,
    template: str,
    wording: str,
    words: Mapping[str, object],
    params: Params,
    seed: int,
    max_steps: int,
) -> tuple[Task, str]:
    """The instance of a suite with the id `name`, "SUITE/FAMILY/SPLIT/NUMBER", and its wording."""
    suite, _, split, _ = name.split("/")
    task = Task(
        id=name,
        suite=suite,
        template=template,
        split=split,
        goal=wording.format(thing=_thing(name), **words),
        params=params,
        seed=seed,
        max_steps=max_steps,
    )
    return task, wording


def _thing(name: str) -> str:
    """A thing, one of training, that the task `name` is not about."""
    return Names(2 * zlib.crc32(name.encode())).name("thing")


def suite_of(make: Callable[[], dict[str, tuple[Task, str]]]) -> tuple[Tasks, Phrasing, Aside]:
    """The functions `tasks`, `phrasing` and `aside` of a suite, from its tasks by id, each with its wording.

    `aside` returns what a goal names although the task is not about it.
    """
    made = cache(make)

    def aside(task: Task) -> list[str]:
        return [_thing(task.id)] if "{thing}" in made()[task.id][1] else []

    return lambda: [task for task, _ in made().values()], lambda task: made()[task.id][1], aside
