"""The task templates by name. A new one: a line in its module's `TEMPLATES`; a new module: one here."""

from __future__ import annotations

from distrl.simulator.tasks import (
    basics,
    calendar,
    clock,
    daily,
    extra,
    install,
    notes,
    people,
    settings,
    webshop,
)
from distrl.simulator.tasks.base import Template

TEMPLATES: dict[str, Template] = {
    **basics.TEMPLATES,
    **clock.TEMPLATES,
    **calendar.TEMPLATES,
    **settings.TEMPLATES,
    **people.TEMPLATES,
    **notes.TEMPLATES,
    **daily.TEMPLATES,
    **extra.TEMPLATES,
    **install.TEMPLATES,
    **webshop.TEMPLATES,
}
"""Every template by name."""
