"""Families of `general`: settings, weather, calculator, web search, opening apps."""

from __future__ import annotations

from collections.abc import Mapping

from distrl.simulator.apps import APPS
from distrl.simulator.apps.settings_pages import CHOICES, SECTIONS, TOGGLES
from distrl.simulator.apps.weather import CITIES as PLACES
from distrl.simulator.apps.weather import DAY_NAMES
from distrl.simulator.tasks.base import Params
from distrl.simulator.tasks.suites.families import Family, product


def _switch(params: Params) -> Mapping[str, object]:
    label = TOGGLES[params["setting"]][1].label
    return {"what": label, "on": "on" if params["on"] else "off", "do": "Allow" if params["on"] else "Block"}


def _level(params: Params) -> Mapping[str, object]:
    names = {"ring": "ring volume", "alarm_volume": "alarm volume", "volume": "media volume"}
    return {"what": names.get(params["setting"], "brightness"), "percent": params["percent"]}


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

FAMILIES = (
    Family(
        "setting_switch",
        "setting_switch",
        product(setting=_SWITCHES, on=(True, False)),
        (
            "Turn {on} {what} in the settings",
            "Switch {what} {on}",
            "Please set {what} to {on} in the settings",
            "I would like {what} to be {on}",
            "Change {what} to {on}",
            "{what} should be {on}",
        ),
        ("I want {what} {on}", "Set {what} to {on}"),
        _switch,
    ),
    Family(
        "app_notices",
        "setting_switch",
        product(setting=_NOTICES, on=(True, False)),
        (
            "Turn notifications from {what} {on}",
            "Switch {on} the notifications of {what}",
            "Set notifications from {what} to {on}",
            "{do} the notifications of {what}",
            "{do} notifications by {what} in the settings",
            "{do} it that the app {what} notifies me",
        ),
        ("{do} notifications by the app {what}", "{do} what {what} wants to notify me of"),
        _switch,
    ),
    Family(
        "setting_level",
        "setting_level",
        product(
            setting=("brightness", "volume", "ring", "alarm_volume"), percent=(0, 20, 30, 50, 70, 90, 100)
        ),
        (
            "Set the {what} to {percent}%",
            "Change {what} to {percent} percent",
            "Adjust {what} to {percent}%",
            "Put the {what} at {percent} percent",
            "I want the {what} at {percent}%",
            "Make the {what} {percent}%",
        ),
        ("Adjust the {what} so that it is at {percent}%", "I want {percent}% {what}"),
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
        (
            "Set the {what} to {option}",
            "Change the setting {what} to {option}",
            "Choose {option} for the {what}",
            "Take {option} as my {what}",
            "I want {option} as the {what}",
            "Pick {option} in the setting {what}",
        ),
        ("Choose {option} as {what}", "Take {option} for the {what}"),
        _choice,
    ),
    Family(
        "setting_page",
        "setting_page",
        product(section=tuple(SECTIONS)),
        (
            "Open the settings page {what}",
            "Go to {what} in the settings",
            "Show {what} in the settings",
            "Find the settings of {what}",
            "Take me to the settings page {what}",
            "Look for {what} in the settings and open it",
        ),
        ("Show me the settings of {what}", "Find {what} in the settings"),
        _section,
    ),
    Family(
        "weather_city",
        "weather_city",
        product(city=PLACES),
        (
            "What is the weather in {city}?",
            "Show the weather for {city}",
            "How warm does it get in {city}?",
            "Is it raining in {city}? Look at the weather",
            "Open the weather app at {city}",
            "Tell me how sunny it is in {city}",
        ),
        ("How warm is it in {city}?", "Is it sunny in {city}? Look at the weather app"),
    ),
    Family(
        "weather_day",
        "weather_day",
        product(city=PLACES, day=DAY_NAMES),
        (
            "Show the weather on {day} in {city}",
            "What will the weather be in {city} on {day}?",
            "Is there rain in {city} on {day}?",
            "How warm will {city} be on {day}?",
            "Open the weather of {day} for {city}",
            "Will the wind be strong on {day} in {city}?",
        ),
        ("Will it rain in {city} on {day}?", "How strong is the wind in {city} on {day}?"),
    ),
    Family(
        "calculate",
        "calculate",
        _SUMS,
        (
            "Calculate {expression}",
            "Use the calculator to work out {expression}",
            "What is {expression}? Use the calculator",
            "How much is {expression}?",
            "Work out {expression} on the calculator",
            "Ask the calculator for {expression}",
        ),
        ("What is {expression}? Ask the calculator", "How much is {expression} on the calculator?"),
    ),
    Family(
        "web_search",
        "web_search",
        product(query=_QUERIES),
        (
            "Search the web for: {query}",
            "Look up on the web: {query}",
            "Use the browser to find out: {query}",
            "Find on the web: {query}",
            "Ask the web: {query}",
            "Search with the browser for: {query}",
        ),
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
        (
            "Open the {app} app",
            "Go to {app}",
            "Start {app}",
            "Launch the app {app}",
            "Bring {app} up",
            "Show me the app called {app}",
        ),
        ("Launch {app}", "Bring up the app called {app}"),
        _app,
    ),
)
