"""The arms of `appo.py`: what each run's process is called with, and where its outcome is read from.

    main thread ── starts, polls ──► one run (a Child: own session, output in ARM/seed-S.log)

One run at a time. Each has a deadline; a run that is stopped or fails leaves no result.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from appo_runs import Outcome, Run, Settings, read_distrl

from distrl.configs.load import load_config
from distrl.core.process import Child, stop_all

HERE = Path(__file__).resolve().parent
PRESETS = {
    "LunarLanderContinuous-v3": "appo-lunarlander",
    "Hopper-v5": "appo-hopper",
    "HalfCheetah-v5": "appo-halfcheetah",
}
ENDLESS = 10**12
SPARE_S = 900.0
"""For start-up, an iteration under way and the final evaluation; a run that takes longer is ended."""
PATIENCE_S = 15.0
"""How long a run may take to stop when it is told to."""
TICK_S = 0.2
TAIL_LINES = 8

# One thread a process: the networks are small, and the processes fill the cores. No GPU for anybody.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore::DeprecationWarning",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class RunFailed(Exception):
    """A run ended without an outcome; its text says how."""


@dataclass(frozen=True)
class Arm:
    """A way to train.

    Attributes:
        name: In the table, and of its directory.
        is_ours: Whether it is distrl.
        command: Settings and an empty scratch directory to the program and its arguments.
        read: Settings and that directory to the outcome, after the program has ended.
    """

    name: str
    is_ours: bool
    command: Callable[[Settings, Path], list[str]]
    read: Callable[[Path], Outcome]


@dataclass(frozen=True)
class Peer:
    """Another library: its arm, its program here, the module that it needs and how that is installed."""

    arm: str
    program: str
    module: str
    requirement: str

    def is_missing(self) -> bool:
        """Whether its library is not installed."""
        return importlib.util.find_spec(self.module) is None


PEERS = {
    "sb3": Peer("sb3-ppo", "appo_sb3.py", "stable_baselines3", "stable-baselines3"),
    "rllib": Peer("rllib-appo", "appo_rllib.py", "ray", '"ray[rllib]"'),
}


def distrl_arm(workers: int, overrides: Sequence[str] = ()) -> Arm:
    """`distrl train` of the environment's preset with that many workers.

    The preset's environments and the transitions of a round are divided among the workers. Only time ends its
    runs, as it does the others', unless the learning rate falls with `max_env_steps`.
    """

    def command(settings: Settings, scratch: Path) -> list[str]:
        config = load_config(PRESETS[settings.env], overrides)
        appo = config.learner.appo
        keys = [
            f"worker.slots={config.worker.slots // workers}",
            f"learner.appo.num_steps={appo.num_steps // workers}",
            *([f"learner.appo.max_env_steps={ENDLESS}"] if appo.final_lr_fraction == 1.0 else []),
            *overrides,
            "name=run",
            f"runs_dir={scratch}",
            f"seed={settings.seed}",
            f"local.workers={workers}",
            f"learner.max_minutes={settings.minutes}",
            "learner.keep_best=false",  # of the others, too, the newest weights are the result
            f"learner.appo.stop_at_return={json.dumps(settings.stop_at)}",
            f"learner.appo.eval_every={settings.eval_every}",
        ]
        sets = [argument for key in keys for argument in ("--set", key)]
        return [sys.executable, "-m", "distrl", "train", PRESETS[settings.env], *sets]

    versions = {name: version(name) for name in ("distrl", "torch", "gymnasium")}
    return Arm(f"distrl-{workers}", True, command, lambda scratch: read_distrl(scratch / "run", versions))


def peer_arm(peer: Peer) -> Arm:
    """A peer's program."""

    def command(settings: Settings, scratch: Path) -> list[str]:
        asked = ["--settings", json.dumps(asdict(settings)), "--output", str(scratch / "outcome.json")]
        return [sys.executable, str(HERE / peer.program), *asked]

    def read(scratch: Path) -> Outcome:
        return Outcome.from_json(json.loads((scratch / "outcome.json").read_text(encoding="utf-8")))

    return Arm(peer.arm, False, command, read)


def make_run(arm: Arm, settings: Settings, directory: Path, stop: threading.Event) -> Run | None:
    """Makes a run in `directory`, from its beginning.

    Returns:
        The run; None if it was stopped.

    Raises:
        RunFailed: It ended with an error, without an outcome, or not in time.
    """
    scratch, log = directory / f"seed-{settings.seed}", directory / f"seed-{settings.seed}.log"
    shutil.rmtree(scratch, ignore_errors=True)
    log.unlink(missing_ok=True)
    scratch.mkdir(parents=True)
    launched_at, limit_s = time.time(), 60 * settings.minutes + SPARE_S
    with _running(Child(arm.name, arm.command(settings, scratch), log, ENVIRONMENT)) as child:
        deadline = time.monotonic() + limit_s
        while child.poll() is None:
            if time.monotonic() > deadline:
                raise RunFailed(f"it did not end within {limit_s:.0f} s\n{_tail(log)}")
            if stop.wait(TICK_S):
                return None
    if child.poll() != 0:
        raise RunFailed(f"exit code {child.poll()}\n{_tail(log)}")
    try:
        outcome = arm.read(scratch)
    except FileNotFoundError as error:
        raise RunFailed(f"it left no outcome: {error}\n{_tail(log)}") from error
    return Run(arm.name, settings, launched_at, outcome)


@contextmanager
def _running(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        stop_all([(child, PATIENCE_S)])


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])
