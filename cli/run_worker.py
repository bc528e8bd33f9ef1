"""`distrl run-worker`: collects trajectories on this machine's environments for a learner."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import (
    ConfigArgument,
    DryRunOption,
    NameOption,
    SetOption,
    WaitOption,
    check_name,
    load,
)

if TYPE_CHECKING:
    import threading

    from distrl.configs.judge import JudgeConfig
    from distrl.configs.schema import Config
    from distrl.core.rundir import RunLock
    from distrl.workers.client import LearnerLink
    from distrl.workers.judging import JudgingLink

GRACE_S = 5.0  # from the first signal to the end of the process, besides the end of its devices
FLUSH_S = 1.0  # for the last acks; what comes later stays in the spool
MAX_UNNAMED = 256  # workers without --name that share a spool directory
_log = logging.getLogger(__name__)

SlotsOption = Annotated[
    int | None, typer.Option("--slots", min=1, metavar="N", help="Environments; overrides worker.slots.")
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="SERIAL,…",
        help="Devices behind adb, or patterns such as 'emulator-*'; overrides devices.pool.",
    ),
]
SpoolOption = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="Where finished trajectories wait for the learner's ack. Default: RUNS_DIR/.spool/RUN.",
    ),
]


def run_worker(
    config: ConfigArgument,
    overrides: SetOption = None,
    slots: SlotsOption = None,
    name: NameOption = None,
    devices: DevicesOption = None,
    spool: SpoolOption = None,
    wait: WaitOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Collect trajectories for a learner, in as many environments as it has slots; with appo, train on them.

    It may start before the learner and the inference servers, and outlives their restarts. It stops at
    Ctrl-C, and when the learner says that the run is over. Trajectories that the learner has not taken yet
    stay in the spool; a worker of the same name delivers them.
    """
    from distrl.cli.health.run import check_installed
    from distrl.cli.run_kind import run_kind
    from distrl.core.logs import setup
    from distrl.core.process import install_signals

    more = [f"worker.slots={slots}"] if slots is not None else []
    more += [f"devices.pool={adb_pool(devices)}"] if devices is not None else []
    loaded = load(config, [*(overrides or []), *more], dry_run)
    check_installed(loaded, is_worker=True)
    run_kind(loaded).check_environment()
    setup(role=name or "worker")
    directory = spool or Path(loaded.runs_dir).expanduser() / ".spool" / loaded.name
    work(loaded, name, directory, install_signals(GRACE_S + loaded.devices.close_s), wait)


def adb_pool(serials: str) -> str:
    """`devices.pool` as YAML, of what --devices names."""
    names = [name.strip() for name in serials.split(",") if name.strip()]
    return json.dumps([{"kind": "adb", "serials": names}])


def work(
    config: Config, name: str | None, spool_dir: Path, stop: threading.Event, wait_s: float | None = None
) -> None:
    """Runs a worker until `stop` is set or the run is over.

    Args:
        config: The sections network, env, agent and worker are used.
        name: The worker's name; None picks the first of this host's that no other process uses.
        spool_dir: Where the spool is, one file per worker.
        stop: Ends it.
        wait_s: How long to wait for the learner; None for as long as it takes.

    Raises:
        LearnerUnreachable: No learner answered within `wait_s`.
        JudgeError: The judge cannot be asked.
        DistrlError: Anything else that a user can fix.
    """
    from distrl.cli.run_kind import run_kind

    with contextlib.ExitStack() as stack:
        run_kind(config).work(own_name(name, spool_dir, stack), spool_dir, stop, wait_s)


def collect_here(
    config: Config, name: str, spool_dir: Path, stop: threading.Event, wait_s: float | None
) -> None:
    """Runs a worker that collects trajectories. Arguments and errors as for `work`."""
    from distrl.core.security import load_security
    from distrl.core.sockets import Wire
    from distrl.workers.act_client import ActClient
    from distrl.workers.client import LearnerLink, wait_for_learner
    from distrl.workers.env_pool import open_env_pool
    from distrl.workers.judging import MAX_WAITING
    from distrl.workers.spool import Spool, left_behind
    from distrl.workers.worker import Worker

    network = config.network
    with contextlib.ExitStack() as stack:
        for other, count in left_behind(spool_dir, host_name()).items():
            _log.warning(
                "%d episodes of the worker %s wait in %s: run a worker with --name %s to deliver them",
                count, other, spool_dir, other,
            )  # fmt: skip
        spool = Spool(spool_dir / f"{name}.sqlite3")
        stack.callback(spool.close)
        judge_file = spool_dir / f"{name}.judge.sqlite3"
        wire = Wire(load_security(network.keys_path, network.key_name))
        name = wire.full_name(name)
        slots, judge = config.worker.slots, judge_of(config)
        link = LearnerLink(
            wire,
            network.control,
            network.broadcast,
            "worker",
            name,
            slots=slots,
            spool=spool,
            max_unacked=config.worker.max_unacked,
            max_unjudged=0 if judge is None else MAX_WAITING + slots,
        )

        def policy(slot: int) -> ActClient:
            return ActClient(
                wire,
                lambda: link.status.act_endpoints if link.status else (),
                stop.is_set,
                f"{name}/{slot}",
                config.worker.act_timeout_s,
            )

        judging = judging_link(config, link, judge_file)
        envs = open_env_pool(config, slots)
        stack.callback(envs.close)
        worker = Worker(config, judging or link, policy, name, stop, envs)
        # Slots that are left behind still use the sockets: then the end of the process closes them.
        stack.callback(lambda: wire.close() if worker.is_clear else None)
        link.start()
        stack.callback(link.close)
        if judging is not None:
            judging.start()
            stack.callback(judging.close)
        if wait_for_learner(link, "network.control", wait_s, stop):
            worker.run()
            link.flush(FLUSH_S)


def judge_of(config: Config) -> JudgeConfig | None:
    """The judge that rewards episodes; None if the environment does."""
    return config.judge if config.worker.rewards.source == "judge" else None


def judging_link(config: Config, link: LearnerLink, spool_file: Path) -> JudgingLink | None:
    """What has episodes judged on their way to the learner; None if the environment does that.

    Raises:
        ConfigError: The judge misses something, such as its key.
        JudgeError: Its files cannot be read.
        MissingDependency: It needs a package that is not installed.
    """
    from distrl.workers.judging import JudgingLink, load_judge
    from distrl.workers.spool import Spool

    settings = judge_of(config)
    if settings is None:
        return None
    judge = load_judge(settings)
    # A judge may still wait for its endpoint when the worker stops: the end of the process closes its spool.
    spool = Spool(spool_file)
    return JudgingLink(link, judge, settings, config.worker.rewards, spool)


def own_name(name: str | None, folder: Path, stack: contextlib.ExitStack) -> str:
    """The given name if it is valid, else the first free one of this host, held until `stack` ends.

    Raises:
        ConfigError: The given one is not valid.
        RunDirectoryError: As `claim_name`.
    """
    if name is not None:
        return check_name(name)
    name, claim = claim_name(folder)
    stack.enter_context(claim)
    return name


def claim_name(spool_dir: Path) -> tuple[str, RunLock]:
    """The first name HOST-0, HOST-1, … that no other process holds, and the lock that holds it.

    Restarted workers thus get the names, and the spools, of those before them.

    Raises:
        RunDirectoryError: The folder cannot be used, or all names are taken.
    """
    from distrl.core.errors import RunDirectoryError
    from distrl.core.rundir import RunLock

    try:
        spool_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(
            f"{spool_dir} cannot be made: {error}.", "Choose a --spool folder."
        ) from error
    for index in range(MAX_UNNAMED):
        name = f"{host_name()}-{index}"
        with contextlib.suppress(RunDirectoryError):
            return name, RunLock(spool_dir / f".{name}.lock", "worker")
    raise RunDirectoryError(f"{spool_dir} has no free worker name.", "Give one with --name.")


def host_name() -> str:
    """This host's, as a part of names."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "worker"
