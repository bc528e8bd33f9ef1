"""`distrl serve-inference`: answers workers' act requests, with the learner's newest weights."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import (
    GRACE_S,
    ConfigArgument,
    DryRunOption,
    MetricsPortOption,
    NameOption,
    SetOption,
    WaitOption,
    api_key,
    check_name,
    load,
    metrics_port,
)
from distrl.cli.run_worker import host_name

if TYPE_CHECKING:
    import threading

    from distrl.configs.schema import Config
    from distrl.workers.inference.server import InferenceServer

_log = logging.getLogger(__name__)

CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Serve this checkpoint, or a run's newest, without a learner."
    ),
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="[HOST:]PORT",
        help="Also serve chat completions over HTTP, by default to this machine only; another HOST needs "
        "DISTRL_API_KEY.",
    ),
]


def serve_inference(
    config: ConfigArgument,
    overrides: SetOption = None,
    checkpoint: CheckpointOption = None,
    name: NameOption = None,
    http: HttpOption = None,
    wait: WaitOption = None,
    metrics: MetricsPortOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Serve the policy to workers, in dynamic batches.

    It takes its weights from the learner and swaps them between two batches; it may start before the learner
    and outlives its restarts. Several servers of one run share the work. It stops at Ctrl-C, and when the
    learner says that the run is over. With --checkpoint it needs no learner. With --http other agents and
    tools can use the policy too, by OpenAI's API.
    """
    from distrl.cli.health.run import check_devices, check_models
    from distrl.core.http_address import listen
    from distrl.core.logs import setup
    from distrl.core.process import install_signals

    loaded = load(config, overrides, dry_run)
    setup(role=name or "inference")
    check_devices(loaded, ["policy"])
    check_models(loaded)
    if http is not None:
        listen("--http", http, api_key())[1].close()  # now, because a model may take minutes to load
    with metrics_port(metrics, "inference", loaded.name):
        _log.info("loading torch and the policy")
        serve(loaded, name, checkpoint, install_signals(GRACE_S), http, wait)


def serve(
    config: Config,
    name: str | None,
    checkpoint: Path | None,
    stop: threading.Event,
    http: str | None = None,
    wait_s: float | None = None,
) -> None:
    """Serves until `stop` is set or the run is over.

    A `checkpoint` is served without a learner; `http` is PORT or HOST:PORT of the endpoint for others. The
    server waits `wait_s` for the learner; None for as long as it takes.
    """
    from distrl.cli.run_kind import require_gui
    from distrl.core.prometheus import show
    from distrl.core.security import SERVER, load_security
    from distrl.core.sockets import Wire
    from distrl.evaluator.measure import find_checkpoint
    from distrl.evaluator.suites import vocabulary
    from distrl.workers.client import wait_for_learner
    from distrl.workers.inference.serve import run_until_stopped, serve_beside_learner, serve_checkpoint

    require_gui(config, "serve-inference")
    name = check_name(name) if name is not None else f"{host_name()}-{os.getpid()}"
    show(dict, name)  # there are no numbers before the policy is loaded
    network = config.network
    policy_dir = find_checkpoint(checkpoint.expanduser()) / "policy" if checkpoint is not None else None
    words = vocabulary(config.tasks, config.policy.kind)
    key_name = SERVER if policy_dir is not None else network.key_name
    with Wire(load_security(network.keys_path, key_name)) as wire:
        if policy_dir is not None:
            with (
                serve_checkpoint(config, words, policy_dir, wire, network.act) as server,
                _http(config, server, http, policy_dir.parent),
            ):
                show(server.snapshot, name)
                typer.echo(f"Serving {policy_dir.parent} at {server.endpoint}", err=True)
                run_until_stopped(server, None, stop)
            return
        with serve_beside_learner(config, words, name, wire) as (server, link), _http(config, server, http):
            show(server.snapshot, name)
            if wait_for_learner(link, "network.control", wait_s, stop):
                run_until_stopped(server, link, stop)


@contextlib.contextmanager
def _http(
    config: Config, server: InferenceServer, address: str | None, checkpoint: Path | None = None
) -> Iterator[None]:
    """The endpoint for other agents and tools, as long as the block lasts."""
    if address is None:
        yield
        return
    from distrl.workers.inference.http_server import HttpEndpoint

    model, limit = config.policy.title, config.learner.max_new_tokens
    shown = str(checkpoint) if checkpoint is not None else None
    with contextlib.closing(HttpEndpoint(server, address, model, limit, api_key(), shown)) as endpoint:
        typer.echo(f"Serving {model} at {endpoint.url}", err=True)
        yield
