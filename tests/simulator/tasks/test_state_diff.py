"""What a task may change on the phone, and that anything else is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distrl.core.actions import ActionKind
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.simulator.apps import APPS, clock_tasks, contacts, music, store_catalog
from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.phone import interruptions, notifications
from distrl.simulator.phone import state as st
from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import play as tasks
from distrl.simulator.tasks import state_diff
from distrl.simulator.tasks.play import TEMPLATES
from distrl.workers.envs.phone import PhoneEnv

TASKS = [task for suite in ("general", "install", "webshop") for task in load_suite(suite)]
Harm = Callable[[State, Task], object]


def first(template: str) -> Task:
    return next(task for task in TASKS if task.template == template)


def done(task: Task, *kinds: str, front: str = "") -> PhoneEnv:
    """A phone on which the expert has done the task, with these interruptions."""
    env = PhoneEnv()
    env.reset(
        task.model_copy(update={"params": task.params | {"interruptions": list(kinds)}}) if kinds else task
    )
    if front:
        state_of(env)["front"] = front
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    return env


def state_of(env: PhoneEnv) -> State:
    state: State = env._backend.device.phone.state  # type: ignore[attr-defined]
    return state


def entries(state: State, part: str) -> list[State]:
    """A list in an app's data, by its name as in what may change."""
    app, name = part.split(".")
    found: list[State] = state["apps"][app][name]
    return found


def other(state: State, part: str, key: str, value: object) -> State:
    """The first entry whose `key` is not `value`: one that the task is not about."""
    return next(entry for entry in entries(state, part) if entry.get(key) != value)


def meant(state: State, part: str, key: str, task: Task) -> State:
    """The entry that the task names."""
    return next(entry for entry in entries(state, part) if entry[key] == task.params[key])


def tick_all(state: State, task: Task) -> None:
    note = meant(state, "notes.notes", "title", task)
    note["items"] = [[what, True] for what, _ in note["items"]]


def stranger(state: State, task: Task) -> str:
    """An app of the store that is not on the phone, and that the task does not name."""
    taken = {*state["installed"], task.params.get("decoy")}
    return next(name for name in store_catalog.ENTRIES if name not in taken)


def other_update(state: State, task: Task) -> str:
    return next(name for name in state["apps"]["store"]["updates"] if name != task.params["app"])


def queue_another(state: State, task: Task) -> None:
    song = next(title for title in music.songs(state) if title != task.params["song"])
    APPS["music"].act(state, "enqueue", (song,))


def ask_permission(state: State, app: str, answer: str) -> None:
    """The app's prompt, and an answer to it."""
    state["overlay"] = {"kind": "permission", "due_s": 0, "look": 0, "which": 0, "since_s": 0, "app": app}
    interruptions.act(state, answer, ())


def other_person(state: State, task: Task) -> State:
    return other(state, "contacts.people", "name", task.params["name"])


def message(state: State, task: Task, text: str = "oops") -> None:
    meant(state, "messages.threads", "name", task)["lines"].append(["me", text])


def wifi(state: State, task: Task) -> None:
    state["apps"]["settings"]["wifi"] ^= True


def twice(state: State, task: Task, part: str, key: str) -> None:
    """What the task made, made once more."""
    entries(state, part).append(dict(meant(state, part, key, task)))


def another_list(state: State, task: Task) -> None:
    """A note of the same title, which is not a list."""
    entries(state, "notes.notes").append({"title": task.params["title"], "body": ""})


def ticked_copy(state: State, task: Task) -> None:
    """The item is open again; another of the same name is ticked."""
    items = meant(state, "notes.notes", "title", task)["items"]
    items[[what for what, _ in items].index(task.params["item"])][1] = False
    items.append([task.params["item"], True])


def order(state: State, task: Task) -> None:
    shop_state.data(state, task.params["shop"]).update(orders=1)


HARMS: tuple[tuple[str, str, Harm], ...] = (
    ("alarm_off", "clock.alarms", lambda s, t: other(s, "clock.alarms", "mark", True).update(days=[1])),
    (
        "contact_delete",
        "contacts.people",
        lambda s, t: entries(s, "contacts.people").remove(other_person(s, t)),
    ),
    ("contact_show", "contacts.people", lambda s, t: other_person(s, t).update(starred=True)),
    ("event_move", "calendar.events", lambda s, t: meant(s, "calendar.events", "title", t).update(minutes=5)),
    ("event_add", "calendar.events", lambda s, t: twice(s, t, "calendar.events", "title")),
    ("contact_add", "contacts.people", lambda s, t: twice(s, t, "contacts.people", "name")),
    ("contact_call", "contacts.calls", lambda s, t: APPS["contacts"].act(s, "call", (t.params["name"],))),
    ("mail_send", "mail.mails", lambda s, t: entries(s, "mail.mails").append(s["apps"]["mail"]["mails"][-1])),
    ("music_queue", "music.queue", lambda s, t: APPS["music"].act(s, "enqueue", (t.params["song"],))),
    ("message_send", "messages.threads", message),
    ("message_send", "messages.threads", lambda s, t: message(s, t, t.params["text"])),
    ("message_new", "messages.threads", lambda s, t: message(s, t, t.params["text"])),
    ("list_add", "notes.notes", another_list),
    ("list_tick", "notes.notes", ticked_copy),
    ("list_tick", "notes.notes", tick_all),
    ("setting_page", "settings.wifi", wifi),
    ("store_install", "installed", lambda s, t: store_catalog.uninstall(s, t.params["others"][0])),
    ("store_install", "installed", lambda s, t: store_catalog.install(s, stranger(s, t))),
    ("store_lookalike", "store.downloads", lambda s, t: store_catalog.begin(s, stranger(s, t))),
    ("webshop1_search", "browser.web.shops.{shop}.orders", order),
    ("store_update", "store.updates", lambda s, t: s["apps"]["store"]["updates"].remove(other_update(s, t))),
    ("store_update", "store.downloads", lambda s, t: store_catalog.begin(s, other_update(s, t))),
    ("alarm_off", "clock.timer.started", lambda s, t: APPS["clock"].act(s, "timer_run", ())),
    ("timer", "clock.watch.started", lambda s, t: APPS["clock"].act(s, "watch_run", ())),
    ("music_like", "music.queue", queue_another),
    ("music_queue", "music.queue", queue_another),
    ("chat_open", "notifications", lambda s, t: notifications.act(s, "clear", ())),
    ("webshop1_search", "notifications", lambda s, t: notifications.act(s, "drop", (1,))),
    (
        "playlist_new",
        "music.playlists",
        lambda s, t: s["apps"]["music"]["playlists"][t.params["name"]].append("x"),
    ),
    ("contact_show", "permissions", lambda s, t: ask_permission(s, "calculator", "accept")),
)


@pytest.mark.parametrize(("template", "part", "harm"), HARMS)
def test_what_the_task_did_not_ask_for_is_a_failure_with_its_reason(
    template: str, part: str, harm: Harm
) -> None:
    env = done(task := first(template))
    assert (env.evaluate(), env.shortfall(), env.distance()) == (1.0, "", 0)
    harm(state_of(env), task)
    assert env.evaluate() == 0.0
    assert env.shortfall() == (
        f"The task is fulfilled, but what it did not ask for was changed too: {part.format_map(task.params)}."
    )
    assert env.distance() is None
    assert env.expert_action().kind is ActionKind.COMPLETE


@pytest.mark.parametrize(
    ("template", "spoil"),
    [
        ("alarm_at", lambda s, t: clock_tasks._alarm(s, clock_tasks.minutes_of(t.params)).update(days=[1])),
        ("alarm_at", lambda s, t: clock_tasks._alarm(s, clock_tasks.minutes_of(t.params)).update(label="x")),
        ("contact_add", lambda s, t: meant(s, "contacts.people", "name", t).update(starred=True)),
        ("note_add", lambda s, t: meant(s, "notes.notes", "title", t).update(pinned=True)),
        ("list_add", lambda s, t: meant(s, "notes.notes", "title", t)["items"][-1].__setitem__(1, True)),
    ],
)
def test_what_was_not_asked_of_a_new_entry_is_undone(template: str, spoil: Harm) -> None:
    env = done(task := first(template))
    spoil(state_of(env), task)
    assert env.shortfall() == "The final state does not fulfil the task."
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    assert env.evaluate() == 1.0


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


@pytest.mark.parametrize("kinds", [(), ("low_battery",)])
def test_the_answer_to_the_phones_own_question_is_free(kinds: tuple[str, ...]) -> None:
    task = first("contact_show")
    start = tasks.start_state(task.template, task.params, task.seed)
    env = done(task, *kinds)
    state_of(env)["apps"]["settings"]["saver"] = not start["apps"]["settings"]["saver"]
    assert env.evaluate() == float(bool(kinds))


def test_what_the_phone_asks_on_the_way_and_notices_that_come_by_are_free() -> None:
    env = done(first("message_send"), "permission", "message")
    state = state_of(env)
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
    assert unwatched == {"open_app", "toggle", "alarm", "contact", "star", "shop_search", "tap"}
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
    task = first("calculate")
    task = task.model_copy(update={"params": {"layout": 0, "expression": "36 + 48"}})
    assert calculator(task, "84=") == 0.0
    assert calculator(task, "42+42=") == 0.0
    assert calculator(task, "36+48") == 0.0
    assert calculator(task, "36+48=") == 1.0
    assert calculator(task, "48+36=") == 1.0
    assert calculator(task, "36+48==") == 1.0
    assert calculator(task, "36+48=C84") == 0.0


def test_a_reply_goes_to_who_wrote_the_mail() -> None:
    env = PhoneEnv()
    env.reset(task := first("mail_reply"))
    phone = env._backend.device.phone  # type: ignore[attr-defined]
    phone.open("mail")
    mails = APPS["mail"]
    place = next(
        at
        for at, mail in enumerate(entries(phone.state, "mail.mails"))
        if mail["subject"] == task.params["subject"]
    )
    mails.act(phone.state, "reply", (place,))
    phone.state["fields"] |= {"mail.to": "Somebody Else", "mail.body": task.params["text"]}
    phone.state["focus"] = ""
    written = phone.dump()
    mails.act(phone.state, "send", ())
    assert env.evaluate() == 0.0
    phone.load(written)
    while not (action := env.expert_action()).is_terminal:
        env.step(action)
    assert env.evaluate() == 1.0
