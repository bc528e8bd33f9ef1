"""The install suite: every instance solved by the expert, by nobody else; all on state, nothing is drawn."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.apps import store_tasks as install
from distrl.simulator.phone import interruptions
from distrl.workers.envs.phone import PhoneEnv

TASKS = load_suite("install")
WAIT = Action(kind=ActionKind.WAIT)


def expert_steps(env: PhoneEnv, task: Task) -> int:
    """Steps of the expert from the present state, with the last, which says COMPLETE."""
    for step in range(1, task.max_steps + 1):
        action = env.expert_action()
        if action.kind is ActionKind.COMPLETE:
            return step
        env.step(action)
    raise AssertionError(f"{task.id} is not solved in {task.max_steps} steps")


@pytest.mark.parametrize("template", list(install.COUNTS))
def test_the_expert_solves_every_instance_with_steps_to_spare(template: str) -> None:
    env = PhoneEnv()
    for task in [task for task in TASKS if task.template == template]:
        env.reset(task)
        assert env.evaluate() == 0.0, f"{task.id} is solved at its start"
        assert expert_steps(env, task) < task.max_steps, task.id
        assert env.evaluate() == 1.0, task.id


def test_doing_nothing_solves_nothing() -> None:
    env = PhoneEnv()
    for task in TASKS:
        env.reset(task)
        for _ in range(task.max_steps):
            env.step(WAIT)
            assert env.evaluate() == 0.0, task.id


def test_acting_at_random_solves_nothing() -> None:
    env = PhoneEnv()
    keys = (ActionKind.BACK, ActionKind.ENTER, ActionKind.HOME)
    for task in TASKS:
        rng = random.Random(task.id)
        env.reset(task)
        for _ in range(task.max_steps):
            x, y = rng.random(), rng.random()
            swipe = Action.swipe((x, y), (rng.random(), rng.random()))
            env.step(rng.choice([*[Action.tap(x, y)] * 6, swipe, Action(kind=rng.choice(keys))]))
        assert env.evaluate() == 0.0, task.id


def test_the_suite_has_its_size_and_stable_ids() -> None:
    assert len(TASKS) == len({task.id for task in TASKS}) == 128
    assert Counter(task.template for task in TASKS) == install.COUNTS
    assert {task.split for task in TASKS} == {"test"}
    assert install.tasks() == install.tasks()


def test_instances_differ_and_vary() -> None:
    assert len({(task.goal, str(task.params)) for task in TASKS}) == len(TASKS)
    assert {task.params["layout"] for task in TASKS} == set(install.LAYOUTS)
    kinds = {kind for task in TASKS for kind in task.params.get("interruptions", ())}
    assert kinds == set(interruptions.KINDS)
    interrupted = sum("interruptions" in task.params for task in TASKS)
    assert 50 <= interrupted <= 70
    for template, phrases in install.PHRASES.items():
        said = {task.goal for task in TASKS if task.template == template}
        assert len(said) >= len(phrases)


def test_the_wrong_one_of_two_alike_is_no_success() -> None:
    env = PhoneEnv()
    for task in [task for task in TASKS if task.template == "store_lookalike"]:
        wrong = {**task.params, "app": task.params["decoy"], "decoy": task.params["app"]}
        env.reset(task.model_copy(update={"params": wrong}))
        expert_steps(env, task)
        state = env._backend.device.phone.state  # type: ignore[attr-defined]
        assert task.params["decoy"] in state["installed"]
        env._task = task  # the same phone, asked for the other app
        assert env.evaluate() == 0.0
