"""APPO with worker gradients beside other libraries: time to solve LunarLander, or curves of return.

Arms
    distrl-1, -2, -4    `distrl train` of the preset, with that many workers
    sb3-ppo             stable-baselines3's PPO with the hyperparameters of rl-baselines3-zoo (appo_peer.py)
    rllib-appo          RLlib's APPO on its new API stack (appo_peer.py)

All have the same cores, by affinity, and no GPU. On LunarLanderContinuous-v3 all stop by one rule. Every
`learner.algorithm.eval_every` environment steps of our preset the greedy policy is validated; where that mean
(or the mean of the last 100 training episodes) is at 200, it is confirmed over 100 greedy episodes of fresh
seeds, and if that mean is at 200 as well, the run is over. (Ours validates on its workers, beside training;
the peers between two iterations.) The time to solve is that of the confirmed
weights, evaluations before them included: from the start of training, and from the start of the process. A
run without a solution ends after `--minutes`. The final return is measured after the end, over 100 greedy
episodes of seeds that decided nothing.

Elsewhere nothing is solved: every run has `--minutes` (ours fewer, if the preset's `max_env_steps` are made
before, over which its learning rate falls), and the curves of return are compared.

Runs are made one after another, seed by seed, each in processes of its own, and kept as ARM/seed-S.json: the
same command goes on. An interrupted run is made again: a time to solve with a break in it is none.

    pip install -c constraints.txt -e ".[train,gym,report]" stable-baselines3 "ray[rllib]"
    python benchmarks/appo_peers.py
    python benchmarks/appo_peers.py --env Hopper-v5 --minutes 15
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distrl.cli.options import seeds_of
from distrl.configs.load import load_config
from distrl.core.errors import DistrlError, MissingDependency, RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.process import Child, install_signals, stop_all
from distrl.core.rundir import RunDir
from distrl.evaluator.experiment_results import (
    COLOURS,
    LINE,
    Mean,
    draw_mean,
    finish,
    mean_curve,
    median_time,
    new_figure,
)
from distrl.evaluator.report.metrics import LEARNER_CLOCK, RunMetrics
from distrl.evaluator.results import RESULTS_FILE

SOLVED_S, SOLVED_STEPS = "solved/elapsed_s", "solved/env_steps"
TRAIN_RETURN, ENV_STEPS = "train/return", "env_steps"
EVAL_RETURN, EVAL_CONFIRMATION = "eval/return", "eval/confirmation"
EVAL_CLOCK, EVAL_STEPS = "eval/elapsed_s", "eval/env_steps"


@dataclass(frozen=True)
class Settings:
    """What a run is to do; kept with its result, so that unlike runs are never mixed.

    Attributes:
        env: Gymnasium's id of the environment.
        seed: Of environments, parameters and sampling.
        minutes: Of training, evaluation included; then the run ends.
        stop_at: The mean return over 100 greedy episodes at which it ends before; None for never.
        eval_every: Environment steps between validations; 0 for none.
        eval_episodes: Greedy episodes of a validation.
        cores: That the run may use.
    """

    env: str
    seed: int
    minutes: float
    stop_at: float | None
    eval_every: int
    eval_episodes: int
    cores: int


@dataclass(frozen=True)
class Point:
    """A point of a curve: seconds since training began, environment steps, mean return."""

    elapsed_s: float
    env_steps: float
    mean_return: float


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        started_at: Unix time at which training began.
        elapsed_s, env_steps: Where it ended.
        solved_s: From there to the weights that were then found to be a solution; None if there were none.
        solved_steps: Environment steps made then.
        final_return: Mean over 100 greedy episodes after the end, on seeds that decided nothing.
        training: The mean return of the last 100 training episodes.
        validation: The mean return of greedy episodes, confirmations included, at the weights measured.
        versions: Of the packages that made it.
    """

    started_at: float
    elapsed_s: float
    env_steps: float
    solved_s: float | None
    solved_steps: float | None
    final_return: float
    training: tuple[Point, ...]
    validation: tuple[Point, ...]
    versions: Mapping[str, str]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """What `dataclasses.asdict` made of an outcome."""
        curves = {name: tuple(Point(**point) for point in data[name]) for name in ("training", "validation")}
        return cls(**{**data, **curves})


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        arm: Its name in the table.
        launched_at: Unix time at which its process was started.
    """

    arm: str
    settings: Settings
    launched_at: float
    outcome: Outcome

    @property
    def startup_s(self) -> float:
        """From the start of the process to the start of training."""
        return self.outcome.started_at - self.launched_at

    @property
    def solved_from_launch_s(self) -> float | None:
        """From the start of the process to the solution."""
        return None if self.outcome.solved_s is None else self.startup_s + self.outcome.solved_s

    def save(self, file: Path) -> None:
        """Writes the run; `load_run` reads it."""
        write_atomically(file, json.dumps(asdict(self)) + "\n")


def load_run(file: Path, settings: Settings) -> Run | None:
    """The finished run in `file`; None if there is none.

    Raises:
        RunDirectoryError: If it is there with other settings.
    """
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    found = Settings(**data["settings"])
    if found != settings:
        keys = [key for key, value in asdict(settings).items() if asdict(found)[key] != value]
        raise RunDirectoryError(
            f"{file} was made with another {', '.join(keys)}.", "Choose another place with --runs-dir."
        )
    return Run(data["arm"], found, data["launched_at"], Outcome.from_json(data["outcome"]))


def read_distrl(directory: Path, versions: Mapping[str, str]) -> Outcome:
    """What a finished `distrl train` came to, from its metrics.jsonl and its last evaluation.

    Raises:
        RunDirectoryError: If it has no learner's clock or no evaluation.
    """
    run = RunDir(directory)
    metrics = RunMetrics.read(run.metrics)
    clock = next((row for row in metrics.rows if LEARNER_CLOCK in row and "time" in row), None)
    evaluations = sorted(run.evaluations.glob(f"*/{RESULTS_FILE}"), key=lambda file: file.stat().st_mtime)
    if clock is None or not evaluations:
        missing = f"{run.metrics} has no {LEARNER_CLOCK}" if clock is None else "no checkpoint was evaluated"
        raise RunDirectoryError(f"{directory} is no finished run: {missing}.", "Read the log beside it.")
    final = json.loads(evaluations[-1].read_text(encoding="utf-8"))
    return Outcome(
        started_at=clock["time"] - clock[LEARNER_CLOCK],
        elapsed_s=metrics.last(LEARNER_CLOCK) or 0.0,
        env_steps=metrics.last(ENV_STEPS) or 0.0,
        solved_s=metrics.last(SOLVED_S),
        solved_steps=metrics.last(SOLVED_STEPS),
        final_return=float(final["mean"]),
        training=_curve(metrics, LEARNER_CLOCK, ENV_STEPS, [TRAIN_RETURN]),
        validation=_curve(metrics, EVAL_CLOCK, EVAL_STEPS, [EVAL_RETURN, EVAL_CONFIRMATION]),
        versions=versions,
    )


def _curve(metrics: RunMetrics, clock: str, steps: str, names: Sequence[str]) -> tuple[Point, ...]:
    """The rows that have one of `names`, each with the row's own clock and steps."""
    return tuple(
        Point(row[clock], row[steps], row[name])
        for row in metrics.rows
        for name in names
        if {clock, steps, name} <= row.keys()
    )


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
"""How long a run may take to stop after the signal."""
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
    """Another library: its name for `appo_peer.py`, its arm, its module, and how that is installed."""

    name: str
    arm: str
    module: str
    requirement: str

    def is_missing(self) -> bool:
        """Whether its library is not installed."""
        return importlib.util.find_spec(self.module) is None


PEERS = {
    "sb3": Peer("sb3", "sb3-ppo", "stable_baselines3", "stable-baselines3"),
    "rllib": Peer("rllib", "rllib-appo", "ray", '"ray[rllib]"'),
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
            f"learner.algorithm.num_steps={appo.num_steps // workers}",
            *([f"learner.algorithm.max_env_steps={ENDLESS}"] if appo.final_lr_fraction == 1.0 else []),
            *overrides,
            "name=run",
            f"runs_dir={scratch}",
            f"seed={settings.seed}",
            f"local.workers={workers}",
            f"learner.max_minutes={settings.minutes}",
            "learner.keep_best=false",  # of the others, too, the newest weights are the result
            f"learner.algorithm.stop_at_return={json.dumps(settings.stop_at)}",
            f"learner.algorithm.eval_every={settings.eval_every}",
        ]
        sets = [argument for key in keys for argument in ("--set", key)]
        return [sys.executable, "-m", "distrl", "train", PRESETS[settings.env], *sets]

    versions = {name: version(name) for name in ("distrl", "torch", "gymnasium")}
    return Arm(f"distrl-{workers}", True, command, lambda scratch: read_distrl(scratch / "run", versions))


def peer_arm(peer: Peer) -> Arm:
    """A peer's program."""

    def command(settings: Settings, scratch: Path) -> list[str]:
        asked = ["--settings", json.dumps(asdict(settings)), "--output", str(scratch / "outcome.json")]
        return [sys.executable, str(HERE / "appo_peer.py"), peer.name, *asked]

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


NEVER = "—"


@dataclass(frozen=True)
class ArmNumbers:
    """An arm over its finished runs.

    Attributes:
        num_runs, num_solved: How many of them, and how many of those found a solution.
        median_s: The median time to the solution from the start of training, a run without one counting as
            slower than all others; None if the median is such a run.
        median_from_launch_s: The same from the start of the process.
        solved_s, solved_steps: Seconds and environment steps to the solution, over the runs that have one.
        startup_s: From the start of the process to the start of training.
        final_return: Over 100 greedy episodes after the end, over all runs.
        steps_per_s: Environment steps a second of training.
    """

    name: str
    num_runs: int
    num_solved: int
    median_s: float | None
    median_from_launch_s: float | None
    solved_s: Mean | None
    solved_steps: Mean | None
    startup_s: Mean | None
    final_return: Mean | None
    steps_per_s: Mean | None


def summarise(name: str, runs: Sequence[Run]) -> ArmNumbers:
    """The numbers of an arm."""
    outcomes = [run.outcome for run in runs]
    return ArmNumbers(
        name=name,
        num_runs=len(runs),
        num_solved=sum(outcome.solved_s is not None for outcome in outcomes),
        median_s=median_time([outcome.solved_s for outcome in outcomes]),
        median_from_launch_s=median_time([run.solved_from_launch_s for run in runs]),
        solved_s=Mean.of([outcome.solved_s for outcome in outcomes]),
        solved_steps=Mean.of([outcome.solved_steps for outcome in outcomes]),
        startup_s=Mean.of([run.startup_s for run in runs]),
        final_return=Mean.of([outcome.final_return for outcome in outcomes]),
        steps_per_s=Mean.of([outcome.env_steps / outcome.elapsed_s for outcome in outcomes]),
    )


Column = tuple[str, int, Callable[[ArmNumbers], str]]
"""Its title, its width, and an arm's cell."""


def table(arms: Sequence[ArmNumbers], has_solution: bool) -> str:
    """A row per arm: means with 95% t-intervals over seeds.

    Args:
        arms: In the order of the rows.
        has_solution: Whether runs stop at a solution; else its columns are left out.
    """
    solution: list[Column] = [
        ("solved", 9, lambda arm: f"{arm.num_solved}/{arm.num_runs}"),
        ("median s", 10, lambda arm: _seconds(arm.median_s)),
        ("from launch", 13, lambda arm: _seconds(arm.median_from_launch_s)),
        ("mean s, of solved", 20, lambda arm: _mean(arm.solved_s)),
        ("steps, of solved", 22, lambda arm: _mean(arm.solved_steps)),
    ]
    columns: list[Column] = [
        ("runs", 6, lambda arm: str(arm.num_runs)),
        *(solution if has_solution else []),
        ("final return", 18, lambda arm: _mean(arm.final_return, 1)),
        ("steps/s", 14, lambda arm: _mean(arm.steps_per_s)),
        ("start-up s", 14, lambda arm: _mean(arm.startup_s, 1)),
    ]
    lines = [f"{'':<14}" + "".join(f"{title:>{width}}" for title, width, _ in columns)]
    lines += [
        f"{arm.name:<14}" + "".join(f"{cell(arm):>{width}}" for _, width, cell in columns) for arm in arms
    ]
    return "\n".join(lines)


def ratios(ours: Sequence[ArmNumbers], peer: ArmNumbers) -> str:
    """A line: our median time to the solution as a share of the peer's, from training and from launch."""
    cells = []
    for arm in ours:
        training = _ratio(arm.median_s, peer.median_s)
        launch = _ratio(arm.median_from_launch_s, peer.median_from_launch_s)
        cells.append(f"{arm.name} {training} ({launch} from launch)")
    return f"median time to solve, of {peer.name}'s: " + ", ".join(cells)


def _ratio(ours: float | None, theirs: float | None) -> str:
    if ours is None:
        return "never"
    return "peer never" if theirs is None else f"{ours / theirs:.2f}"


def _seconds(value: float | None) -> str:
    return NEVER if value is None else f"{value:.1f}"


def _mean(mean: Mean | None, digits: int = 0) -> str:
    if mean is None:
        return NEVER
    half = "" if mean.half is None else f" ± {mean.half:,.{digits}f}"
    return f"{mean.value:,.{digits}f}{half}"


def draw(file: Path, runs: Mapping[str, Sequence[Run]], title: str, stop_at: float | None) -> None:
    """Writes the picture: mean return over time, and over environment steps.

    Of runs that stop at a solution, each run's greedy validations, with a dot at the last; of others the mean
    over seeds of their training episodes' returns, with its 95% interval.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (name, of_arm) in enumerate(runs.items()):
        colour, label = COLOURS[place % len(COLOURS)], f"{name} (n = {len(of_arm)})"
        outcomes = [run.outcome for run in of_arm]
        curves = [out.training if stop_at is None else out.validation for out in outcomes]
        paint = _draw_mean if stop_at is None else _draw_each
        paint(left, [[(p.elapsed_s / 60, p.mean_return) for p in curve] for curve in curves], colour, label)
        paint(right, [[(p.env_steps / 1e6, p.mean_return) for p in curve] for curve in curves], colour, label)
    measured = "of the last 100 training episodes" if stop_at is None else "of greedy episodes"
    left.set(xlabel="minutes of training", ylabel=f"mean return {measured}")
    right.set(xlabel="million environment steps")
    for axis in (left, right):
        axis.grid(axis="y", color=LINE, lw=0.8)
        if stop_at is not None:
            axis.axhline(stop_at, color=COLOURS[-1], lw=0.8, ls=":")
    if any(runs.values()):
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    finish(figure, file, title)


def _draw_each(axis: Any, curves: Sequence[Sequence[tuple[float, float]]], colour: str, label: str) -> None:
    for curve in filter(None, curves):
        xs, ys = zip(*curve, strict=True)
        axis.plot(xs, ys, color=colour, lw=1.0, alpha=0.7, label=label)
        axis.plot(xs[-1], ys[-1], "o", color=colour, ms=4)
        label = "_nolegend_"


def _draw_mean(axis: Any, curves: Sequence[Sequence[tuple[float, float]]], colour: str, label: str) -> None:
    draw_mean(axis, mean_curve(curves), colour, label)


SOLVED_AT = {"LunarLanderContinuous-v3": 200.0}
MINUTES = 10.0
FAILED, STOPPED = 11, 130


def counts(text: str) -> list[int]:
    """Numbers of workers as "1,2,4"; "none" for none."""
    return [] if text == "none" else [int(number) for number in text.split(",")]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", choices=list(PRESETS), default=next(iter(PRESETS)))
    parser.add_argument("--seeds", default="0-4", help="0,1,2 or 0-4")
    parser.add_argument(
        "--workers", default="1,2,4", type=counts, help="an arm of ours for each number; or none"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help=f"{', '.join(PEERS)}; or none")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of training, at most")
    parser.add_argument("--cores", type=int, help="that each run may use; by default all")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for our arms")
    parser.add_argument("--runs-dir", type=Path, help="where everything is kept; by default runs/appo-ENV")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--plot", type=Path, help="by default docs/images/appo-ENV.png")
    args = parser.parse_args(arguments)
    args.runs_dir = args.runs_dir or Path("runs") / f"appo-{args.env}"
    args.plot = args.plot or Path("docs/images") / f"{PRESETS[args.env]}.png"
    args.seeds = seeds_of(args.seeds)
    args.peers = [] if args.peers == "none" else args.peers.split(",")
    if unknown := set(args.peers) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    return args


def chosen_arms(args: argparse.Namespace) -> list[Arm]:
    """The arms asked for. A peer that is not installed is named and left out."""
    arms = [distrl_arm(number, args.set) for number in args.workers]
    for peer in (PEERS[name] for name in args.peers):
        if peer.is_missing() and not args.report_only:
            print(f"{peer.arm} is left out; for it, pip install -c constraints.txt {peer.requirement}")
        else:
            arms.append(peer_arm(peer))
    return arms


def claim_cores(number: int | None) -> int:
    """Confines this process, and with it all that it starts, to that many cores. Returns how many it has."""
    available = sorted(os.sched_getaffinity(0))
    chosen = available[: number or len(available)]
    if number is not None and len(chosen) < number:
        sys.exit(f"--cores {number}: this process may use {len(available)}.")
    os.sched_setaffinity(0, chosen)
    return len(chosen)


def wanted(args: argparse.Namespace, seed: int, cores: int) -> Settings:
    """What all arms are asked for with a seed. Peers are validated as often as our preset says."""
    learner, is_stopped = load_config(PRESETS[args.env], args.set).learner, args.env in SOLVED_AT
    return Settings(
        env=args.env,
        seed=seed,
        minutes=args.minutes,
        stop_at=SOLVED_AT.get(args.env),
        eval_every=learner.algorithm.eval_every if is_stopped else 0,
        eval_episodes=learner.eval_episodes if is_stopped else 0,
        cores=cores,
    )


def make_runs(
    args: argparse.Namespace, arms: Sequence[Arm], settings: Sequence[Settings], stop: threading.Event
) -> list[str]:
    """Makes the runs that are not there yet, seed by seed. Ends the process when `stop` is set.

    Returns:
        What became of those that failed.
    """
    failures = []
    for asked in settings:
        for arm in arms:
            directory, title = args.runs_dir / arm.name, f"{arm.name} seed {asked.seed}"
            file = directory / f"seed-{asked.seed}.json"
            if load_run(file, asked) is not None:
                continue
            print(f"{title} ...", flush=True)
            try:
                run = make_run(arm, asked, directory, stop)
            except (RunFailed, DistrlError) as error:
                failures.append(f"{title} failed: {error}")
                print(failures[-1], flush=True)
                continue
            if run is None:
                print("Stopped. The same command goes on.")
                sys.exit(STOPPED)
            run.save(file)
            print(f"{title}: {described(run)}", flush=True)
    return failures


def described(run: Run) -> str:
    """A run in a line."""
    solved = run.outcome.solved_s
    end = f"{run.outcome.elapsed_s:.0f} s" if solved is None else f"solved in {solved:.0f} s"
    return f"{end}, {run.outcome.env_steps:,.0f} steps, final return {run.outcome.final_return:.1f}"


def report(args: argparse.Namespace, arms: Sequence[Arm], runs: Mapping[str, Sequence[Run]]) -> None:
    """Prints the table and the ratios, and draws the picture."""
    stop_at = SOLVED_AT.get(args.env)
    numbers = {arm.name: summarise(arm.name, runs[arm.name]) for arm in arms if runs[arm.name]}
    print(f"\n{args.env}\n" + table(list(numbers.values()), stop_at is not None))
    ours = [numbers[arm.name] for arm in arms if arm.is_ours and arm.name in numbers]
    theirs = [numbers[arm.name] for arm in arms if not arm.is_ours and arm.name in numbers]
    if stop_at is not None and ours:
        print("\n".join(["", *(ratios(ours, peer) for peer in theirs)]))
    for name in numbers:
        versions = runs[name][-1].outcome.versions
        print(f"{name}: " + ", ".join(f"{package} {number}" for package, number in versions.items()))
    try:
        draw(args.plot, {name: runs[name] for name in numbers}, args.env, stop_at)
    except MissingDependency as error:
        print(f"no plot: {error}")
    else:
        print(f"\nplot: {args.plot}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the runs, prints the numbers, draws the picture."""
    args = parse(arguments)
    cores = claim_cores(args.cores)
    settings = [wanted(args, seed, cores) for seed in args.seeds]
    arms = chosen_arms(args)
    failures = [] if args.report_only else make_runs(args, arms, settings, install_signals())
    runs = {
        arm.name: [
            run
            for asked in settings
            if (run := load_run(args.runs_dir / arm.name / f"seed-{asked.seed}.json", asked)) is not None
        ]
        for arm in arms
    }
    report(args, arms, runs)
    if failures:
        print("\n" + "\n".join(failures))
        sys.exit(FAILED)


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        sys.exit(str(error))
