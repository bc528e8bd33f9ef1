"""Tasks of the clock: alarms with days and labels, timer, stopwatch, world clock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps.clock import PRESETS
from distrl.simulator.names import Names
from distrl.simulator.phone.state import State
from distrl.simulator.tasks.base import (
    Family,
    May,
    Params,
    Template,
    everyday,
    fresh,
    is_marked,
    mark,
    only,
    where,
)
from distrl.simulator.tasks.expert import IMPOSSIBLE, Expert

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


def _with_alarm(state: State, params: Params, rng: Names) -> None:
    """An alarm at the task's time that is on, and one twelve hours from it that is not meant."""
    clock, minutes = state["apps"]["clock"], minutes_of(params)
    times = {alarm["minutes"]: alarm for alarm in clock["alarms"]}
    times |= {at: {"minutes": at, "on": True} for at in (minutes, (minutes + 720) % 1440)}
    mark(times[minutes])
    clock["alarms"] = [times[at] for at in sorted(times)]


def pick(expert: Expert, minutes: int) -> Action:
    """Sets the picker to a time and saves it."""
    clock = expert.state["apps"]["clock"]
    draft = clock["draft"]
    hour, minute = (minutes // 60 - 1) % 12 + 1, minutes % 60
    hour_right = draft // 60 % 12 == hour % 12
    both_shown = expert.has(f"hour_{hour}") and expert.has("minute_0")
    if (draft >= 720) != (minutes >= 720):
        return expert.tap("period_pm" if minutes >= 720 else "period_am")
    if not hour_right:
        shown = both_shown or clock["phase"] == "hour"
        return expert.tap(f"hour_{hour}" if shown else "show_hour")
    if draft % 60 != minute:
        shown = both_shown or clock["phase"] == "minute"
        return expert.tap(f"minute_{minute}" if shown else f"hour_{hour}")  # which shows the minutes
    return expert.tap("save")


def _at_check(state: State, params: Params) -> bool:
    alarm = _alarm(state, minutes_of(params))
    return bool(alarm.get("on") and not alarm.get("days") and not alarm.get("label"))


def _at_step(expert: Expert, params: Params) -> Action:
    if expert.page("clock") == ["picker"]:
        return pick(expert, minutes_of(params))
    # A new alarm replaces one at the same time, with its days and label.
    return expert.to_root("clock", 0, "tab_alarm") or expert.tap("add_alarm")


def _off_check(state: State, params: Params) -> bool:
    alarm = _alarm(state, minutes_of(params))
    return bool(alarm and not alarm["on"])


def _off_step(expert: Expert, params: Params) -> Action:
    state, minutes = expert.state, minutes_of(params)
    if not _alarm(state, minutes):
        return IMPOSSIBLE
    return expert.to_root("clock", 0, "tab_alarm") or expert.tap(f"alarm_{_place(state, minutes)}_switch")


def _gone_check(state: State, params: Params) -> bool:
    is_gone = not is_marked(state["apps"]["clock"]["alarms"])
    return is_gone and not _alarm(state, minutes_of(params))  # setting it again replaces the old one


def _on_page(expert: Expert, minutes: int) -> Action | None:
    state = expert.state
    if not _alarm(state, minutes):
        return IMPOSSIBLE
    place = _place(state, minutes)
    if expert.page("clock") == ["alarm", place]:
        return None
    return expert.to_root("clock", 0, "tab_alarm") or expert.tap(f"alarm_{place}")


def _gone_step(expert: Expert, params: Params) -> Action:
    return _on_page(expert, minutes_of(params)) or expert.tap("delete_alarm")


def _days_check(state: State, params: Params) -> bool:
    days = _alarm(state, minutes_of(params)).get("days", [])
    return tuple(days) == DAYS[params["days"]]


def _days_step(expert: Expert, params: Params) -> Action:
    if (step := _on_page(expert, minutes_of(params))) is not None:
        return step
    days = set(_alarm(expert.state, minutes_of(params)).get("days", []))
    return expert.tap(_DAY_IDS[min(days ^ set(DAYS[params["days"]]))])


def _label_check(state: State, params: Params) -> bool:
    return bool(_alarm(state, minutes_of(params)).get("label") == params["label"])


def _label_step(expert: Expert, params: Params) -> Action:
    state, minutes = expert.state, minutes_of(params)
    if _alarm(state, minutes) and expert.page("clock") == ["label", _place(state, minutes)]:
        return expert.fill("clock", {"label": params["label"]})
    return _on_page(expert, minutes) or expert.tap("alarm_label")


def _target(params: Params) -> int:
    return minutes_of({**params, "minute": params["to"]})


def _move_start(state: State, params: Params, rng: Names) -> None:
    _with_alarm(state, params, rng)
    clock = state["apps"]["clock"]
    clock["alarms"] = [alarm for alarm in clock["alarms"] if alarm["minutes"] != _target(params)]


def _move_step(expert: Expert, params: Params) -> Action:
    state, old = expert.state, minutes_of(params)
    if _alarm(state, old) and expert.page("clock") == ["picker", _place(state, old)]:
        return pick(expert, _target(params))
    return _on_page(expert, old) or expert.tap("alarm_time")


def _timer_check(state: State, params: Params) -> bool:
    timer = state["apps"]["clock"]["timer"]
    return bool(timer["set_s"] == 60 * params["minutes"] and timer["started"] is not None)


def _timer_step(expert: Expert, params: Params) -> Action:
    if (step := expert.to_root("clock", 1, "tab_timer")) is not None:
        return step
    wanted, now = params["minutes"], expert.state["apps"]["clock"]["timer"]["set_s"] // 60
    preset = min(PRESETS, key=lambda minutes: abs(minutes - wanted))
    if now == wanted:
        return expert.tap("timer_run")
    if abs(preset - wanted) + 1 < abs(now - wanted):
        return expert.tap(f"timer_{preset}")
    return expert.tap("timer_more" if now < wanted else "timer_less")


def _laps_check(state: State, params: Params) -> bool:
    watch = state["apps"]["clock"]["watch"]
    return bool(watch["started"] is not None and len(watch["laps"]) == params["laps"])


def _laps_step(expert: Expert, params: Params) -> Action:
    if (step := expert.to_root("clock", 2, "tab_stopwatch")) is not None:
        return step
    watch = expert.state["apps"]["clock"]["watch"]
    if len(watch["laps"]) > params["laps"]:
        return expert.tap("watch_reset")
    return expert.tap("watch_run" if watch["started"] is None else "watch_lap")


def _city_start(state: State, params: Params, rng: Names) -> None:
    clock = state["apps"]["clock"]
    clock["cities"] = sorted({*clock["cities"], params["city"]})
    clock["world"] = [city for city in clock["world"] if city != params["city"]]


def _city_check(state: State, params: Params) -> bool:
    return params["city"] in state["apps"]["clock"]["world"]


def _city_step(expert: Expert, params: Params) -> Action:
    if expert.page("clock")[0] == "cities":
        found = "choose_" + params["city"].lower().replace(" ", "_")
        return expert.write("search_field", "clock.search", params["city"]) or expert.tap(found)
    return expert.to_root("clock", 3, "tab_world") or expert.tap("add_city")


def _away_start(state: State, params: Params, rng: Names) -> None:
    _city_start(state, params, rng)
    state["apps"]["clock"]["world"].insert(rng.randrange(3), params["city"])


def _away_check(state: State, params: Params) -> bool:
    return params["city"] not in state["apps"]["clock"]["world"]


def _away_step(expert: Expert, params: Params) -> Action:
    place = expert.state["apps"]["clock"]["world"].index(params["city"])
    return expert.to_root("clock", 3, "tab_world") or expert.tap(f"remove_{place}")


def _start_at(state: State, params: Params, rng: Names) -> None:
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


def _alarm_check(state: State, params: Params) -> bool:
    wanted = params["hour"] % 12 * 60 + params["minute"]
    return any(alarm["on"] and alarm["minutes"] % 720 == wanted for alarm in state["apps"]["clock"]["alarms"])


def _alarm_step(expert: Expert, params: Params) -> Action:
    clock = expert.state["apps"]["clock"]
    if expert.page("clock")[0] == "picker":
        return pick(expert, minutes_of({**params, "period": "PM" if clock["draft"] >= 720 else "AM"}))
    return expert.tap("tab_alarm" if clock["tab"] else "add_alarm")


def _time(params: Params) -> Mapping[str, object]:
    hour, period = params["hour"], params["period"]
    words = {**params, "time": f"{hour}:{params['minute']:02d} {period}"}
    if "to" in params:
        words["to"] = f"{hour}:{params['to']:02d} {period}"
    return words


_task = partial(everyday, "clock")
TEMPLATES: dict[str, Template] = {
    "alarm": _task(
        {"hour": int, "minute": int},
        fresh,
        _alarm_check,
        _alarm_step,
        {"hour": range(1, 13), "minute": range(0, 60, 5)},
        phone="quickstart",
    ),
    "alarm_at": _task(_TIME, _start_at, _at_check, _at_step, _TIMES, _alarms()),
    "alarm_off": _task(_TIME, _with_alarm, _off_check, _off_step, _TIMES, _alarms("on")),
    "alarm_delete": _task(_TIME, _with_alarm, _gone_check, _gone_step, _TIMES, _alarms()),
    "alarm_days": _task(
        {**_TIME, "days": str},
        _with_alarm,
        _days_check,
        _days_step,
        {**_TIMES, "days": DAYS},
        _alarms("days"),
    ),
    "alarm_label": _task(
        {**_TIME, "label": str}, _with_alarm, _label_check, _label_step, _TIMES, _alarms("label")
    ),
    "alarm_move": _task(
        {**_TIME, "to": int},
        _move_start,
        lambda state, params: bool(_alarm(state, _target(params)) and not _alarm(state, minutes_of(params))),
        _move_step,
        {**_TIMES, "to": range(0, 60, 5)},
        _alarms("minutes"),
    ),
    "timer": _task({"minutes": int}, fresh, _timer_check, _timer_step, _MINUTES, _TIMER),
    "laps": _task({"laps": int}, fresh, _laps_check, _laps_step, {"laps": range(10)}, _WATCH),
    "world_add": _task({"city": str}, _city_start, _city_check, _city_step, may=_WORLD),
    "world_remove": _task({"city": str}, _away_start, _away_check, _away_step, may=_WORLD),
}
FAMILIES = (
    Family("alarm_at", _TIMES, _time),
    Family("alarm_off", _TIMES, _time),
    Family("alarm_delete", _TIMES, _time),
    Family("alarm_days", {**_TIMES, "days": tuple(DAYS)}, _time),
    Family("alarm_label", {**_TIMES, "label": "label"}, _time),
    Family(
        "alarm_move",
        {**_TIMES, "to": range(0, 60, 5)},
        _time,
        fits=lambda params: bool(params["minute"] != params["to"]),
    ),
    Family("timer", {"minutes": range(2, 20)}),
    Family("laps", {"laps": range(2, 9)}),
    Family("world_add", {"city": "town"}),
    Family("world_remove", {"city": "town"}),
)
