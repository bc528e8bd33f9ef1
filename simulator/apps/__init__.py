"""The phone's apps and their tasks: one module (or several) and one line below for each."""

from __future__ import annotations

from types import ModuleType

from distrl.simulator.apps import (
    browser,
    calculator,
    calendar,
    clock,
    clock_tasks,
    contacts,
    files,
    mail,
    market,
    messages,
    music,
    notes,
    settings,
    store,
    store_apps,
    store_tasks,
    weather,
)
from distrl.simulator.apps.base import App
from distrl.simulator.apps.webshop import tasks as webshop_tasks
from distrl.simulator.tasks.base import Template

_REGISTRY: tuple[tuple[App, tuple[ModuleType, ...]], ...] = (  # each app, and the modules that have its tasks
    (settings.APP, (settings,)),
    (clock.APP, (clock_tasks,)),
    (contacts.APP, (contacts,)),
    (messages.APP, (messages,)),
    (browser.APP, (browser, market, webshop_tasks)),
    (calculator.APP, (calculator,)),
    (notes.APP, (notes,)),
    (calendar.APP, (calendar,)),
    (files.APP, (files,)),
    (mail.APP, (mail,)),
    (music.APP, (music,)),
    (weather.APP, (weather,)),
    (store.APP, (store_tasks,)),
    *((app, ()) for app in store_apps.APPS),
)
APPS: dict[str, App] = {app.name: app for app, _ in _REGISTRY}
"""Every app by name; phones list and fill them in this order."""
TEMPLATES: dict[str, Template] = {}
"""Every template of their tasks by name."""
for _, _modules in _REGISTRY:
    for _module in _modules:
        TEMPLATES.update(_module.TEMPLATES)
BUILT_IN = tuple(name for name, app in APPS.items() if app.comes == "always")
"""The apps of a phone fresh from the box: on its home page, in every layout."""
EVERYDAY = (*BUILT_IN, *(name for name, app in APPS.items() if app.comes == "everyday"))
"""The apps of a phone in daily use."""
