"""HTML pages from templates. All values are escaped.

A page loads nothing. Its only script is templates/explorer.js, whose hash is in its content security policy.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from distrl import __version__
from distrl.core.errors import MissingDependency
from distrl.core.files import write_atomically
from distrl.core.types import Outcome
from distrl.evaluator.report.episodes import OUTCOME_WORDS
from distrl.evaluator.statistics import Summary

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = "explorer.js"


def render(template: str, title: str, kind: str, **values: object) -> str:
    """A complete HTML document.

    Args:
        kind: What kind of page it is, e.g. "run report".
        values: The template's values. Text is escaped.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    environment = _environment()
    created = time.strftime("%Y-%m-%d %H:%M")
    script = (TEMPLATES / SCRIPT).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    html: str = environment.get_template(template).render(
        title=title,
        kind=kind,
        version=__version__,
        created=created,
        script=script,
        script_hash=f"sha256-{digest}",
        **values,
    )
    return html


def write_files(
    directory: Path, template: str, name: str, report: object, data: Mapping[str, object]
) -> Path:
    """Writes report.json and report.html, in whose template `r` is the report, into `directory`.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    write_atomically(directory / "report.json", json.dumps(data, indent=2))
    page = directory / "report.html"
    write_atomically(page, render(template, f"{name} · distrl", "report", r=report))
    return page


def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependency(
            "HTML pages need the package jinja2.", "Install the extra: pip install 'distrl[report]'."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        share=lambda value: f"{100 * value:.2f}",
        percent=percent,
        rate=rate,
        points=lambda value: f"{100 * value:+.0f}".replace("-", "−"),
        signed=lambda value: f"{value:+.3g}".replace("-", "−"),
        probability=lambda value: f"= {value:.2f}" if value >= 0.005 else "< 0.01",
        decimal=lambda value: f"{value:.2f}".replace("-", "−"),
        power=lambda value: f"{value:.2g}".replace("-", "−"),
        duration=duration,
        outcome=lambda name: OUTCOME_WORDS[Outcome(name)],
    )
    return environment


def percent(value: float) -> str:
    """A share as a whole percentage; 99.6% does not become 100%, and 99.97% is ">99.9"."""
    whole = round(100 * value)
    if whole not in (0, 100) or math.isclose(100 * value, whole, abs_tol=1e-9):
        return str(whole)
    exact = f"{100 * value:.1f}"
    return {"100.0": ">99.9", "0.0": "<0.1"}.get(exact, exact)


def rate(summary: Summary, sign: bool = True) -> str:
    """A success rate, such as "94%"; "–" when nothing was counted."""
    return f"{percent(summary.success_rate)}{'%' if sign else ''}" if summary.episodes else "–"


def duration(seconds: float) -> str:
    """A time span for people: 40 ms, 3.2 s, 4 min 5 s, 2 h 10 min."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if seconds < 600:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
