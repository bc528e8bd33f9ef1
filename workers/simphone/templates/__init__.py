"""The task templates by name. A new one: a line in its module's `TEMPLATES`; a new module: one here."""

from __future__ import annotations

from distrl.workers.simphone.templates import basics, install
from distrl.workers.simphone.templates.base import Template

TEMPLATES: dict[str, Template] = {**basics.TEMPLATES, **install.TEMPLATES}
"""Every template by name."""
