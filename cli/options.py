"""What the commands share: their common options, and loading the configuration that they all take."""

from __future__ import annotations

import contextlib
import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distrl.configs.schema import Config

ConfigArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", help="A YAML file, a run directory, or the name of a preset such as quickstart."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a configuration key, e.g. worker.slots=4. Repeatable."
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the resolved configuration and exit."),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Continue the existing run directory, from its newest checkpoint if any."),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0.0,
        metavar="SECONDS",
        help="Longest wait for the learner or the policy. Default: no limit.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="This process's name in logs and metrics; must be unique in the run."
    ),
]
MetricsPortOption = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Serve this process's metrics to Prometheus, by default to this machine only; another HOST "
        "needs DISTRL_API_KEY. 0 means off.",
    ),
]


@contextlib.contextmanager
def metrics_port(address: str | None, role: str, run: str) -> Iterator[None]:
    """Serves the metrics of this process at `address`, as long as the block lasts; None or 0: nowhere.

    Arguments and errors are those of `distrl.core.prometheus.serving`.
    """
    if address in (None, "0"):
        yield
        return
    from distrl.core.prometheus import serving
    from distrl.learner.peers import COUNTERS

    with serving(str(address), api_key(), role, run, COUNTERS[role]) as url:
        typer.echo(f"Metrics: {url}", err=True)
        yield


def api_key() -> str | None:
    """What clients of an HTTP endpoint must know, if anything."""
    return os.environ.get("DISTRL_API_KEY") or None


GRACE_S = 5.0  # from the first signal to the end of the process, besides the end of its devices


def load(config: str, overrides: list[str] | None = None, dry_run: bool = False) -> Config:
    """The checked configuration; with `dry_run` it is printed and the command ends."""
    from distrl.configs.load import load_config
    from distrl.configs.section import CUSTOM
    from distrl.core.importing import check_kind
    from distrl.workers.agents import AGENTS
    from distrl.workers.envs import ENVS

    loaded = load_config(config, overrides or [])
    if loaded.learner.algorithm.kind != "appo":
        for key, section, known in (("env", loaded.env, ENVS), ("agent", loaded.agent, AGENTS)):
            if section.import_path is None:
                check_kind(known, section.kind, f"{key}.kind")
    if dry_run:
        # Built-in objectives check their keys themselves; a worker's machine has no torch.
        if loaded.learner.algorithm.kind == CUSTOM and find_spec("torch"):
            from distrl.learner.algorithms import build_algorithm

            build_algorithm(loaded.learner)
        typer.echo(loaded.to_yaml(), nl=False)
        raise typer.Exit
    return loaded


def check_name(name: str) -> str:
    """Returns `name` if it can name a process; else raises ConfigError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"--name {name!r} is not a valid name.", "Use letters, digits, dots, hyphens and underscores."
        )
    return name


def check_folder(directory: Path) -> None:
    """Raises OSError, before long work, if `directory` cannot be made; leaves nothing behind."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


MAX_SEEDS = 10_000


def seeds_of(seeds: str | None) -> list[int] | None:
    """Seeds as "0,1,2" or "0-4"; ConfigError for anything else."""
    if seeds is None:
        return None
    found: list[int] = []
    for part in seeds.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or int(high or low) < int(low):
            raise ConfigError(f"--seeds {seeds!r} is not a list of seeds.", "Write 0,1,2 or 0-4.")
        if int(high or low) - int(low) >= MAX_SEEDS:
            raise ConfigError(f"--seeds {seeds!r} are more than {MAX_SEEDS}.", "Write 0,1,2 or 0-4.")
        found += range(int(low), int(high or low) + 1)
    return found
