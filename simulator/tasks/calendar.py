"""Tasks of the calendar: events to add, find, move, lengthen and delete; days to show."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.simulator.apps.calendar import LENGTHS, SLOTS, event, find
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, IMPOSSIBLE, Hand
from distrl.simulator.phone.keeping import May, only
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template, fresh
from distrl.simulator.tasks.moves import everyday, is_marked, mark, page, search, write

YEAR = 2025


def _data(state: State) -> State:
    data: State = state["apps"]["calendar"]
    return data


def _iso(day: int, month: int = 6) -> str:
    return f"{YEAR}-{month:02d}-{day:02d}"


def _without(state: State, params: Params, rng: random.Random) -> None:
    calendar = _data(state)
    calendar["events"] = [entry for entry in calendar["events"] if entry["title"] != params["title"]]


def _with(state: State, params: Params, rng: random.Random) -> None:
    """The event, on a day and at a time that the seed chooses."""
    _without(state, params, rng)
    day = params["day"] - params["shift"] if "shift" in params else rng.randrange(1, 31)
    meant = event(params["title"], _iso(day), rng.choice(SLOTS))
    mark(meant)
    _data(state)["events"].append(meant)


def _entry(state: State, params: Params) -> State:
    place = find(state, params["title"])
    entries: list[State] = _data(state)["events"]
    return entries[place] if place >= 0 else {}


def _add_check(state: State, params: Params) -> bool:
    entry = _entry(state, params)
    right_time = "minutes" not in params or entry.get("minutes") == params["minutes"]
    return bool(entry.get("day") == _iso(params["day"]) and right_time)


def _add_way(hand: Hand, params: Params) -> Action:
    state, calendar = hand.phone.state, _data(hand.phone.state)
    at = page(hand, "calendar")
    if _entry(state, params):  # saved, but wrongly
        return _delete_way(hand, params)
    if at == ["time"]:
        return hand.tap(f"at_{params.get('minutes', 540)}")
    if at == ["form"]:
        if (
            typed := write(hand, "calendar_title", "calendar.title", params["title"], "clear_title")
        ) is not None:
            return typed
        if calendar["draft"]["minutes"] != params.get("minutes", calendar["draft"]["minutes"]):
            return hand.tap("form_time")
        return _shift(hand, _iso(params["day"])) or hand.tap("save")
    if at[0] != "root":
        return BACK
    return _turn(hand, 6) or (
        hand.tap("add_event") if calendar["day"] == _iso(params["day"]) else hand.tap(f"day_{params['day']}")
    )


def _shift(hand: Hand, day: str) -> Action | None:
    """Moves the form's day by its arrows; None when it is right."""
    draft = _data(hand.phone.state)["draft"]["day"]
    if draft == day:
        return None
    return hand.tap("form_day_more" if draft < day else "form_day_less")


def _turn(hand: Hand, month: int) -> Action | None:
    """Turns to a month of the year; None when it is shown."""
    shown = _data(hand.phone.state)["month"]
    wanted = f"{YEAR}-{month:02d}"
    return None if shown == wanted else hand.tap("next" if shown < wanted else "previous")


def _opened(hand: Hand, params: Params) -> Action | None:
    """What finds and opens the event; None when it is open."""
    place = find(hand.phone.state, params["title"])
    if place < 0:
        return IMPOSSIBLE
    if page(hand, "calendar") == ["event", place]:
        return None
    return search(hand, "calendar", params["title"], f"event_{place}")


def _show_check(state: State, params: Params) -> bool:
    at = st.page(state, "calendar")
    shown = at[0] == "event" and _data(state)["events"][int(at[1])]["title"] == params["title"]
    return bool(shown and state["front"] == "calendar")


def _show_way(hand: Hand, params: Params) -> Action:
    return _opened(hand, params) or BACK


def _delete_check(state: State, params: Params) -> bool:
    return not is_marked(_data(state)["events"])


def _delete_way(hand: Hand, params: Params) -> Action:
    if page(hand, "calendar") == ["delete", find(hand.phone.state, params["title"])]:
        return hand.tap("confirm")
    return _opened(hand, params) or hand.tap("delete")


def _change_way(hand: Hand, params: Params) -> Action:
    """Moves or lengthens the event in its form."""
    place = find(hand.phone.state, params["title"])
    if place >= 0 and page(hand, "calendar") == ["form", place]:
        draft = _data(hand.phone.state)["draft"]
        if st.text(hand.phone.state, "calendar.title") != params["title"]:
            return BACK
        if "day" in params:
            return _shift(hand, _iso(params["day"])) or hand.tap("save")
        right = draft["length"] == params["length"]
        return hand.tap("save" if right else f"length_{params['length']}")
    return _opened(hand, params) or hand.tap("edit")


def _length_start(state: State, params: Params, rng: random.Random) -> None:
    _with(state, params, rng)
    others = [length for length in LENGTHS if length != params["length"]]
    _entry(state, params)["length"] = rng.choice(others)


def _length_check(state: State, params: Params) -> bool:
    return bool(_entry(state, params).get("length") == params["length"])


def _day_check(state: State, params: Params) -> bool:
    shown = _data(state)["day"] == _iso(params["day"], params["month"])
    return bool(shown and st.page(state, "calendar")[0] == "root" and state["front"] == "calendar")


def _day_way(hand: Hand, params: Params) -> Action:
    if page(hand, "calendar")[0] != "root":
        return BACK
    return _turn(hand, params["month"]) or hand.tap(f"day_{params['day']}")


_DAYS = {"day": range(1, 31)}


def _event(*fields: str) -> tuple[May, ...]:
    """The task's event; of it only `fields`, if any are named."""
    return (May("calendar.events", only("title", "title", *fields)),)


TEMPLATES: dict[str, Template] = {
    "event_add": everyday(
        "calendar", {"title": str, "day": int}, _without, _add_check, _add_way, _DAYS, _event()
    ),
    "event_at": everyday(
        "calendar",
        {"title": str, "day": int, "minutes": int},
        _without,
        _add_check,
        _add_way,
        {**_DAYS, "minutes": SLOTS},
        _event(),
    ),
    "event_show": everyday("calendar", {"title": str}, _with, _show_check, _show_way),
    "event_delete": everyday("calendar", {"title": str}, _with, _delete_check, _delete_way, may=_event()),
    "event_move": everyday(
        "calendar",
        {"title": str, "day": int, "shift": int},
        _with,
        _add_check,
        _change_way,
        {"day": range(4, 31), "shift": (1, 2, 3)},
        _event("day"),
    ),
    "event_length": everyday(
        "calendar",
        {"title": str, "length": int},
        _length_start,
        _length_check,
        _change_way,
        {"length": LENGTHS},
        _event("length"),
    ),
    "day_show": everyday(
        "calendar",
        {"month": int, "day": int},
        fresh,
        _day_check,
        _day_way,
        {"month": range(1, 13), "day": range(1, 29)},
    ),
}
