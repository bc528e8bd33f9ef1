"""Python and its packages, and the browser for environments that need one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata

from distrl.cli.health.finding import Finding, Need, bad, good
from distrl.core.errors import MissingDependency
from distrl.workers.envs.chromedriver import (
    BROWSER_NAMES,
    BROWSER_VARIABLE,
    DRIVER_NAMES,
    DRIVER_VARIABLE,
    find_program,
)

GROUPS: tuple[tuple[str, Need, str, tuple[str, ...]], ...] = (
    (
        "packages",
        Need.BASE,
        "distrl",
        ("typer", "rich", "pydantic", "pyyaml", "pyzmq", "msgpack", "numpy", "pillow", "adbutils"),
    ),
    (
        "training",
        Need.TRAINING,
        "distrl[train]",
        ("torch", "transformers", "tokenizers", "peft", "accelerate", "safetensors", "tensorboard"),
    ),
    ("reports", Need.NOTHING, "distrl[report]", ("matplotlib", "jinja2")),
    ("browser tasks", Need.BROWSER, "distrl[browser]", ("miniwob",)),
)


def look() -> Iterator[Finding]:
    """Findings about packages and programs in Python's reach."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield good("python", f"Python {version}.", Need.BASE)  # an older one could not even read this
    for about, need, extra, names in GROUPS:
        yield _packages(about, need, extra, names)
    yield _program("chromium", "the browser", BROWSER_VARIABLE, BROWSER_NAMES)
    yield _program("chromedriver", "the browser's driver", DRIVER_VARIABLE, DRIVER_NAMES)


def _packages(about: str, need: Need, extra: str, names: tuple[str, ...]) -> Finding:
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return bad(about, f"not installed: {', '.join(missing)}.", f'pip install "{extra}".', need)
    return good(about, f"{', '.join(found)}.", need)


def _program(about: str, what: str, variable: str, names: tuple[str, ...]) -> Finding:
    try:
        return good(about, f"{find_program(what, None, variable, names)}.", Need.BROWSER)
    except MissingDependency as error:
        return bad(about, error.message, error.remedy, Need.BROWSER)
