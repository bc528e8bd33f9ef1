"""What a task may change on the phone, and that anything else is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distrl.core.actions import ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.apps import APPS, contacts, music, store_catalog
from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.phone import interruptions, notifications
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import play as tasks
from distrl.simulator.tasks import state_diff
from distrl.simulator.tasks.play import TEMPLATES
from distrl.workers.envs.phone import PhoneEnv

TASKS = [task for suite in ("general", "apps", "install", "webshop") for task in load_suite(suite)]
Harm = Callable[[State, Task], None]


def first(template: str) -> Task:
    return next(task for task in TASKS if task.template == template)


def other(entries: list[State], key: str, value: object) -> State:
    """An entry that the task is not about."""
    return next(entry for entry in entries if entry[key] != value)


def switch_other_alarm(state: State, task: Task) -> None:
    alarm = next(alarm for alarm in state["apps"]["clock"]["alarms"] if not alarm.get("mark"))
    alarm["on"] = not alarm["on"]


def forget_person(state: State, task: Task) -> None:
    people = state["apps"]["contacts"]["people"]
    people.remove(other(people, "name", task.params["name"]))


def star_person(state: State, task: Task) -> None:
    people = state["apps"]["contacts"]["people"]
    other(people, "name", task.params["name"])["starred"] = True


def shift_hour(state: State, task: Task) -> None:
    events = state["apps"]["calendar"]["events"]
    next(event for event in events if event["title"] == task.params["title"])["minutes"] += 60


def say_more(state: State, task: Task) -> None:
    threads = state["apps"]["messages"]["threads"]
    next(chat for chat in threads if chat["name"] == task.params["name"])["lines"].append(["me", "oops"])


def tick_all(state: State, task: Task) -> None:
    note = next(note for note in state["apps"]["notes"]["notes"] if note["title"] == task.params["title"])
    note["items"] = [[what, True] for what, _ in note["items"]]


def flip_wifi(state: State, task: Task) -> None:
    state["apps"]["settings"]["wifi"] = not state["apps"]["settings"]["wifi"]


def remove_app(state: State, task: Task) -> None:
    assert store_catalog.uninstall(state, task.params["others"][0])


def stranger(state: State, task: Task) -> str:
    """An app of the store that is not on the phone, and that the task does not name."""
    taken = {*state["installed"], task.params.get("decoy")}
    return next(name for name in store_catalog.ENTRIES if name not in taken)


def install_another(state: State, task: Task) -> None:
    store_catalog.install(state, stranger(state, task))


def begin_download(state: State, task: Task) -> None:
    store_catalog.begin(state, stranger(state, task))


def order(state: State, task: Task) -> None:
    shop_state.data(state, task.params["shop"])["orders"] += 1


def update_another(state: State, task: Task) -> None:
    updates = state["apps"]["store"]["updates"]
    updates.remove(next(name for name in updates if name != task.params["app"]))


def download_another(state: State, task: Task) -> None:
    updates = state["apps"]["store"]["updates"]
    store_catalog.begin(state, next(name for name in updates if name != task.params["app"]))


def start_timer(state: State, task: Task) -> None:
    APPS["clock"].act(state, "timer_run", ())


def start_stopwatch(state: State, task: Task) -> None:
    APPS["clock"].act(state, "watch_run", ())


def queue_another(state: State, task: Task) -> None:
    song = (music.number(task.params["song"]) + 1) % len(music.SONGS)
    APPS["music"].act(state, "enqueue", (song,))


def clear_shade(state: State, task: Task) -> None:
    notifications.act(state, "clear", ())


def throw_notice_away(state: State, task: Task) -> None:
    notifications.act(state, "drop", (1,))


def ask_permission(state: State, app: str, answer: str) -> None:
    """The app's prompt, and an answer to it."""
    state["overlay"] = {"kind": "permission", "due_s": 0, "look": 0, "which": 0, "since_s": 0, "app": app}
    interruptions.act(state, answer, ())


def allow_calculator(state: State, task: Task) -> None:
    ask_permission(state, "calculator", "accept")


@pytest.mark.parametrize(
    ("template", "harm", "part"),
    [
        ("alarm_off", switch_other_alarm, "clock.alarms"),
        ("contact_delete", forget_person, "contacts.people"),
        ("contact_show", star_person, "contacts.people"),
        ("event_move", shift_hour, "calendar.events"),
        ("message_send", say_more, "messages.threads"),
        ("list_tick", tick_all, "notes.notes"),
        ("setting_page", flip_wifi, "settings.wifi"),
        ("store_install", remove_app, "installed"),
        ("store_install", install_another, "installed"),
        ("store_lookalike", install_another, "installed"),
        ("store_lookalike", begin_download, "store.downloads"),
        ("webshop1_search", order, "browser.web.shops.{shop}.orders"),
        ("store_update", update_another, "store.updates"),
        ("store_update", download_another, "store.downloads"),
        ("alarm_off", start_timer, "clock.timer.started"),
        ("timer", start_stopwatch, "clock.watch.started"),
        ("laps", start_timer, "clock.timer.started"),
        ("music_like", queue_another, "music.queue"),
        ("music_queue", queue_another, "music.queue"),
        ("chat_open", clear_shade, "notifications"),
        ("webshop1_search", throw_notice_away, "notifications"),
        ("contact_show", allow_calculator, "permissions"),
        ("store_install", allow_calculator, "permissions"),
    ],
)
def test_what_the_task_did_not_ask_for_is_a_failure_with_its_reason(
    template: str, harm: Harm, part: str
) -> None:
    task, env = first(template), PhoneEnv()
    env.reset(task)
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    assert (env.evaluate(), env.shortfall(), env.distance()) == (1.0, "", 0)
    harm(env._backend.device.phone.state, task)  # type: ignore[attr-defined]
    assert env.evaluate() == 0.0
    assert env.shortfall() == (
        f"The task is fulfilled, but what it did not ask for was changed too: {part.format_map(task.params)}."
    )
    assert env.distance() is None
    assert env.expert_action().kind is ActionKind.COMPLETE


def test_an_unfinished_task_says_so() -> None:
    env = PhoneEnv()
    env.reset(first("alarm_off"))
    assert env.shortfall() == "The final state does not fulfil the task."


def test_order_reading_and_what_is_undone_are_no_changes() -> None:
    state = new_state(installed=("settings", "clock", "contacts", "messages", "mail"))
    state["apps"]["contacts"]["people"].append(contacts.person("Zoe"))
    state_diff.keep(state)
    state["apps"]["contacts"]["people"].reverse()
    state["apps"]["mail"]["mails"][0]["read"] = True
    state["apps"]["clock"]["alarms"] += [{"minutes": 5, "on": True}]
    assert state_diff.changed(state, {}, ()) == ["clock.alarms"]
    state["apps"]["clock"]["alarms"].clear()
    assert state_diff.changed(state, {}, ()) == []


def test_airplane_mode_may_turn_wireless_off_and_no_other_switch_may() -> None:
    may = TEMPLATES["setting_switch"].may
    state = new_state()
    state_diff.keep(state)
    state["apps"]["settings"] |= {"airplane": True, "wifi": False, "bluetooth": False}
    assert state_diff.changed(state, {"setting": "airplane"}, may) == []
    assert "settings.wifi" in state_diff.changed(state, {"setting": "nfc"}, may)


def test_the_answer_to_the_phones_own_question_is_free() -> None:
    task = first("contact_show")
    env = PhoneEnv()
    params = {**task.params, "interruptions": ["low_battery"]}
    for asked in (task, task.model_copy(update={"params": params})):
        state = tasks.start_state(asked.template, asked.params, asked.seed)
        env.reset(asked)
        while not (action := env.expert_action()).is_terminal:
            env.step(action)
        saver = env._backend.device.phone.state["apps"]["settings"]  # type: ignore[attr-defined]
        saver["saver"] = not state["apps"]["settings"]["saver"]
        assert env.evaluate() == float("interruptions" in asked.params)


def interrupted(template: str, *kinds: str) -> PhoneEnv:
    """A phone on which the expert has done a task with these interruptions."""
    task, env = first(template), PhoneEnv()
    env.reset(task.model_copy(update={"params": {**task.params, "interruptions": list(kinds)}}))
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    return env


def test_what_the_phone_asks_on_the_way_and_notices_that_come_by_are_free() -> None:
    env = interrupted("message_send", "permission", "message")
    state = env._backend.device.phone.state  # type: ignore[attr-defined]
    assert state["permissions"] == {"messages": True}
    ask_permission(state, "contacts", "accept")  # which leads to the chats too
    ask_permission(state, "calculator", "dismiss")
    for place, notice in reversed(list(enumerate(state["notifications"]))):
        is_new = notice not in state["kept"]["notifications"]
        notifications.act(state, "drop" if is_new else "open", (place,))
    st.show(state, "messages")
    assert (state["notifications"], env.evaluate()) == ([], 1.0)


def test_the_expert_gives_permission_to_no_app_that_the_task_does_not_need() -> None:
    env, task = PhoneEnv(), first("alarm_off")
    env.reset(task.model_copy(update={"params": {**task.params, "interruptions": ["permission"]}}))
    phone = env._backend.device.phone  # type: ignore[attr-defined]
    phone.open("calculator")
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    assert phone.state["permissions"] == {"calculator": False, "clock": True}
    assert env.evaluate() == 1.0


def test_only_the_quickstart_does_not_look() -> None:
    unwatched = {name for name, template in TEMPLATES.items() if template.phone == "quickstart"}
    assert unwatched == {"open_app", "toggle", "alarm", "contact", "star", "shop_search"}
    for task in load_suite("quickstart")[::50]:
        assert tasks.start_state(task.template, task.params, task.seed)["kept"] == {}


def test_every_part_that_a_task_may_change_is_there() -> None:
    for task in {task.template: task for task in TASKS}.values():
        state = tasks.start_state(task.template, task.params, task.seed)
        for one in TEMPLATES[task.template].may or ():
            app = one.part.format_map(task.params).split(".")[0]
            known = one.part.format_map(task.params) in state["kept"]
            assert known or (app not in state["installed"] and app == task.params.get("app")), task.id


def calculator(task: Task, keys: str) -> float:
    """The score once `keys` have been tapped."""
    env = PhoneEnv()
    env.reset(task)
    phone = env._backend.device.phone  # type: ignore[attr-defined]
    phone.open("calculator")
    for key in keys:
        APPS["calculator"].act(phone.state, "key", (key,))
    return env.evaluate()


def test_an_answer_that_is_typed_is_not_calculated() -> None:
    task = next(task for task in TASKS if task.params.get("expression") == "36 + 48")
    assert calculator(task, "84=") == 0.0
    assert calculator(task, "42+42=") == 0.0
    assert calculator(task, "36+48") == 0.0
    assert calculator(task, "36+48=") == 1.0
    assert calculator(task, "48+36=") == 1.0
    assert calculator(task, "36+48==") == 1.0
    assert calculator(task, "36+48=C84") == 0.0
