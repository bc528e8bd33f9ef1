"""The phone's apps; a new one is one module and one line in `APPS`."""

from __future__ import annotations

from distrl.workers.simphone.apps import (
    browser,
    calculator,
    clock,
    contacts,
    messages,
    notes,
    settings,
    weather,
)
from distrl.workers.simphone.apps.base import App

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
    )
}
