"""The suite of web shops: solvable, unsolved at its start, honestly split. All on state, nothing is drawn."""

from __future__ import annotations

import itertools
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import leakage, load_suite, promises
from distrl.evaluator.suites.leakage import folded
from distrl.simulator.apps.webshop import suite as webshop
from distrl.simulator.apps.webshop.goods import BY_TITLE
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.apps.webshop.suite import PHRASES
from distrl.simulator.phone import interruptions
from distrl.simulator.phone.nodes import WIDTH
from distrl.simulator.phone.phone import Phone
from distrl.simulator.tasks import play as tasks

TASKS = load_suite("webshop")
BY_SPLIT = {split: [task for task in TASKS if task.split == split] for split in webshop.SPLITS}


def begin(task: Task) -> Phone:
    return Phone(tasks.start_state(task.template, task.params, task.seed))


def fulfilled(task: Task, phone: Phone) -> bool:
    """Whether what was asked for is there, whatever else was changed."""
    return tasks.template(task.template, task.params).check(phone.state, task.params)


def solved(task: Task, phone: Phone) -> bool:
    return not tasks.shortfall(task.template, task.params, phone.state)


def snapped(point: tuple[float, float]) -> tuple[float, float]:
    """The centre of the point's cell on a grid of 12 columns and 24 rows, as of policies with tap tokens."""
    return (int(point[0] * 12) + 0.5) / 12, (min(23, int(point[1] * 24)) + 0.5) / 24


def act(phone: Phone, action: Action) -> None:
    """Does what an action says, as exactly as a policy can say it."""
    if action.kind is ActionKind.TAP:
        assert action.point is not None
        x, y = snapped(action.point)
        phone.tap(x * WIDTH, y * phone.height)
    elif action.kind is ActionKind.SWIPE:
        assert action.point is not None
        assert action.to is not None
        (x1, y1), (x2, y2) = snapped(action.point), snapped(action.to)
        phone.swipe(x1 * WIDTH, y1 * phone.height, x2 * WIDTH, y2 * phone.height)
    elif action.kind is ActionKind.TYPE:
        phone.type_text(action.text)
    else:
        keys = {ActionKind.BACK: phone.back, ActionKind.HOME: phone.home, ActionKind.ENTER: phone.enter}
        keys.get(action.kind, phone.wait)()


def expert(task: Task, phone: Phone, limit: int) -> int:
    """Lets the expert go on. Returns its steps, with the last, COMPLETE."""
    for step in range(1, limit + 1):
        action = tasks.expert(task.template, task.params, phone)
        if action.is_terminal:
            assert action.kind is ActionKind.COMPLETE, task.id
            return step
        act(phone, action)
    raise AssertionError(f"{task.id} is not solved in {limit} steps: {task.goal}")


@pytest.mark.parametrize("template", list(webshop.COUNTS))
def test_the_expert_solves_every_instance_within_the_limit(template: str) -> None:
    steps = []
    for task in [task for task in TASKS if task.template == template]:
        phone = begin(task)
        assert not solved(task, phone), f"{task.id} is solved at its start"
        steps.append(expert(task, phone, task.max_steps))
        assert solved(task, phone), task.id
    assert statistics.median(steps) <= 16


def test_doing_nothing_solves_nothing() -> None:
    """Neither waiting to the last nor going back and home, which is all that can be done without looking."""
    for task in TASKS:
        phone = begin(task)
        for _ in range(task.max_steps):
            phone.wait()
            assert not solved(task, phone), task.id
        for action in (phone.enter, phone.back, phone.home):
            action()
            assert not solved(task, phone), task.id


def test_opening_the_shop_solves_no_task_but_a_visit() -> None:
    for task in TASKS:
        phone = begin(task)
        phone.state["front"] = "browser"
        phone.state["stacks"]["browser"].append(["site", task.params["shop"], "home"])
        assert solved(task, phone) == (task.template == "webshop1_visit"), task.id


def test_the_expert_recovers_from_random_wandering() -> None:
    for task in TASKS[::9]:
        rng, phone = random.Random(task.id), begin(task)
        for _ in range(rng.randrange(5, 40)):
            act(phone, wander(rng, task, phone))
        expert(task, phone, 120)
        assert fulfilled(task, phone), task.id


def test_the_expert_clears_interruptions_away() -> None:
    for task in TASKS[::13]:
        params = task.params | {"interruptions": list(interruptions.KINDS)}
        interrupted = task.model_copy(update={"params": params})
        phone = begin(interrupted)
        expert(interrupted, phone, 40)
        assert solved(interrupted, phone), task.id


@pytest.mark.parametrize("height", [720.0, 900.0])
def test_the_expert_copes_with_shorter_and_longer_screens(height: float) -> None:
    for task in TASKS[::11]:
        phone = Phone(begin(task).state, height)
        expert(task, phone, 30)
        assert solved(task, phone), task.id


def wander(rng: random.Random, task: Task, phone: Phone) -> Action:
    """Half of the time what the expert does, so that the wandering gets into the shop."""
    roll = rng.random()
    if roll < 0.5:
        action = tasks.expert(task.template, task.params, phone)
        if not action.is_terminal:
            return action
    if roll < 0.85:
        return Action.tap(rng.random(), rng.random())
    if roll < 0.92:
        return Action.swipe((0.5, 0.7), (0.5, rng.random()))
    if roll < 0.96:
        return Action.type_text(rng.choice(["lamp", "x"]))
    return Action(kind=rng.choice([ActionKind.BACK, ActionKind.ENTER]))


def test_sizes_levels_and_ids() -> None:
    sizes = Counter((task.template, task.split) for task in TASKS)
    counts = webshop.COUNTS.items()
    assert sizes == {(name, split): count for name, each in counts for split, count in each.items() if count}
    assert {split: len(found) for split, found in BY_SPLIT.items()} == {"train": 500, "val": 60, "test": 128}
    assert {task.max_steps for task in TASKS} == {20}
    assert len({task.id for task in TASKS}) == len(TASKS)
    assert "webshop/webshop2_sort/test/0003" in {task.id for task in TASKS}
    for found in BY_SPLIT.values():
        levels = Counter(task.params["level"] for task in found)
        assert set(levels) == {1, 2, 3}
        assert min(levels.values()) >= len(found) / 4


def test_the_suite_is_the_same_every_time() -> None:
    assert webshop.tasks() == TASKS


def test_start_states_depend_on_the_seed_alone() -> None:
    for task in TASKS[::40]:
        state = tasks.start_state(task.template, task.params, task.seed)
        assert state == tasks.start_state(task.template, task.params, task.seed)
        assert state != tasks.start_state(task.template, task.params, task.seed + 1)


def test_every_shop_and_layout_is_in_every_split() -> None:
    for found in BY_SPLIT.values():
        assert {task.params["shop"] for task in found} == set(SHOPS)
        assert {task.params["layout"] for task in found} == set(webshop.LAYOUTS)
        places = Counter((task.params["shop"], task.params["level"]) for task in found)
        assert len(places) == 3 * len(SHOPS)


def test_no_instance_comes_twice() -> None:
    assert len({json.dumps([task.template, task.params], sort_keys=True) for task in TASKS}) == len(TASKS)


def products(task: Task) -> set[str]:
    params = task.params
    return {entry["product"] for entry in params.get("cart", ())} | (
        {params["product"]} if "product" in params else set()
    )


def queries(task: Task) -> set[str]:
    return {task.params["query"]} if "query" in task.params else set()


@pytest.mark.parametrize("part", [queries, products])
def test_what_is_bought_and_searched_in_one_split_is_in_no_other(part: Callable[[Task], set[str]]) -> None:
    trained, chosen, tested = (set().union(*map(part, BY_SPLIT[split])) for split in webshop.SPLITS)
    assert len(trained) > 100
    assert len(tested) > 20
    assert trained.isdisjoint(tested)
    assert chosen.isdisjoint(trained | tested)


def test_a_category_of_a_shop_is_asked_for_in_one_split_only() -> None:
    splits = [
        {(task.params["shop"], task.params["category"]) for task in found if "category" in task.params}
        for found in BY_SPLIT.values()
    ]
    assert all({shop for shop, _ in one} == set(SHOPS) for one in splits)
    assert all(one.isdisjoint(two) for one, two in itertools.combinations(splits, 2))


def test_to_open_a_shop_and_no_more_is_only_trained_on() -> None:
    assert {task.split for task in TASKS if task.template == "webshop1_visit"} == {"train"}


def test_only_test_asks_for_held_out_brands() -> None:
    def asking(split: str) -> int:
        held = {brand.lower() for brand in webshop.HELD_OUT_BRANDS}
        return sum(bool(held & set(re.findall(r"\w+", task.goal.lower()))) for task in BY_SPLIT[split])

    assert asking("train") == asking("val") == 0
    assert asking("test") > 20


def test_goals_and_phrasings_of_val_and_test_are_new() -> None:
    for template in webshop.COUNTS:
        assert set(PHRASES[template]["train"]).isdisjoint(PHRASES[template]["test"])
    train, val, test = ({folded(task.goal) for task in found} for found in BY_SPLIT.values())
    assert train.isdisjoint(val | test)
    found = leakage.find(BY_SPLIT["train"], BY_SPLIT["val"] + BY_SPLIT["test"])
    assert found.broken(promises("webshop").rules) == []
    assert set(promises("webshop").rules) == {"tasks", "goals", "params", "phrasings"}


def test_a_goal_names_the_shop_and_what_is_wanted() -> None:
    for task in TASKS:
        params = task.params
        assert SHOPS[params["shop"]].host in task.goal
        for name in ("query", "category", "product", "brand", "color", "size"):
            assert str(params.get(name, "")) in task.goal, task.id
        if "color" in params:
            assert f"quantity {params['count']}" in task.goal
        if "{" in task.goal or "  " in task.goal:
            pytest.fail(task.goal)


def test_every_word_to_be_typed_is_in_the_vocabulary() -> None:
    known = set(webshop.vocabulary())
    for shop in SHOPS.values():
        assert shop.host.split(".")[0] in known
    for title in set().union(*(products(task) for task in TASKS)):
        assert title in BY_TITLE
        assert set(title.replace("-", " - ").split()) <= known
