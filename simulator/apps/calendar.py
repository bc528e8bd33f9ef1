"""The calendar: a month, the events of a day, one event, the form; tasks with events and days."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args, through
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, text_box
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Entries,
    Family,
    Params,
    Template,
    everyday,
    fresh,
    mark,
)
from distrl.simulator.tasks.expert import BACK, Expert

TODAY = datetime.date(2025, 6, 3)
SLOTS = tuple(range(8 * 60, 20 * 60, 30))
"""The times at which an event can start, in minutes after midnight."""
LENGTHS = (30, 60, 90, 120)
_COLORS = ("#1a73e8", "#188038", "#d93025", "#8430ce", "#f29900")
_CELL, _ROW = 46.0, 48.0


def data() -> State:
    """The month and day shown, three events, and the draft of the form."""
    return {
        "month": "2025-06",
        "day": TODAY.isoformat(),
        "events": [
            event("Team meeting", "2025-06-03", 600, 60),
            event("Dentist", "2025-06-05", 840, 30),
            event("Book club", "2025-06-12", 1110, 90),
        ],
        "draft": {"day": TODAY.isoformat(), "minutes": 540, "length": 60},
    }


def event(title: str, day: str, minutes: int, length: int = 60) -> State:
    """An event; `day` is an ISO date, times are in minutes."""
    return {"title": title, "day": day, "minutes": minutes, "length": length}


def day_text(day: str, with_year: bool = False) -> str:
    """An ISO date as "Thu, June 5"."""
    date = datetime.date.fromisoformat(day)
    year = f" {date.year}" if with_year else ""
    return f"{date:%a}, {date:%B} {date.day}{year}"


def view(ui: Ui) -> list[Node]:
    """The month, an event, a search, the form or its page of times."""
    top = st.page(ui.state, "calendar")
    if top[0] == "event":
        return _event(ui, int(top[1]))
    if top[0] == "delete":
        index = int(top[1])
        said = f"“{ui.state['apps']['calendar']['events'][index]['title']}” will be removed."
        tap = ("calendar", "really_delete", index)
        return widgets.confirm(ui, _event(ui, index), "Delete event?", said, "Delete", tap)
    if top[0] == "search":
        return _search(ui)
    if top[0] == "time":
        return _times(ui)
    return _form(ui, len(top) > 1) if top[0] == "form" else _month(ui)


def _month(ui: Ui) -> list[Node]:
    calendar, theme = ui.state["apps"]["calendar"], ui.theme
    year, month = (int(part) for part in calendar["month"].split("-"))
    first = datetime.date(year, month, 1)
    busy = {entry["day"] for entry in calendar["events"]}
    left = (WIDTH - 7 * _CELL) / 2
    nodes = []
    for place, letter in enumerate("MTWTFSS"):
        nodes.append(ui.text(left + _CELL * place, TOP, _CELL, 24, letter, 14, theme.muted, True, "c"))
    date = first
    while date.month == month:
        line, column = divmod(first.weekday() + date.day - 1, 7)
        box = (left + _CELL * column, TOP + 26 + _ROW * line)
        nodes.append(_day_cell(ui, *box, date, calendar["day"], date.isoformat() in busy))
        date += datetime.timedelta(days=1)
    actions = [
        ui.icon_button(WIDTH - 52, STATUS_H + 8, "search", "Search", ("find", "calendar"), "search"),
        ui.icon_button(
            WIDTH - 102, STATUS_H + 8, "chevron_right", "Next month", ("calendar", "turn", 1), "next"
        ),
        ui.icon_button(
            WIDTH - 152, STATUS_H + 8, "chevron_left", "Previous month", ("calendar", "turn", -1), "previous"
        ),
    ]
    listed = TOP + 26 + 6 * _ROW + 4
    return [
        *nodes,
        viewport(ui, "calendar.day", listed, ui.bottom, lambda y: _agenda(ui, y, calendar["day"])),
        widgets.app_bar(ui, f"{first:%B} {year}", actions, back=False),
        widgets.fab(ui, "add", "New event", ("calendar", "add"), "add_event"),
    ]


def _day_cell(ui: Ui, x: float, y: float, date: datetime.date, chosen: str, busy: bool) -> Node:
    theme, on = ui.theme, date.isoformat() == chosen
    is_today = date == TODAY
    color = theme.on_primary if on else theme.primary if is_today else theme.text
    face = text_box(
        x + 5, y + 2, 36, 36, str(date.day), 16, color, theme.primary if on else "", 18, bold=on or is_today
    )
    children = [face]
    if busy:
        children.append(Node(x + 20, y + 40, 6, 6, fill=theme.primary, radius=3))
    tap = ("calendar", "day", date.isoformat())
    desc = day_text(date.isoformat())
    rid = f"day_{date.day}"
    return Node(x, y, _CELL, _ROW, "view.View", rid, desc=desc, tap=tap, checked=on, children=tuple(children))


def _agenda(ui: Ui, y: float, day: str) -> tuple[Sequence[Node], float]:
    events = ui.state["apps"]["calendar"]["events"]
    shown = sorted((entry["minutes"], place) for place, entry in enumerate(events) if entry["day"] == day)
    nodes: list[Node] = [ui.text(24, y, 300, 32, day_text(day), 16, bold=True, rid="agenda_day")]
    if not shown:
        nodes.append(ui.text(24, y + 32, 300, 40, "No events", 15, ui.theme.muted))
    for line, (_, place) in enumerate(shown):
        nodes.append(_event_row(ui, y + 36 + 74 * line, events[place], place, when=_span(events[place])))
    return nodes, y + 36 + 74 * len(shown) + 88


def _span(entry: State) -> str:
    start, end = entry["minutes"], entry["minutes"] + entry["length"]
    return f"{st.clock_text(start)} – {st.clock_text(end, period=True)}"


def _event_row(ui: Ui, y: float, entry: State, place: int, when: str) -> Node:
    stripe = Node(
        widgets.MARGIN + 12, y + 12, 6, 44, fill=_COLORS[sum(map(ord, entry["title"])) % 5], radius=3
    )
    tap, rid = ("calendar", "open", place), f"event_{place}"
    return widgets.row(ui, y, entry["title"], when, lead=stripe, tap=tap, rid=rid, h=68)


def _search(ui: Ui) -> list[Node]:
    events = ui.state["apps"]["calendar"]["events"]
    found = [
        (entry["day"], entry["minutes"], place)
        for place, entry in enumerate(events)
        if widgets.asked(ui.state, "calendar", entry["title"])
    ]

    def row(y: float, _: int, item: tuple[str, int, int]) -> Node:
        day, at, place = item
        return _event_row(ui, y, events[place], place, f"{day_text(day)}, {st.clock_text(at)}")

    listed = widgets.listing(ui, "calendar.found", 74, sorted(found), row, head=8)
    return [listed, widgets.search_bar(ui, "calendar", "Search events")]


def _event(ui: Ui, index: int) -> list[Node]:
    entry, theme = ui.state["apps"]["calendar"]["events"][index], ui.theme
    color = _COLORS[sum(map(ord, entry["title"])) % 5]
    nodes = [
        Node(widgets.MARGIN, TOP + 16, 8, 56, fill=color, radius=4),
        ui.text(40, TOP + 8, 300, 72, entry["title"], 26, lines=2, rid="event_title"),
    ]
    length = f"{entry['length']} minutes"
    facts = (
        ("event", day_text(entry["day"], with_year=True)),
        ("schedule", _span(entry)),
        ("hourglass_bottom", length),
    )
    for place, (icon, said) in enumerate(facts):
        y = TOP + 96 + 64 * place
        lead = ui.disc(widgets.MARGIN + 10, y + 8, 40, icon, theme.tint, theme.on_tint)
        nodes.append(widgets.row(ui, y, said, lead=lead, h=56, rid=f"fact_{place}"))
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, "delete", "Delete", ("calendar", "delete", index), "delete"),
        ui.icon_button(WIDTH - 106, STATUS_H + 8, "edit", "Edit", ("calendar", "edit", index), "edit"),
    ]
    return [*nodes, widgets.app_bar(ui, "", actions)]


def _form(ui: Ui, is_change: bool) -> list[Node]:
    draft = ui.state["apps"]["calendar"]["draft"]
    nodes = widgets.clearable(ui, TOP + 8, "calendar.title", "Title", "event_note")
    less = ("calendar", "shift", -1)
    nodes.append(
        widgets.stepper(
            ui, TOP + 76, "day", day_text(draft["day"]), less, ("calendar", "shift", 1), "form_day"
        )
    )
    lead = ui.disc(widgets.MARGIN + 14, TOP + 168, 40, "schedule", ui.theme.tint, ui.theme.on_tint)
    when = st.clock_text(draft["minutes"], period=True)
    tap = ("calendar", "time")
    nodes.append(widgets.row(ui, TOP + 158, "Starts", when, lead=lead, tap=tap, rid="form_time", h=62))
    nodes += widgets.chips(
        ui,
        TOP + 228,
        [f"{length} min" for length in LENGTHS],
        [("calendar", "length", length) for length in LENGTHS],
        [f"length_{length}" for length in LENGTHS],
        [draft["length"] == length for length in LENGTHS],
    )
    return widgets.form(ui, "Edit event" if is_change else "New event", nodes, ("calendar", "save"))


def _times(ui: Ui) -> list[Node]:
    chosen = ui.state["apps"]["calendar"]["draft"]["minutes"]
    cells = []
    for place, minutes in enumerate(SLOTS):
        line, column = divmod(place, 3)
        label = st.clock_text(minutes, period=True)
        tap = ("calendar", "at", minutes)
        x, y = widgets.MARGIN + 111 * column, TOP + 8 + 60 * line
        cells.append(widgets.chip(ui, x, y, 105, label, tap, f"at_{minutes}", minutes == chosen))
    return [*cells, widgets.app_bar(ui, "Starts")]


def act(state: State, verb: str, args: Args) -> None:
    """Turns months, chooses days, opens, adds, changes and deletes events."""
    calendar = state["apps"]["calendar"]
    number = int(args[0]) if args and isinstance(args[0], int) else 0
    if verb == "turn":
        year, month = (int(part) for part in calendar["month"].split("-"))
        months = min(2030 * 12, max(2020 * 12, 12 * year + month - 1 + number))
        calendar["month"] = f"{months // 12}-{months % 12 + 1:02d}"
    elif verb == "day":
        calendar["day"] = str(args[0])
    elif verb in ("open", "delete"):
        st.push(state, "calendar", "event" if verb == "open" else "delete", number)
    elif verb == "really_delete":
        calendar["events"].pop(number)
        st.reset(state, "calendar")
        state["toast"] = "Event deleted"
    elif verb in ("add", "edit"):
        _start_form(state, calendar, number if verb == "edit" else -1)
    elif verb == "save":
        _save(state, calendar)
    else:
        _fill(state, calendar["draft"], verb, number)


def _start_form(state: State, calendar: State, index: int) -> None:
    is_new = index < 0
    entry = event("", calendar["day"], 540) if is_new else calendar["events"][index]
    calendar["draft"] = {key: entry[key] for key in ("day", "minutes", "length")}
    page: st.Page = ["form"] if is_new else ["form", index]
    field = "calendar.title"
    st.open_form(state, "calendar", page, {field: entry["title"]}, field if is_new else "")


def _fill(state: State, draft: State, verb: str, number: int) -> None:
    if verb == "shift":
        day = datetime.date.fromisoformat(draft["day"]) + datetime.timedelta(days=number)
        draft["day"] = day.isoformat()
    elif verb == "length":
        draft["length"] = number
    elif verb == "time":
        st.push(state, "calendar", "time")
    elif verb == "at":
        draft["minutes"] = number
        st.pop(state, "calendar")


def _save(state: State, calendar: State) -> None:
    page, title = st.page(state, "calendar"), st.take(state, "calendar.title")
    entry = {"title": title or "Untitled", **calendar["draft"]}
    if len(page) > 1:
        calendar["events"][int(page[1])].update(entry)
    elif len(calendar["events"]) < st.MAX_ITEMS:
        calendar["events"].append(entry)
    calendar["day"], calendar["month"] = entry["day"], entry["day"][:7]
    st.reset(state, "calendar")
    state["toast"] = "Event saved"


def fill(state: State, rng: Names) -> None:
    """Four events in June."""
    state["apps"]["calendar"]["events"] = [
        event(title, _iso(rng.randrange(1, 31)), rng.choice(SLOTS)) for title in rng.names("event", 4)
    ]


APP = App(
    name="calendar",
    label="Calendar",
    icon="calendar_month",
    color="#1a73e8",
    data=data,
    view=view,
    act=act,
    submit=through(),
    keeps=("events",),
    fill=fill,
    comes="everyday",
)


def _words(params: Params) -> Mapping[str, object]:
    month = ("June", "July", "August", "September")[params.get("month", 6) - 6]
    words = {**params, "date": f"{month} {params['day']}"}
    if "minutes" in params:
        words["time"] = st.clock_text(params["minutes"], period=True)
    return words


def _iso(day: int, month: int = 6) -> str:
    return f"{TODAY.year}-{month:02d}-{day:02d}"


MEETINGS = Entries("calendar", "events", "title", "event", "event", is_searched=True)


def _with(state: State, params: Params, rng: Names) -> None:
    """The event, on a day and at a time that the seed chooses."""
    MEETINGS.remove(state, params, rng)
    day = params["day"] - params["shift"] if "shift" in params else rng.randrange(1, 31)
    meant = event(params["title"], _iso(day), rng.choice(SLOTS))
    mark(meant)
    state["apps"]["calendar"]["events"].append(meant)


def _add_check(state: State, params: Params) -> bool:
    entry = MEETINGS.entry(state, params)
    right_time = "minutes" not in params or entry.get("minutes") == params["minutes"]
    return bool(entry.get("day") == _iso(params["day"]) and right_time)


def _add_step(expert: Expert, params: Params) -> Action:
    state, calendar = expert.state, expert.state["apps"]["calendar"]
    at = expert.page("calendar")
    if MEETINGS.entry(state, params):  # saved, but wrongly
        return MEETINGS.delete(expert, params)
    if at == ["time"]:
        return expert.tap(f"at_{params.get('minutes', 540)}")
    if at == ["form"]:
        if (
            typed := expert.write("calendar_title", "calendar.title", params["title"], "clear_title")
        ) is not None:
            return typed
        if calendar["draft"]["minutes"] != params.get("minutes", calendar["draft"]["minutes"]):
            return expert.tap("form_time")
        return _shift(expert, _iso(params["day"])) or expert.tap("save")
    if at[0] != "root":
        return BACK
    return _turn(expert, 6) or (
        expert.tap("add_event")
        if calendar["day"] == _iso(params["day"])
        else expert.tap(f"day_{params['day']}")
    )


def _shift(expert: Expert, day: str) -> Action | None:
    draft = expert.state["apps"]["calendar"]["draft"]["day"]
    if draft == day:
        return None
    return expert.tap("form_day_more" if draft < day else "form_day_less")


def _turn(expert: Expert, month: int) -> Action | None:
    shown = expert.state["apps"]["calendar"]["month"]
    wanted = f"{TODAY.year}-{month:02d}"
    return None if shown == wanted else expert.tap("next" if shown < wanted else "previous")


def _change_step(expert: Expert, params: Params) -> Action:
    place = MEETINGS.find(expert.state, params)
    if place >= 0 and expert.page("calendar") == ["form", place]:
        draft = expert.state["apps"]["calendar"]["draft"]
        entry, kept = (
            MEETINGS.entry(expert.state, params),
            {"minutes", "length" if "day" in params else "day"},
        )
        is_right = st.text(expert.state, "calendar.title") == params["title"]
        if not is_right or any(draft[key] != entry[key] for key in kept):
            return BACK
        if "day" in params:
            return _shift(expert, _iso(params["day"])) or expert.tap("save")
        right = draft["length"] == params["length"]
        return expert.tap("save" if right else f"length_{params['length']}")
    return MEETINGS.open(expert, params) or expert.tap("edit")


def _length_start(state: State, params: Params, rng: Names) -> None:
    _with(state, params, rng)
    others = [length for length in LENGTHS if length != params["length"]]
    MEETINGS.entry(state, params)["length"] = rng.choice(others)


def _day_check(state: State, params: Params) -> bool:
    shown = state["apps"]["calendar"]["day"] == _iso(params["day"], params["month"])
    return bool(shown and st.page(state, "calendar")[0] == "root" and state["front"] == "calendar")


def _day_step(expert: Expert, params: Params) -> Action:
    if expert.page("calendar")[0] != "root":
        return BACK
    return _turn(expert, params["month"]) or expert.tap(f"day_{params['day']}")


_DAYS = {"day": range(1, 31)}
_task = partial(everyday, "calendar")
TEMPLATES: dict[str, Template] = {
    "event_add": _task(
        {"title": str, "day": int}, MEETINGS.remove, _add_check, _add_step, _DAYS, MEETINGS.may()
    ),
    "event_at": _task(
        {"title": str, "day": int, "minutes": int},
        MEETINGS.remove,
        _add_check,
        _add_step,
        {**_DAYS, "minutes": SLOTS},
        MEETINGS.may(),
    ),
    "event_show": _task({"title": str}, _with, MEETINGS.is_open, MEETINGS.open),
    "event_delete": _task({"title": str}, _with, MEETINGS.is_gone, MEETINGS.delete, may=MEETINGS.may()),
    "event_move": _task(
        {"title": str, "day": int, "shift": int},
        _with,
        _add_check,
        _change_step,
        {"day": range(4, 31), "shift": (1, 2, 3)},
        MEETINGS.may("day"),
    ),
    "event_length": _task(
        {"title": str, "length": int},
        _length_start,
        MEETINGS.matches("length"),
        _change_step,
        {"length": LENGTHS},
        MEETINGS.may("length"),
    ),
    "day_show": _task(
        {"month": int, "day": int}, fresh, _day_check, _day_step, {"month": range(1, 13), "day": range(1, 29)}
    ),
}
_TITLE = {"title": "event"}
FAMILIES = (
    Family("event_add", {**_TITLE, "day": range(4, 30)}, _words),
    Family("event_at", {**_TITLE, "day": range(4, 30), "minutes": SLOTS}, _words),
    Family("event_show", _TITLE),
    Family("event_delete", _TITLE),
    Family("event_move", {**_TITLE, "day": range(4, 31), "shift": (1, 2, 3)}, _words),
    Family("day_show", {"month": (6, 7, 8, 9), "day": range(1, 29)}, _words),
    Family("event_length", {**_TITLE, "length": LENGTHS}),
)
