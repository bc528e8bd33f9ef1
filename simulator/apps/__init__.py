"""The phone's apps; a new one is one module and one line in `APPS`. Which are installed, the state says."""

from __future__ import annotations

from distrl.simulator.apps import (
    browser,
    calculator,
    calendar,
    clock,
    contacts,
    extras,
    files,
    mail,
    messages,
    music,
    notes,
    settings,
    store,
    weather,
)
from distrl.simulator.apps.base import App

APPS: dict[str, App] = {
    app.name: app
    for app in (
        settings.APP,
        clock.APP,
        contacts.APP,
        messages.APP,
        browser.APP,
        calculator.APP,
        notes.APP,
        weather.APP,
        calendar.APP,
        files.APP,
        mail.APP,
        music.APP,
        store.APP,
        *extras.EXTRAS,
    )
}

"""Every app that there is, by name."""
BUILT_IN = ("settings", "clock", "contacts", "messages", "browser", "calculator", "notes", "weather")
"""The apps of a phone fresh from the box: on its home page, in every layout."""
