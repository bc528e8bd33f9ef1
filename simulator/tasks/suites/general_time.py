"""Families of `general`: clock and calendar."""

from __future__ import annotations

from collections.abc import Mapping

from distrl.simulator.apps.clock_pages import CITIES
from distrl.simulator.phone import state as st
from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.base import Params
from distrl.simulator.tasks.clock import DAYS
from distrl.simulator.tasks.suites.families import Family, product, zipped

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
        (
            "Set an alarm for {time}",
            "Wake me up at {time}",
            "Create an alarm at {time}",
            "Have the alarm go off at {time}",
            "I want to be woken at {time}",
            "Let the clock wake me at {time}",
            "Put in a new alarm that rings at {time}",
        ),
        ("I need an alarm that rings at {time}", "Have the clock ring at {time}"),
        _time,
    ),
    Family(
        "alarm_off",
        "alarm_off",
        _times(0, 30),
        (
            "Turn off the {time} alarm",
            "Switch the alarm at {time} off",
            "Disable the alarm of {time}",
            "I do not want the {time} alarm to ring: turn it off",
            "Deactivate the {time} alarm",
            "Keep the alarm at {time}, but switch it off",
        ),
        ("Disable my alarm for {time}", "Deactivate the alarm of {time} but keep it"),
        _time,
    ),
    Family(
        "alarm_delete",
        "alarm_delete",
        _times(10, 45),
        (
            "Delete the {time} alarm",
            "Remove the alarm at {time}",
            "Get rid of the {time} alarm",
            "Throw the alarm of {time} away",
            "Erase my alarm at {time}",
            "I do not need the {time} alarm any more: delete it",
        ),
        ("Get rid of my alarm for {time}", "Throw away the alarm of {time}"),
        _time,
    ),
    Family(
        "alarm_days",
        "alarm_days",
        tuple(
            params | {"days": days} for params, days in zip(_times(0, 30), [*DAYS, *DAYS, *DAYS], strict=True)
        ),
        (
            "Make the {time} alarm ring on {days}",
            "Repeat the alarm at {time} on {days}",
            "Set the {time} alarm to repeat on {days}",
            "The alarm of {time} should go off on {days}",
            "Let the alarm at {time} ring on {days}",
            "My alarm at {time} has these days: {days}",
        ),
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
        (
            'Label the {time} alarm "{label}"',
            'Give the alarm at {time} the label "{label}"',
            'Name the alarm of {time} "{label}"',
            'Call my {time} alarm "{label}"',
            'Put the label "{label}" on the {time} alarm',
            'The alarm at {time} is for "{label}": label it',
        ),
        ('Name my {time} alarm "{label}"', 'Put "{label}" as label on the alarm of {time}'),
        _time,
    ),
    Family(
        "alarm_move",
        "alarm_move",
        _MOVES,
        (
            "Change the {time} alarm to {to}",
            "Move the alarm at {time} to {to}",
            "Reschedule my {time} alarm to {to}",
            "Make the alarm of {time} go off at {to} instead",
            "Let the alarm at {time} ring at {to}",
            "My {time} alarm should be at {to}: change it",
        ),
        ("Make my {time} alarm ring at {to} instead", "Reschedule the alarm of {time} to {to}"),
        _time,
    ),
    Family(
        "timer",
        "timer",
        product(minutes=(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)),
        (
            "Start a timer for {minutes} minutes",
            "Set a {minutes} minute timer and start it",
            "Count {minutes} minutes down",
            "Run a {minutes} minute timer",
            "I need a timer of {minutes} minutes",
            "Let a timer run for {minutes} minutes",
        ),
        ("Count down {minutes} minutes with the timer", "Run a timer of {minutes} minutes"),
    ),
    Family(
        "laps",
        "laps",
        product(laps=tuple(range(2, 9))),
        (
            "Start the stopwatch and record {laps} laps",
            "Run the stopwatch, laps: {laps}",
            "Let the stopwatch run and take {laps} laps",
            "Time {laps} laps with the stopwatch",
            "Note {laps} laps on the running stopwatch",
            "Use the stopwatch for {laps} laps and do not stop it",
        ),
        ("Take {laps} laps with the stopwatch and let it run", "Let the stopwatch run and note {laps} laps"),
    ),
    Family(
        "world_add",
        "world_add",
        product(city=sorted(CITIES)),
        (
            "Add {city} to the world clock",
            "What time is it in {city}? Add it to the world clock",
            "Put {city} on the world clock",
            "Show me the time in {city} on the world clock",
            "I want {city} on my list in the world clock",
            "World clock: add the time of {city}",
        ),
        ("Show the time of {city} in the world clock", "Put {city} on my list of world clocks"),
    ),
    Family(
        "event_add",
        "event_add",
        zipped(
            title=("Piano recital", "Tax office", "Picnic", "Garage sale", "Blood donation"),
            day=(4, 7, 9, 11, 14, 16, 18, 20, 22, 24, 26, 28, 5, 8, 10, 13, 15, 17, 19, 21, 23, 25),
        ),
        (
            'Add "{title}" to the calendar on {date}',
            'Create the event "{title}" for {date}',
            'Put the event "{title}" on {date} in my calendar',
            'Note "{title}" in the calendar for {date}',
            'I have "{title}" on {date}: add it to the calendar',
            'New event for {date}: "{title}"',
        ),
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
        (
            'Add "{title}" on {date} at {time} to the calendar',
            'New event "{title}", {date}, {time}',
            'Schedule "{title}" at {time} on {date} in the calendar',
            'Put "{title}" into the calendar for {date} at {time}',
            'Enter the event "{title}" on {date}, {time}',
            'On {date} at {time} I have "{title}": note it in my calendar',
        ),
        ('Schedule "{title}" for {time} on {date}', 'Enter "{title}" at {time} on {date} in the calendar'),
        _day,
    ),
    Family(
        "event_show",
        "event_show",
        product(title=stuff.EVENTS),
        (
            'When is "{title}"? Show the event',
            'Open the calendar event "{title}"',
            'Look up "{title}" in the calendar',
            'Show the details of the event "{title}"',
            'On what day is "{title}"? Open it in the calendar',
            'Find my event "{title}" and open it',
        ),
        ('Look up the details of "{title}" in the calendar', 'What day is my "{title}"? Open it'),
    ),
    Family(
        "event_delete",
        "event_delete",
        product(title=stuff.EVENTS),
        (
            'Delete the event "{title}"',
            'Remove "{title}" from the calendar',
            'Cancel the event "{title}"',
            'Take "{title}" off my calendar',
            'Erase "{title}" from the calendar',
            '"{title}" is cancelled: delete the event',
        ),
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
        (
            'Move the event "{title}" to {date}',
            'Change the day of "{title}" to {date}',
            'Postpone the event "{title}" to {date}',
            '"{title}" takes place on {date} now: change the event',
            'Correct the day of "{title}": it is {date}',
            'Put my event "{title}" on {date} instead',
        ),
        ('Postpone "{title}" until {date}', '"{title}" is on {date} now: correct the calendar'),
        _day,
    ),
    Family(
        "day_show",
        "day_show",
        product(month=(6, 7, 8, 9), day=(5, 8, 12, 14, 19, 21, 26)),
        (
            "Show {date} in the calendar",
            "What is on my calendar for {date}?",
            "Open {date} in the calendar",
            "Look at my calendar for {date}",
            "Do I have anything on {date}? Show the calendar",
            "Go to {date} in the calendar",
        ),
        ("Open the calendar at {date}", "Am I free on {date}? Look in the calendar"),
        _day,
    ),
)
