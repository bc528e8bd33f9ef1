"""Tasks of the clock: alarms with days and labels, timer, stopwatch, world clock."""

from __future__ import annotations

import random

from distrl.core.actions import Action
from distrl.simulator.apps.clock_pages import CITIES
from distrl.simulator.apps.clock_timers import PRESETS
from distrl.simulator.phone.hand import BACK, IMPOSSIBLE, Hand
from distrl.simulator.phone.keeping import May, only, where
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import Params, Template, fresh
from distrl.simulator.tasks.moves import everyday, is_marked, mark, page, write

DAYS: dict[str, tuple[int, ...]] = {
    "weekdays": (0, 1, 2, 3, 4),
    "weekends": (5, 6),
    "Mondays": (0,),
    "Tuesdays and Thursdays": (1, 3),
    "Mondays and Fridays": (0, 4),
    "Wednesdays": (2,),
    "Saturdays": (5,),
    "Sundays": (6,),
}
_DAY_IDS = ("day_mon", "day_tue", "day_wed", "day_thu", "day_fri", "day_sat", "day_sun")
_TIME = {"hour": int, "minute": int, "period": str}
_TIMES = {"hour": range(1, 13), "minute": range(0, 60, 5), "period": ("AM", "PM")}


def minutes_of(params: Params) -> int:
    """The time in a task's parameters, in minutes after midnight."""
    hour: int = params["hour"] % 12
    minute: int = params["minute"]
    return 60 * hour + minute + (720 if params["period"] == "PM" else 0)


def _alarm(state: State, minutes: int) -> State:
    alarms: list[State] = state["apps"]["clock"]["alarms"]
    return next((alarm for alarm in alarms if alarm["minutes"] == minutes), {})


def _place(state: State, minutes: int) -> int:
    return [alarm["minutes"] for alarm in state["apps"]["clock"]["alarms"]].index(minutes)


def _with_alarm(state: State, params: Params, rng: random.Random) -> None:
    """An alarm at the task's time that is on, and one twelve hours from it that is not meant."""
    clock, minutes = state["apps"]["clock"], minutes_of(params)
    times = {alarm["minutes"]: alarm for alarm in clock["alarms"]}
    times |= {at: {"minutes": at, "on": True} for at in (minutes, (minutes + 720) % 1440)}
    mark(times[minutes])
    clock["alarms"] = [times[at] for at in sorted(times)]


def _tab(hand: Hand, number: int, rid: str) -> Action | None:
    """What shows a tab of the clock; None when it is there."""
    if page(hand, "clock")[0] != "root":
        return BACK
    return None if hand.phone.state["apps"]["clock"]["tab"] == number else hand.tap(rid)


def pick(hand: Hand, minutes: int) -> Action:
    """Sets the picker to a time and saves it."""
    clock = hand.phone.state["apps"]["clock"]
    draft = clock["draft"]
    hour, minute = (minutes // 60 - 1) % 12 + 1, minutes % 60
    hour_right = draft // 60 % 12 == hour % 12
    both_shown = hand.phone.tree_has(f"hour_{hour}") and hand.phone.tree_has("minute_0")
    if (draft >= 720) != (minutes >= 720):
        return hand.tap("period_pm" if minutes >= 720 else "period_am")
    if not hour_right:
        shown = both_shown or clock["phase"] == "hour"
        return hand.tap(f"hour_{hour}" if shown else "show_hour")
    if draft % 60 != minute:
        shown = both_shown or clock["phase"] == "minute"
        return hand.tap(f"minute_{minute}" if shown else "show_minute")
    return hand.tap("save")


def _at_check(state: State, params: Params) -> bool:
    return bool(_alarm(state, minutes_of(params)).get("on", False))


def _at_way(hand: Hand, params: Params) -> Action:
    if page(hand, "clock") == ["picker"]:
        return pick(hand, minutes_of(params))
    return _tab(hand, 0, "tab_alarm") or hand.tap("add_alarm")


def _off_check(state: State, params: Params) -> bool:
    alarm = _alarm(state, minutes_of(params))
    return bool(alarm and not alarm["on"])


def _off_way(hand: Hand, params: Params) -> Action:
    state, minutes = hand.phone.state, minutes_of(params)
    if not _alarm(state, minutes):
        return IMPOSSIBLE
    return _tab(hand, 0, "tab_alarm") or hand.tap(f"alarm_{_place(state, minutes)}_switch")


def _gone_check(state: State, params: Params) -> bool:
    is_gone = not is_marked(state["apps"]["clock"]["alarms"])
    return is_gone and not _alarm(state, minutes_of(params))  # setting it anew takes the place of the old one


def _on_page(hand: Hand, minutes: int) -> Action | None:
    """What opens the page of the alarm at a time; None when it is there."""
    state = hand.phone.state
    if not _alarm(state, minutes):
        return IMPOSSIBLE
    place = _place(state, minutes)
    if page(hand, "clock") == ["alarm", place]:
        return None
    return _tab(hand, 0, "tab_alarm") or hand.tap(f"alarm_{place}")


def _gone_way(hand: Hand, params: Params) -> Action:
    return _on_page(hand, minutes_of(params)) or hand.tap("delete_alarm")


def _days_check(state: State, params: Params) -> bool:
    days = _alarm(state, minutes_of(params)).get("days", [])
    return tuple(days) == DAYS[params["days"]]


def _days_way(hand: Hand, params: Params) -> Action:
    if (way := _on_page(hand, minutes_of(params))) is not None:
        return way
    days = set(_alarm(hand.phone.state, minutes_of(params)).get("days", []))
    return hand.tap(_DAY_IDS[min(days ^ set(DAYS[params["days"]]))])


def _label_check(state: State, params: Params) -> bool:
    return bool(_alarm(state, minutes_of(params)).get("label") == params["label"])


def _label_way(hand: Hand, params: Params) -> Action:
    state, minutes = hand.phone.state, minutes_of(params)
    if _alarm(state, minutes) and page(hand, "clock") == ["label", _place(state, minutes)]:
        typed = write(hand, "clock_label", "clock.label", params["label"], "clear_label")
        return typed or hand.tap("save")
    return _on_page(hand, minutes) or hand.tap("alarm_label")


def _target(params: Params) -> int:
    return minutes_of({**params, "minute": params["to"]})


def _move_start(state: State, params: Params, rng: random.Random) -> None:
    _with_alarm(state, params, rng)
    clock = state["apps"]["clock"]
    clock["alarms"] = [alarm for alarm in clock["alarms"] if alarm["minutes"] != _target(params)]


def _move_check(state: State, params: Params) -> bool:
    return bool(_alarm(state, _target(params)) and not _alarm(state, minutes_of(params)))


def _move_way(hand: Hand, params: Params) -> Action:
    state, old = hand.phone.state, minutes_of(params)
    if _alarm(state, old) and page(hand, "clock") == ["picker", _place(state, old)]:
        return pick(hand, _target(params))
    return _on_page(hand, old) or hand.tap("alarm_time")


def _timer_check(state: State, params: Params) -> bool:
    timer = state["apps"]["clock"]["timer"]
    return bool(timer["set_s"] == 60 * params["minutes"] and timer["started"] is not None)


def _timer_way(hand: Hand, params: Params) -> Action:
    if (way := _tab(hand, 1, "tab_timer")) is not None:
        return way
    wanted, now = params["minutes"], hand.phone.state["apps"]["clock"]["timer"]["set_s"] // 60
    preset = min(PRESETS, key=lambda minutes: abs(minutes - wanted))
    if now == wanted:
        return hand.tap("timer_run")
    if abs(preset - wanted) + 1 < abs(now - wanted):
        return hand.tap(f"timer_{preset}")
    return hand.tap("timer_more" if now < wanted else "timer_less")


def _laps_check(state: State, params: Params) -> bool:
    watch = state["apps"]["clock"]["watch"]
    return bool(watch["started"] is not None and len(watch["laps"]) == params["laps"])


def _laps_way(hand: Hand, params: Params) -> Action:
    if (way := _tab(hand, 2, "tab_stopwatch")) is not None:
        return way
    watch = hand.phone.state["apps"]["clock"]["watch"]
    if len(watch["laps"]) > params["laps"]:
        return hand.tap("watch_reset")
    return hand.tap("watch_run" if watch["started"] is None else "watch_lap")


def _city_start(state: State, params: Params, rng: random.Random) -> None:
    world = state["apps"]["clock"]["world"]
    if params["city"] in world:
        world.remove(params["city"])


def _city_check(state: State, params: Params) -> bool:
    return params["city"] in state["apps"]["clock"]["world"]


def _city_way(hand: Hand, params: Params) -> Action:
    if page(hand, "clock")[0] == "cities":
        typed = write(hand, "search_field", "clock.search", params["city"])
        return typed or hand.tap("choose_" + params["city"].lower().replace(" ", "_"))
    return _tab(hand, 3, "tab_world") or hand.tap("add_city")


def _away_start(state: State, params: Params, rng: random.Random) -> None:
    world = state["apps"]["clock"]["world"]
    if params["city"] not in world:
        world.insert(rng.randrange(3), params["city"])


def _away_check(state: State, params: Params) -> bool:
    return params["city"] not in state["apps"]["clock"]["world"]


def _away_way(hand: Hand, params: Params) -> Action:
    place = hand.phone.state["apps"]["clock"]["world"].index(params["city"])
    return _tab(hand, 3, "tab_world") or hand.tap(f"remove_{place}")


def _start_at(state: State, params: Params, rng: random.Random) -> None:
    clock = state["apps"]["clock"]
    clock["alarms"] = [alarm for alarm in clock["alarms"] if alarm["minutes"] != minutes_of(params)]


def _alarms(*fields: str) -> tuple[May, ...]:
    """The alarm at the task's time, or moved from it; of it only `fields`, if any are named."""

    def is_meant(alarm: State, params: Params) -> bool:
        times = {minutes_of(params), _target(params) if "to" in params else -1}
        return alarm["minutes"] in times

    return (May("clock.alarms", where(is_meant, *fields)),)


_WORLD = (May("clock.world", only("", "city")),)
_MINUTES = {"minutes": range(1, 100)}
_TIMER = (May("clock.timer.started"),)
_WATCH = (May("clock.watch.started"),)

TEMPLATES: dict[str, Template] = {
    "alarm_at": everyday("clock", {**_TIME}, _start_at, _at_check, _at_way, _TIMES, _alarms()),
    "alarm_off": everyday("clock", {**_TIME}, _with_alarm, _off_check, _off_way, _TIMES, _alarms("on")),
    "alarm_delete": everyday("clock", {**_TIME}, _with_alarm, _gone_check, _gone_way, _TIMES, _alarms()),
    "alarm_days": everyday(
        "clock",
        {**_TIME, "days": str},
        _with_alarm,
        _days_check,
        _days_way,
        {**_TIMES, "days": DAYS},
        _alarms("days"),
    ),
    "alarm_label": everyday(
        "clock", {**_TIME, "label": str}, _with_alarm, _label_check, _label_way, _TIMES, _alarms("label")
    ),
    "alarm_move": everyday(
        "clock",
        {**_TIME, "to": int},
        _move_start,
        _move_check,
        _move_way,
        {**_TIMES, "to": range(0, 60, 5)},
        _alarms("minutes"),
    ),
    "timer": everyday("clock", {"minutes": int}, fresh, _timer_check, _timer_way, _MINUTES, _TIMER),
    "laps": everyday("clock", {"laps": int}, fresh, _laps_check, _laps_way, {"laps": range(10)}, _WATCH),
    "world_add": everyday(
        "clock", {"city": str}, _city_start, _city_check, _city_way, {"city": CITIES}, _WORLD
    ),
    "world_remove": everyday(
        "clock", {"city": str}, _away_start, _away_check, _away_way, {"city": CITIES}, _WORLD
    ),
}
