"""APPO with worker gradients beside other libraries: time to solve LunarLanderContinuous-v3.

Arms
    distrl-1, -2, -4    `distrl train` of the preset, with that many workers
    sb3-ppo             stable-baselines3's PPO with the hyperparameters of rl-baselines3-zoo (appo_peer.py)
    rllib-appo          RLlib's APPO on its new API stack (appo_peer.py)

All have the same cores and no GPU, and stop by one rule. Every `learner.algorithm.eval_every` environment
steps of our preset the greedy policy is validated; where that mean (or the mean of the last 100 training
episodes) is at 200, it is confirmed over 100 greedy episodes of fresh seeds, and if that mean is at 200 as
well, the run is over. (Ours validates on its workers, beside training; the peers between two iterations.) The
time to solve runs from the start of training to the confirmed weights, evaluations before them included. A
run without a solution ends after `--minutes`. The final return is measured after the end, over 100 greedy
episodes of seeds that decided nothing.

Runs are made one after another, seed by seed, each in processes of its own, and kept as ARM/seed-S.json; the
same command continues. An interrupted run is repeated from its start.

    pip install -c constraints.txt -e ".[train,gym,report]" stable-baselines3 "ray[rllib]"
    python benchmarks/appo_peers.py
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
from distrl.core.errors import DistrlError, RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.process import Child, install_signals, stop_all
from distrl.core.rundir import RunDir
from distrl.evaluator.experiment_results import COLOURS, LINE, Mean, finish, median_time, new_figure
from distrl.evaluator.report.metrics import LEARNER_CLOCK, RunMetrics
from distrl.evaluator.results import RESULTS_FILE

ENV, PRESET = "LunarLanderContinuous-v3", "appo-lunarlander"
SOLVED_AT, WORKERS = 200.0, (1, 2, 4)
SPARE_S = 900.0
"""For start-up, an iteration under way and the final evaluation; a run that takes longer is ended."""
PATIENCE_S = 15.0
"""How long a run may take to stop after the signal."""
TICK_S, TAIL_LINES, ENDLESS = 0.2, 8, 10**12
FAILED, STOPPED = 11, 130
HERE = Path(__file__).resolve().parent

# One thread a process: the networks are small, and the processes fill the cores.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore::DeprecationWarning",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True)
class Settings:
    """The settings of a run, kept with its result, so that different runs are never mixed.

    Attributes:
        env: Gymnasium's id of the environment.
        seed: Of environments, parameters and sampling.
        minutes: The longest time of training, evaluation included.
        stop_at: The mean return over 100 greedy episodes that ends it earlier.
        eval_every: Environment steps between validations.
        eval_episodes: Greedy episodes of a validation.
        cores: That the run may use.
    """

    env: str
    seed: int
    minutes: float
    stop_at: float
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
    """The result of a run.

    Attributes:
        started_at: Unix time at which training began.
        elapsed_s, env_steps: Where it ended.
        solved_s: From the start of training to the weights that were then confirmed; None without a solution.
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
        """From the plain data that `dataclasses.asdict` makes of an outcome."""
        curves = {name: tuple(Point(**point) for point in data[name]) for name in ("training", "validation")}
        return cls(**{**data, **curves})


def save(file: Path, settings: Settings, outcome: Outcome) -> None:
    """Writes a finished run; `load` reads it."""
    data = {"settings": asdict(settings), "outcome": asdict(outcome)}
    write_atomically(file, json.dumps(data) + "\n")


def load(file: Path, settings: Settings) -> Outcome | None:
    """The finished run in `file`; None if there is none.

    Raises:
        RunDirectoryError: It was made with other settings.
    """
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    keys = [key for key, value in asdict(settings).items() if data["settings"][key] != value]
    if keys:
        raise RunDirectoryError(
            f"{file} was made with another {', '.join(keys)}.", "Choose another place with --runs-dir."
        )
    return Outcome.from_json(data["outcome"])


@dataclass(frozen=True)
class Arm:
    """A way to train.

    Attributes:
        name: In the table, and of its directory.
        command: Settings and an empty scratch directory to the program and its arguments.
        read: That directory to the outcome, after the program has ended.
        module, requirement: The module that it needs, and the requirement that pip installs.
    """

    name: str
    command: Callable[[Settings, Path], list[str]]
    read: Callable[[Path], Outcome]
    module: str = "distrl"
    requirement: str = ""


def distrl_arm(workers: int) -> Arm:
    """`distrl train` of the preset, whose environments and transitions of a round the workers divide."""

    def command(settings: Settings, scratch: Path) -> list[str]:
        config = load_config(PRESET)
        keys = [
            f"worker.slots={config.worker.slots // workers}",
            f"learner.algorithm.num_steps={config.learner.appo.num_steps // workers}",
            f"learner.algorithm.max_env_steps={ENDLESS}",  # only time ends a run, as with the peers
            "name=run",
            f"runs_dir={scratch}",
            f"seed={settings.seed}",
            f"local.workers={workers}",
            f"learner.max_minutes={settings.minutes}",
            "learner.keep_best=false",  # of the others, too, the newest weights are the result
            f"learner.algorithm.stop_at_return={settings.stop_at}",
        ]
        sets = [argument for key in keys for argument in ("--set", key)]
        return [sys.executable, "-m", "distrl", "train", PRESET, *sets]

    return Arm(f"distrl-{workers}", command, lambda scratch: read_distrl(scratch / "run"))


def read_distrl(directory: Path) -> Outcome:
    """The outcome of a finished `distrl train`, from its metrics.jsonl and its last evaluation."""
    run = RunDir(directory)
    metrics = RunMetrics.read(run.metrics)
    clock = next(row for row in metrics.rows if LEARNER_CLOCK in row and "time" in row)
    last = max(run.evaluations.glob(f"*/{RESULTS_FILE}"), key=lambda file: file.stat().st_mtime)
    final = json.loads(last.read_text(encoding="utf-8"))
    return Outcome(
        started_at=clock["time"] - clock[LEARNER_CLOCK],
        elapsed_s=metrics.last(LEARNER_CLOCK) or 0.0,
        env_steps=metrics.last("env_steps") or 0.0,
        solved_s=metrics.last("solved/elapsed_s"),
        solved_steps=metrics.last("solved/env_steps"),
        final_return=float(final["mean"]),
        training=_curve(metrics, LEARNER_CLOCK, "env_steps", ["train/return"]),
        validation=_curve(metrics, "eval/elapsed_s", "eval/env_steps", ["eval/return", "eval/confirmation"]),
        versions={name: version(name) for name in ("distrl", "torch", "gymnasium")},
    )


def _curve(metrics: RunMetrics, clock: str, steps: str, names: Sequence[str]) -> tuple[Point, ...]:
    """The rows that have one of `names`, each with the row's own clock and steps."""
    return tuple(
        Point(row[clock], row[steps], row[name])
        for row in metrics.rows
        for name in names
        if {clock, steps, name} <= row.keys()
    )


def peer_arm(library: str, name: str, module: str, requirement: str) -> Arm:
    """Another library, which `appo_peer.py` runs."""

    def command(settings: Settings, scratch: Path) -> list[str]:
        asked = ["--settings", json.dumps(asdict(settings)), "--output", str(scratch / "outcome.json")]
        return [sys.executable, str(HERE / "appo_peer.py"), library, *asked]

    def read(scratch: Path) -> Outcome:
        return Outcome.from_json(json.loads((scratch / "outcome.json").read_text(encoding="utf-8")))

    return Arm(name, command, read, module, requirement)


ARMS = (
    *map(distrl_arm, WORKERS),
    peer_arm("sb3", "sb3-ppo", "stable_baselines3", "stable-baselines3"),
    peer_arm("rllib", "rllib-appo", "ray", '"ray[rllib]"'),
)


class RunFailed(Exception):
    """A run ended without an outcome; its text has the last lines of the log."""


def make_run(arm: Arm, settings: Settings, directory: Path, stop: threading.Event) -> Outcome | None:
    """Makes a run in `directory`, from its beginning; None if it was stopped.

    Raises:
        RunFailed: It ended with an error, or not in time.
    """
    scratch, log = directory / f"seed-{settings.seed}", directory / f"seed-{settings.seed}.log"
    shutil.rmtree(scratch, ignore_errors=True)
    log.unlink(missing_ok=True)
    scratch.mkdir(parents=True)
    deadline = time.monotonic() + 60 * settings.minutes + SPARE_S
    with _running(Child(arm.name, arm.command(settings, scratch), log, ENVIRONMENT)) as child:
        while child.poll() is None and time.monotonic() < deadline:
            if stop.wait(TICK_S):
                return None
        code = child.poll()
    if code != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        end = "it did not end in time" if code is None else f"exit code {code}"
        raise RunFailed("\n    ".join([end, *lines]))
    return arm.read(scratch)


@contextmanager
def _running(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        stop_all([(child, PATIENCE_S)])


@dataclass(frozen=True)
class ArmNumbers:
    """An arm over its finished runs.

    Attributes:
        num_runs, num_solved: How many of them, and how many of those found a solution.
        median_s: The median time to the solution, where a run without one counts as slower than all others;
            None if the median is such a run.
        solved_s, solved_steps: Seconds and environment steps to the solution, over the runs that have one.
        final_return: Over 100 greedy episodes after the end, over all runs.
        steps_per_s: Environment steps a second of training.
    """

    name: str
    num_runs: int
    num_solved: int
    median_s: float | None
    solved_s: Mean | None
    solved_steps: Mean | None
    final_return: Mean | None
    steps_per_s: Mean | None


def summarise(name: str, outcomes: Sequence[Outcome]) -> ArmNumbers:
    """The numbers of an arm."""
    times = [outcome.solved_s for outcome in outcomes]
    return ArmNumbers(
        name=name,
        num_runs=len(outcomes),
        num_solved=sum(solved_s is not None for solved_s in times),
        median_s=median_time(times),
        solved_s=Mean.of(times),
        solved_steps=Mean.of([outcome.solved_steps for outcome in outcomes]),
        final_return=Mean.of([outcome.final_return for outcome in outcomes]),
        steps_per_s=Mean.of([outcome.env_steps / outcome.elapsed_s for outcome in outcomes]),
    )


def table(arms: Sequence[ArmNumbers]) -> str:
    """A row for each arm: means with 95% t-intervals over seeds."""
    titles = ("solved", "median s", "mean s, of solved", "steps, of solved", "final return", "steps/s")
    rows = [("", *titles)]
    for arm in arms:
        median = "—" if arm.median_s is None else f"{arm.median_s:.1f}"
        means = map(_mean, (arm.solved_s, arm.solved_steps, arm.final_return, arm.steps_per_s))
        rows.append((arm.name, f"{arm.num_solved}/{arm.num_runs}", median, *means))
    return "\n".join(f"{row[0]:<12}" + "".join(f"{cell:>20}" for cell in row[1:]) for row in rows)


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return "—"
    return f"{mean.value:,.0f}" + ("" if mean.half is None else f" ± {mean.half:,.0f}")


def draw(file: Path, runs: Mapping[str, Sequence[Outcome]]) -> None:
    """Writes the picture: each run's greedy validations over time and environment steps, a dot at the last.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (name, outcomes) in enumerate(runs.items()):
        colour, label = COLOURS[place % len(COLOURS)], f"{name} (n = {len(outcomes)})"
        for curve in filter(None, (outcome.validation for outcome in outcomes)):
            ys = [point.mean_return for point in curve]
            for axis, xs in (
                (left, [point.elapsed_s / 60 for point in curve]),
                (right, [point.env_steps / 1e6 for point in curve]),
            ):
                axis.plot(xs, ys, color=colour, lw=1.0, alpha=0.7, label=label)
                axis.plot(xs[-1], ys[-1], "o", color=colour, ms=4)
            label = "_nolegend_"
    left.set(xlabel="minutes of training", ylabel="mean return of greedy episodes")
    right.set(xlabel="million environment steps")
    for axis in (left, right):
        axis.grid(axis="y", color=LINE, lw=0.8)
        axis.axhline(SOLVED_AT, color=COLOURS[-1], lw=0.8, ls=":")
    if runs:
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    finish(figure, file, ENV)


def make_runs(runs_dir: Path, settings: Sequence[Settings], stop: threading.Event) -> list[str]:
    """Makes the missing runs, seed by seed; ends the process when `stop` is set. Returns the failures."""
    failures = []
    arms = [arm for arm in ARMS if importlib.util.find_spec(arm.module) is not None]
    for arm in ARMS:
        if arm not in arms:
            print(f"{arm.name} is left out; for it, pip install -c constraints.txt {arm.requirement}")
    for asked in settings:
        for arm in arms:
            file, title = runs_dir / arm.name / f"seed-{asked.seed}.json", f"{arm.name} seed {asked.seed}"
            if load(file, asked) is not None:
                continue
            print(f"{title} ...", flush=True)
            try:
                outcome = make_run(arm, asked, file.parent, stop)
            except (RunFailed, DistrlError) as error:
                failures.append(f"{title} failed: {error}")
                print(failures[-1], flush=True)
                continue
            if outcome is None:
                print("Stopped. The same command continues.")
                sys.exit(STOPPED)
            save(file, asked, outcome)
            end = "not solved" if outcome.solved_s is None else f"solved in {outcome.solved_s:.0f} s"
            print(f"{title}: {end}, final return {outcome.final_return:.1f}", flush=True)
    return failures


def main() -> None:
    """Makes the runs, prints the numbers, draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-4", help="0,1,2 or 0-4")
    parser.add_argument("--minutes", type=float, default=10.0, help="of training, at most")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/appo-peers"), help="keeps all runs")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--plot", type=Path, default=HERE.parent / "docs/images/appo-lunarlander.png")
    args = parser.parse_args()
    learner, cores = load_config(PRESET).learner, len(os.sched_getaffinity(0))
    every, episodes = learner.appo.eval_every, learner.eval_episodes
    settings = [
        Settings(ENV, seed, args.minutes, SOLVED_AT, every, episodes, cores)
        for seed in seeds_of(args.seeds) or ()
    ]
    failures = [] if args.report_only else make_runs(args.runs_dir, settings, install_signals())
    runs: dict[str, list[Outcome]] = {}
    for arm in ARMS:
        for asked in settings:
            if (found := load(args.runs_dir / arm.name / f"seed-{asked.seed}.json", asked)) is not None:
                runs.setdefault(arm.name, []).append(found)
    print(f"\n{ENV}\n" + table([summarise(name, outcomes) for name, outcomes in runs.items()]))
    for name, outcomes in runs.items():
        versions = outcomes[-1].versions.items()
        print(f"{name}: " + ", ".join(f"{package} {number}" for package, number in versions))
    draw(args.plot, runs)
    print(f"plot: {args.plot}")
    if failures:
        print("\n" + "\n".join(failures))
        sys.exit(FAILED)


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        sys.exit(str(error))
