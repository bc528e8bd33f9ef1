"""`distrl doctor`: checks this machine for emulators, phones, browsers and training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import SetOption, load
from distrl.core.errors import ConfigError, DistrlError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrl.cli.health.machine import Finding
    from distrl.configs.schema import Config


class Unfit(DistrlError):
    """Something that is needed is missing."""


def doctor(
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="CONFIG", help="Check what this configuration needs."),
    ] = None,
    is_worker: Annotated[
        bool, typer.Option("--worker", help="This machine only runs workers: no training, no policy.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    estimate: Annotated[
        str | None,
        typer.Option(
            "--estimate",
            metavar="CONFIG",
            help="Estimate instead what this configuration costs, process by process.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="With --estimate: for this GPU, e.g. H100, or cpu."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", min=1, metavar="N", help="With --estimate: for this number of GPUs."),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Check this machine: each line is ok, warn or fail, with a remedy.

    Missing requirements fail, with exit status 1; the rest only warns. Required are the packages that every
    process needs, and with --config what that run needs. Nothing is started or changed, not even an adb
    server.
    """
    if estimate is not None and (config is not None or is_worker):
        raise ConfigError("--estimate excludes --config and --worker.", "Remove one of them.")
    given = config or estimate
    if given is None and overrides:
        raise ConfigError("--set changes a configuration.", "Name it with --config or --estimate.")
    for option, value in (("--gpu", gpu), ("--gpus", gpus)):
        if value is not None and estimate is None:
            raise ConfigError(f"{option} {value} is for estimates.", "Add --estimate CONFIG, or remove it.")
    loaded = load(given, overrides) if given is not None else None
    if loaded is not None and estimate is not None:
        _estimate(loaded, gpu, gpus, as_json)
        return
    from distrl.cli.health.run import needs as needs_of

    needs = needs_of(loaded, is_worker)
    failures = 0
    for finding in _look(loaded, is_worker):
        level = finding.level(needs)
        failures += level == "fail"
        remedy = f" {finding.remedy}" if level != "ok" else ""
        line = f"{level:<5} {finding.about:<14} {finding.said}{remedy}"
        fields = {"about": finding.about, "level": level, "said": finding.said, "remedy": finding.remedy}
        typer.echo(json.dumps(fields, ensure_ascii=False) if as_json else line)
    if failures:
        raise Unfit(f"{failures} of these must be fixed first.", "See the lines that begin with fail.")


def _estimate(config: Config, gpu: str | None, gpus: int | None, as_json: bool) -> None:
    from dataclasses import asdict
    from importlib.util import find_spec

    from distrl.cli.health import estimate, machine
    from distrl.cli.local.gpus import visible
    from distrl.cli.local.plan import Planner, can_plan
    from distrl.cli.run_kind import require_gui
    from distrl.evaluator.suites import load_tasks

    require_gui(config, "doctor --estimate")
    if gpu not in (None, "cpu") and estimate.known_gpu(gpu) is None:
        raise ConfigError(
            f"--gpu {gpu!r} is not a GPU with known speed and memory.",
            f"Use one of {', '.join(estimate.PEAKS)}, or cpu.",
        )
    name, memory = machine.first_gpu() if gpu is None else (None if gpu == "cpu" else gpu, None)
    steps = max(task.max_steps for task in load_tasks(config.tasks))
    where, planned = estimate.hardware(name, config.learner.threads, memory), list[estimate.Line]()
    if gpus is not None and not where.is_gpu:
        raise ConfigError(f"--gpus {gpus}: this estimate is for a CPU.", "Name a GPU with --gpu.")
    has_verdict = True  # whether all have room on one GPU
    shape = estimate.shape_of(config)
    if where.is_gpu and can_plan(config):
        is_here = gpu is None  # elsewhere vLLM may be installed
        num_gpus = gpus or (len(visible()) if is_here else 1)
        has_vllm = not is_here or find_spec("vllm") is not None
        found = Planner(config, where, num_gpus, steps, has_vllm, shape).plan()
        config, planned = found.config, found.lines()
        has_verdict = found.is_shared
    lines = estimate.estimate(config, where, steps, estimate.screen_of(config), shape)
    for line in [*(one for one in lines if has_verdict or one.process != "verdict"), *planned]:
        typer.echo(json.dumps(asdict(line)) if as_json else estimate.as_text(line))


def _look(config: Config | None, is_worker: bool) -> Iterator[Finding]:
    from distrl.cli.health import android, machine, run
    from distrl.cli.health.machine import Need
    from distrl.configs.devices import DevicesConfig
    from distrl.workers.devices.avd import AvdStore

    yield from machine.packages(run.browser_of(config))
    if config is not None:
        yield from run.look(config, is_worker)
    yield machine.gpu()
    yield android.kvm()
    members = [part for part in config.devices.pool if part.kind == "avd"] if config else []
    sdk, findings = android.sdk(next((Path(part.sdk) for part in members if part.sdk), None))
    yield from findings
    for part in members:
        store = AvdStore(Path(part.avd_home).expanduser() if part.avd_home else None)
        yield from android.wanted_avd(store, part.avd, part.snapshot)
    yield from android.adb_programs(sdk)
    devices = config.devices if config else DevicesConfig()
    named = [one for part in devices.pool if part.kind in ("adb", "phone") for one in part.serials]
    serials = [serial for serial in named if not set(serial) & set("*?[")]
    yield from android.adb_server(devices.server_port(), serials)
    yield machine.disk(Path(config.runs_dir if config else "runs"), Need.RUN)
    yield machine.disk(AvdStore().home)
    if config is not None and not is_worker:
        bound = ("control", "broadcast", "weights")
        yield from machine.addresses({f"network.{key}": getattr(config.network, key) for key in bound})
