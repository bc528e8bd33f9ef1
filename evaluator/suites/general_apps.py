"""Families of `general`: clock, calendar, settings, weather, calculator, web search, opening apps."""

from __future__ import annotations

from collections.abc import Mapping

from distrl.evaluator.suites.families import Family, product, zipped
from distrl.workers.simphone import state as st
from distrl.workers.simphone.apps import APPS
from distrl.workers.simphone.apps.clock_pages import CITIES
from distrl.workers.simphone.apps.settings_pages import CHOICES, SECTIONS, TOGGLES
from distrl.workers.simphone.apps.weather import CITIES as PLACES
from distrl.workers.simphone.apps.weather import DAY_NAMES
from distrl.workers.simphone.templates import stuff
from distrl.workers.simphone.templates.base import Params
from distrl.workers.simphone.templates.clock import DAYS

_HOURS, _PERIODS = (5, 6, 7, 8, 9, 10), ("AM", "PM")


def _time(params: Params) -> Mapping[str, object]:
    hour, period = params["hour"], params["period"]
    words = {**params, "time": f"{hour}:{params['minute']:02d} {period}"}
    if "to" in params:
        words["to"] = f"{hour}:{params['to']:02d} {period}"
    return words


def _day(params: Params) -> Mapping[str, object]:
    month = ("June", "July", "August", "September")[params.get("month", 6) - 6]
    words = {**params, "date": f"{month} {params['day']}"}
    if "minutes" in params:
        words["time"] = st.clock_text(params["minutes"], period=True)
    return words


def _times(*minutes: int) -> tuple[Params, ...]:
    return product(hour=_HOURS, minute=minutes, period=_PERIODS)


def _switch(params: Params) -> Mapping[str, object]:
    label = TOGGLES[params["setting"]][1].label
    return {"what": label, "on": "on" if params["on"] else "off", "do": "Allow" if params["on"] else "Block"}


def _level(params: Params) -> Mapping[str, object]:
    names = {"ring": "ring volume", "alarm_volume": "alarm volume", "volume": "media volume"}
    return {"what": names.get(params["setting"], "brightness"), "level": params["level"]}


def _choice(params: Params) -> Mapping[str, object]:
    return {"what": CHOICES[params["setting"]][1].label.lower(), "option": params["option"]}


def _section(params: Params) -> Mapping[str, object]:
    return {"what": SECTIONS[params["section"]].title}


def _app(params: Params) -> Mapping[str, object]:
    return {"app": APPS[params["app"]].label}


_SWITCHES = (
    *("hotspot", "nfc", "cast", "data", "roaming", "data_saver", "saver", "percent", "adaptive", "raise"),
    *("dnd", "vibrate", "key_tones", "touch_sounds", "location", "lock", "fingerprint", "find", "vpn"),
)
_NOTICES = tuple(key for key in TOGGLES if key.startswith("notify_"))
_QUERIES = (
    *("how is green tea made", "where do trains to the coast leave", "what is the weather this week"),
    *("how to start running", "how to water house plants", "when is the museum of clocks open"),
    *("how to bake simple bread", "what is a good city bike", "which planet is the largest"),
    *("how to learn a language", "how often do dogs eat", "where are the best beaches"),
    *("how long does bread dough rest", "what does a day ticket cost", "where is parking free"),
    *("how much light do plants want", "what is the smallest planet", "how long do puppies sleep"),
    *("what is black tea", "how to choose a bike", "when does rain reach the coast"),
    *("what shoes are good for running", "how to practice a language", "where is the north beach"),
)
_SUMS = tuple(
    {"expression": f"{left} {op} {right}"}
    for left, op, right in (
        *((12, "+", 30), (45, "-", 17), (8, "×", 7), (96, "÷", 4), (250, "+", 75), (31, "×", 12)),
        *((144, "÷", 12), (500, "-", 125), (64, "+", 89), (15, "×", 15), (81, "÷", 9), (77, "-", 38)),
        *((19, "+", 6), (320, "÷", 8), (25, "×", 16), (999, "-", 111), (36, "+", 48), (13, "×", 9)),
        *((72, "÷", 6), (205, "-", 99), (118, "+", 204), (42, "×", 11), (225, "÷", 15), (60, "-", 24)),
    )
)
_MOVES = tuple(
    params | {"to": to} for params, to in zip(_times(0, 30), (10, 20, 40, 50, 15, 45, 25), strict=False)
) + tuple(
    params | {"to": to}
    for params, to in zip(_times(5, 35)[5:], (20, 50, 10, 40, 55, 25, 45, 15, 0, 30, 20, 50), strict=False)
)

FAMILIES = (
    Family(
        "alarm_at",
        "alarm_at",
        _times(0, 15, 25, 40, 50),
        ("Set an alarm for {time}", "Wake me up at {time}", "Create an alarm at {time}"),
        ("I need an alarm that rings at {time}", "Have the clock ring at {time}"),
        _time,
    ),
    Family(
        "alarm_off",
        "alarm_off",
        _times(0, 30),
        ("Turn off the {time} alarm", "Switch the alarm at {time} off"),
        ("Disable my alarm for {time}", "Deactivate the alarm of {time} but keep it"),
        _time,
    ),
    Family(
        "alarm_delete",
        "alarm_delete",
        _times(10, 45),
        ("Delete the {time} alarm", "Remove the alarm at {time}"),
        ("Get rid of my alarm for {time}", "Throw away the alarm of {time}"),
        _time,
    ),
    Family(
        "alarm_days",
        "alarm_days",
        tuple(
            params | {"days": days} for params, days in zip(_times(0, 30), [*DAYS, *DAYS, *DAYS], strict=True)
        ),
        ("Make the {time} alarm ring on {days}", "Repeat the alarm at {time} on {days}"),
        ("Let my {time} alarm go off on {days}", "Set the days of the {time} alarm to {days}"),
        _time,
    ),
    Family(
        "alarm_label",
        "alarm_label",
        tuple(
            params | {"label": label}
            for params, label in zip(
                _times(15, 45),
                ("Gym", "Pills", "School run", "Oven", "Bus", "Standup") * 4,
                strict=True,
            )
        ),
        ('Label the {time} alarm "{label}"', 'Give the alarm at {time} the label "{label}"'),
        ('Name my {time} alarm "{label}"', 'Put "{label}" as label on the alarm of {time}'),
        _time,
    ),
    Family(
        "alarm_move",
        "alarm_move",
        _MOVES,
        ("Change the {time} alarm to {to}", "Move the alarm at {time} to {to}"),
        ("Make my {time} alarm ring at {to} instead", "Reschedule the alarm of {time} to {to}"),
        _time,
    ),
    Family(
        "timer",
        "timer",
        product(minutes=(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)),
        ("Start a timer for {minutes} minutes", "Set a {minutes} minute timer and start it"),
        ("Count down {minutes} minutes with the timer", "Run a timer of {minutes} minutes"),
    ),
    Family(
        "laps",
        "laps",
        product(laps=tuple(range(2, 9))),
        ("Start the stopwatch and record {laps} laps", "Run the stopwatch, laps: {laps}"),
        ("Take {laps} laps with the stopwatch and let it run", "Let the stopwatch run and note {laps} laps"),
    ),
    Family(
        "world_add",
        "world_add",
        product(city=sorted(CITIES)),
        ("Add {city} to the world clock", "What time is it in {city}? Add it to the world clock"),
        ("Show the time of {city} in the world clock", "Put {city} on my list of world clocks"),
    ),
    Family(
        "event_add",
        "event_add",
        zipped(
            title=("Piano recital", "Tax office", "Picnic", "Garage sale", "Blood donation"),
            day=(4, 7, 9, 11, 14, 16, 18, 20, 22, 24, 26, 28, 5, 8, 10, 13, 15, 17, 19, 21, 23, 25),
        ),
        ('Add "{title}" to the calendar on {date}', 'Create the event "{title}" for {date}'),
        ('Put "{title}" into my calendar for {date}', 'On {date} I have "{title}": note it in the calendar'),
        _day,
    ),
    Family(
        "event_at",
        "event_at",
        zipped(
            title=("Checkup", "Tennis", "Rehearsal", "Team dinner", "Barber", "Viewing", "Webinar"),
            day=(6, 9, 12, 13, 17, 19, 20, 23, 25, 27, 11, 16, 18, 24, 26, 10, 5, 30, 22, 28, 8, 29),
            minutes=(480, 510, 570, 630, 690, 720, 810, 870, 900, 990, 1050, 1110, 1170),
        ),
        ('Add "{title}" on {date} at {time} to the calendar', 'New event "{title}", {date}, {time}'),
        ('Schedule "{title}" for {time} on {date}', 'Enter "{title}" at {time} on {date} in the calendar'),
        _day,
    ),
    Family(
        "event_show",
        "event_show",
        product(title=stuff.EVENTS),
        ('When is "{title}"? Show the event', 'Open the calendar event "{title}"'),
        ('Look up the details of "{title}" in the calendar', 'What day is my "{title}"? Open it'),
    ),
    Family(
        "event_delete",
        "event_delete",
        product(title=stuff.EVENTS),
        ('Delete the event "{title}"', 'Remove "{title}" from the calendar'),
        ('Cancel "{title}" in my calendar', 'Take "{title}" out of the calendar'),
    ),
    Family(
        "event_move",
        "event_move",
        zipped(
            title=stuff.EVENTS,
            day=(6, 9, 12, 13, 17, 19, 20, 23, 25, 27, 11, 16, 18, 24, 26, 10, 5, 28),
            shift=(1, 2, 3, 2),
        ),
        ('Move the event "{title}" to {date}', 'Change the day of "{title}" to {date}'),
        ('Postpone "{title}" until {date}', '"{title}" is on {date} now: correct the calendar'),
        _day,
    ),
    Family(
        "day_show",
        "day_show",
        product(month=(6, 7, 8, 9), day=(5, 8, 12, 14, 19, 21, 26)),
        ("Show {date} in the calendar", "What is on my calendar for {date}?"),
        ("Open the calendar at {date}", "Am I free on {date}? Look in the calendar"),
        _day,
    ),
    Family(
        "setting_switch",
        "setting_switch",
        product(setting=_SWITCHES, on=(True, False)),
        ("Turn {on} {what} in the settings", "Switch {what} {on}"),
        ("I want {what} {on}", "Set {what} to {on}"),
        _switch,
    ),
    Family(
        "app_notices",
        "setting_switch",
        product(setting=_NOTICES, on=(True, False)),
        ("Turn notifications from {what} {on}", "Switch {on} the notifications of {what}"),
        ("{do} notifications by the app {what}", "{do} what {what} wants to notify me of"),
        _switch,
    ),
    Family(
        "setting_level",
        "setting_level",
        product(setting=("brightness", "volume", "ring", "alarm_volume"), level=(0, 20, 30, 50, 70, 90, 100)),
        ("Set the {what} to {level}%", "Change {what} to {level} percent"),
        ("Adjust the {what} so that it is at {level}%", "I want {level}% {what}"),
        _level,
    ),
    Family(
        "setting_choice",
        "setting_choice",
        tuple(
            {"setting": key, "option": option}
            for key, (_, choice) in CHOICES.items()
            for option in choice.options
        ),
        ("Set the {what} to {option}", "Change the setting {what} to {option}"),
        ("Choose {option} as {what}", "Take {option} for the {what}"),
        _choice,
    ),
    Family(
        "setting_page",
        "setting_page",
        product(section=tuple(SECTIONS)),
        ("Open the settings page {what}", "Go to {what} in the settings"),
        ("Show me the settings of {what}", "Find {what} in the settings"),
        _section,
    ),
    Family(
        "weather_city",
        "weather_city",
        product(city=PLACES),
        ("What is the weather in {city}?", "Show the weather for {city}"),
        ("How warm is it in {city}?", "Is it sunny in {city}? Look at the weather app"),
    ),
    Family(
        "weather_day",
        "weather_day",
        product(city=PLACES, day=DAY_NAMES),
        ("Show the weather on {day} in {city}", "What will the weather be in {city} on {day}?"),
        ("Will it rain in {city} on {day}?", "How strong is the wind in {city} on {day}?"),
    ),
    Family(
        "calculate",
        "calculate",
        _SUMS,
        ("Calculate {expression}", "Use the calculator to work out {expression}"),
        ("What is {expression}? Ask the calculator", "How much is {expression} on the calculator?"),
    ),
    Family(
        "web_search",
        "web_search",
        product(query=_QUERIES),
        ("Search the web for: {query}", "Look up on the web: {query}"),
        ("Ask the search engine: {query}", "Find out with the browser: {query}"),
    ),
    Family(
        "launch",
        "launch",
        tuple(
            {"app": app, "start": start}
            for app in ("calculator", "notes", "weather", "calendar", "settings", "clock", "contacts")
            for start in ("launcher", "browser", "messages", "music")
        ),
        ("Open the {app} app", "Go to {app}"),
        ("Launch {app}", "Bring up the app called {app}"),
        _app,
    ),
)
