"""The suite of web shops: solvable, unsolved at its start, honestly split. All on state, nothing is drawn."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.apps.webshop import suite as webshop
from distrl.simulator.apps.webshop.goods import BY_TITLE
from distrl.simulator.apps.webshop.shops import SHOPS
from distrl.simulator.phone.phone import Phone
from distrl.simulator.tasks import play as tasks

TASKS = load_suite("webshop")
BY_SPLIT = {split: [task for task in TASKS if task.split == split] for split in webshop.SPLITS}


def begin(task: Task) -> Phone:
    return Phone(tasks.start_state(task.template, task.params, task.seed))


def solved(task: Task, phone: Phone) -> bool:
    return not tasks.shortfall(task.template, task.params, phone.state)


def test_opening_the_shop_solves_no_task_but_a_visit() -> None:
    for task in TASKS:
        phone = begin(task)
        phone.state["front"] = "browser"
        phone.state["stacks"]["browser"].append(["site", task.params["shop"], "home"])
        assert solved(task, phone) == (task.template == "webshop1_visit"), task.id


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


def test_every_word_to_be_typed_is_in_the_vocabulary() -> None:
    known = set(webshop.vocabulary())
    for shop in SHOPS.values():
        assert shop.host.split(".")[0] in known
    for title in set().union(*(products(task) for task in TASKS)):
        assert title in BY_TITLE
        assert set(title.replace("-", " - ").split()) <= known
