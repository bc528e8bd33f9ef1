"""All suites of the simulated phone: instances solvable, unsolved at their start, stable, honestly split."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

from distrl.configs.schema import TasksConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import SUITES, is_trained_on, leakage, load_suite, promises, vocabulary
from distrl.simulator.apps import APPS, store_catalog
from distrl.simulator.apps.store_apps import password_field, user_field
from distrl.simulator.phone import interruptions
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import Phone
from distrl.simulator.tasks import play, state_diff
from distrl.workers.envs.phone import PhoneEnv

NAMES = [name for name, path in SUITES.items() if path.startswith("distrl.simulator.")]
TASKS = {name: load_suite(name) for name in NAMES}
FAMILIES = list(dict.fromkeys((name, task.id.split("/")[1]) for name in NAMES for task in TASKS[name]))
WAIT = Action(kind=ActionKind.WAIT)


def of(name: str, family: str, most: int = 12) -> list[Task]:
    """Some instances of a family: the same number of each split."""
    found: dict[str, list[Task]] = {}
    for task in TASKS[name]:
        if task.id.split("/")[1] == family:
            found.setdefault(task.split, []).append(task)
    return [task for tasks in found.values() for task in tasks[: max(2, most // len(found))]]


def phone_of(env: PhoneEnv) -> Phone:
    return env._backend.device.phone  # type: ignore[attr-defined, no-any-return]


def snapped(action: Action) -> Action:
    """The action with its points at the centres of a grid of 12 columns and 24 rows, as policies say them."""

    def cell(point: tuple[float, float] | None) -> tuple[float, float] | None:
        return point and ((int(point[0] * 12) + 0.5) / 12, (min(23, int(point[1] * 24)) + 0.5) / 24)

    return action.model_copy(update={"point": cell(action.point), "to": cell(action.to)})


def played(env: PhoneEnv, limit: int) -> tuple[Action, int]:
    """Lets the expert play on. Returns its last action and the number of its steps."""
    params = env._task.params  # type: ignore[union-attr]
    for step in range(1, limit + 1):
        action = env.expert_action()
        if action.is_terminal:
            return action, step
        # The steps of a slider are finer than the grid.
        env.step(action if "setting" in params and "percent" in params else snapped(action))
    return action, limit


@pytest.mark.parametrize(("name", "family"), FAMILIES)
def test_the_expert_solves_what_idling_does_not(name: str, family: str) -> None:
    env = PhoneEnv(width=72, height=160)
    for number, task in enumerate(of(name, family)):
        env.reset(task)
        assert env.evaluate() == 0.0, f"{task.id} is solved at its start"
        if number % 5 == 0:
            for _ in range(task.max_steps):
                env.step(WAIT)
            assert env.evaluate() == 0.0, f"{task.id} is solved by doing nothing"
            env.reset(task)
        action, _ = played(env, task.max_steps)
        assert (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0), task.id


def wander(rng: random.Random) -> Action:
    roll = rng.random()
    if roll < 0.75:
        return Action.tap(rng.random(), rng.random())
    if roll < 0.85:
        return Action.swipe((rng.random(), rng.random()), (rng.random(), rng.random()))
    if roll < 0.9:
        return Action.type_text(rng.choice(["x", "See", "Maria ", "lamp"]))
    return Action(kind=rng.choice([ActionKind.BACK, ActionKind.ENTER, ActionKind.HOME]))


def is_spoilt(phone: Phone, task: Task) -> bool:
    """Whether wandering changed what no task may change back, or what this one is about is gone."""
    state = phone.state
    if not state["kept"]:
        return task.template in ("contact", "star")  # a deleted contact is out of reach
    may = play.TEMPLATES[task.template].may
    if state_diff.changed(state, task.params, may):
        return True
    now = state_diff.lasting(state)
    for one in may:
        part = one.part.format_map(task.params)
        listed = [held for held in (state["kept"].get(part), now.get(part)) if isinstance(held, list)]
        meant = [sum(one.rest(entry, task.params) is not entry for entry in held) for held in listed]
        if len(meant) == 2 and meant[1] < meant[0]:
            return True
    return False


def test_acting_at_random_installs_nothing() -> None:
    env = PhoneEnv(width=72, height=160)
    for task in TASKS["install"][::20]:
        rng = random.Random(task.id)
        env.reset(task)
        for _ in range(task.max_steps):
            env.step(wander(rng))
        assert env.evaluate() == 0.0, task.id


@pytest.mark.parametrize(("name", "family"), [each for each in FAMILIES if each[1] != "tap"])
def test_the_expert_recovers_from_random_wandering(name: str, family: str) -> None:
    """It may fail, or give up, only where the wandering spoilt something for good."""
    env, num_solved = PhoneEnv(width=72, height=160), 0
    for task in of(name, family)[::2]:
        rng = random.Random(task.id)
        env.reset(task)
        for count in range(rng.randrange(2, 25)):
            # Half of the steps go towards the goal, so that wandering starts inside the apps.
            towards = env.expert_action()
            env.step(towards if count % 2 and not towards.is_terminal else wander(rng))
        spoilt = is_spoilt(phone_of(env), task)
        action, _ = played(env, 120)
        is_solved = (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0)
        assert is_solved or (action.is_terminal and spoilt), (task.id, action.kind, env.shortfall())
        num_solved += is_solved
    assert num_solved > 0


@pytest.mark.parametrize(("name", "family"), FAMILIES[::2])
def test_the_expert_dismisses_every_interruption(name: str, family: str) -> None:
    env, task = PhoneEnv(width=72, height=160), of(name, family)[-1]
    params = task.params | {"interruptions": list(interruptions.KINDS)}
    env.reset(task.model_copy(update={"params": params}))
    action, _ = played(env, 45)
    assert (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0), task.id


@pytest.mark.parametrize("height", [144, 180])
def test_the_expert_copes_with_shorter_and_longer_screens(height: int) -> None:
    env = PhoneEnv(width=72, height=height)
    for name, family in FAMILIES[::5]:
        env.reset(task := of(name, family)[0])
        action, _ = played(env, 30)
        assert (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0), task.id


def test_the_wrong_one_of_two_apps_alike_is_no_success() -> None:
    env = PhoneEnv(width=72, height=160)
    for task in of("install", "store_lookalike"):
        wrong = {**task.params, "app": task.params["decoy"], "decoy": task.params["app"]}
        env.reset(task.model_copy(update={"params": wrong}))
        played(env, task.max_steps)
        assert task.params["decoy"] in phone_of(env).state["installed"]
        env._task = task  # the same phone, asked for the other app
        assert env.evaluate() == 0.0


def test_a_user_name_and_a_password_must_be_sent() -> None:
    task = of("install", "store_sign_in")[-1]
    app, params = task.params["app"], task.params
    state = play.start_state(task.template, params, task.seed)
    store_catalog.install(state, app)
    fields = {user_field(app): params["user"], password_field(app): params["password"]}
    st.open_form(state, app, ["sign_in"], fields)
    assert play.shortfall(task.template, params, state)
    APPS[app].act(state, "sign_in", ())
    assert not play.shortfall(task.template, params, state)


def test_an_app_that_is_downloaded_again_is_not_gone() -> None:
    env = PhoneEnv(width=72, height=160)
    for task in of("install", "store_uninstall") + of("install", "store_replace"):
        env.reset(task)
        played(env, task.max_steps)
        store_catalog.begin(phone_of(env).state, task.params["app"])
        assert env.evaluate() == 0.0
        action, _ = played(env, task.max_steps)
        assert (action.kind, env.evaluate()) == (ActionKind.COMPLETE, 1.0), task.id


DIGESTS = {
    "quickstart": (14892, "a5838606c429fe0b"),
    "general": (9800, "10f6a6d031539705"),
    "install": (3248, "d955795ac9fa5166"),
    "webshop": (4660, "93301dac4bde559d"),
}
"""The number of tasks of each suite, and their digest: a changed task changes the benchmark."""


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_the_same_every_time_and_its_instances_differ(name: str) -> None:
    tasks = TASKS[name]
    told = json.dumps([task.model_dump() for task in tasks], sort_keys=True).encode()
    assert (len(tasks), hashlib.sha256(told).hexdigest()[:16]) == DIGESTS[name]
    assert len({task.id for task in tasks}) == len(tasks)
    assert len({(task.split, task.template, str(task.params), task.seed) for task in tasks}) == len(tasks)
    for task in tasks[:: len(tasks) // 20]:
        state = play.start_state(task.template, task.params, task.seed)
        assert state == play.start_state(task.template, task.params, task.seed)
        assert name in ("quickstart", "install") or state != play.start_state(
            task.template, task.params, task.seed + 1
        )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_measured_is_not_trained_on(name: str) -> None:
    promised = promises(name)
    trained = [task for task in TASKS[name] if is_trained_on(task.split)]
    measured = [task for task in TASKS[name] if not is_trained_on(task.split)]
    found = leakage.find(trained, measured, promised.phrasing, promised.names)
    assert [rule for rule in promised.rules if found[rule]] == []


def test_opening_the_shop_solves_no_task_but_a_visit() -> None:
    for task in TASKS["webshop"][::10]:
        state = play.start_state(task.template, task.params, task.seed)
        state["front"] = "browser"
        state["stacks"]["browser"].append(["site", task.params["shop"], "home"])
        is_solved = not play.shortfall(task.template, task.params, state)
        assert is_solved == (task.template == "webshop1_visit"), task.id


def test_every_word_to_be_typed_is_in_the_vocabulary() -> None:
    known = set(vocabulary(TasksConfig(suite="webshop")))
    for task in TASKS["webshop"]:
        params = task.params
        for title in (*(entry["product"] for entry in params.get("cart", ())), params.get("product", "")):
            assert set(title.replace("-", " - ").split()) <= known
    words = vocabulary(TasksConfig(suite="quickstart"))
    assert words == sorted(set(words))
    assert {"Turn", "Wi", "-", "Fi", "7", ":", "Adam", "bench", "purple", "favourites"} <= set(words)
    trained = set(vocabulary(TasksConfig(suite="quickstart"), "reader"))
    assert {"Turn", "Wi", "-", "Fi", "7", ":", "favourites"} <= trained
    assert not {"Adam", "bench", "purple"} & trained, "names"
    assert "switching" in words
    assert "switching" not in trained, "only a wording that is held out has it"


@pytest.mark.parametrize(
    ("template", "app", "entries", "key", "value"),
    [
        ("alarm_delete", "clock", "alarms", "minutes", 1),
        ("alarm_delete", "clock", "alarms", "mark", False),  # set again
        ("event_delete", "calendar", "events", "title", "Other"),
        ("contact_delete", "contacts", "people", "name", "Other"),
        ("note_delete", "notes", "notes", "title", "Other"),
        ("file_delete", "files", "files", "name", "other.pdf"),
    ],
)
def test_what_is_only_renamed_is_not_deleted(
    template: str, app: str, entries: str, key: str, value: object
) -> None:
    task = next(task for task in TASKS["general"] if task.template == template)
    state = play.start_state(task.template, task.params, task.seed)
    check = play.template(task.template, task.params).check
    listed = state["apps"][app][entries]
    meant = next(entry for entry in listed if entry.get("mark"))
    meant[key] = value
    assert not check(state, task.params)
    listed.remove(meant)
    assert check(state, task.params)


def test_what_has_become_impossible_has_no_distance() -> None:
    listed = (task for task in TASKS["general"] if task.template == "list_tick")
    task = next(task for task in listed if "interruptions" not in task.params)
    env = PhoneEnv()
    env.reset(task)
    assert env.distance() == 3
    state = phone_of(env).state
    note = next(note for note in state["apps"]["notes"]["notes"] if note["title"] == task.params["title"])
    note["items"] = []
    assert env.distance() is None
