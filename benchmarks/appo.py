"""APPO with worker gradients beside other libraries: time to solve LunarLander, or curves of return.

Arms
    distrl-1, -2, -4    `distrl train` of the preset, with that many workers
    sb3-ppo             stable-baselines3's PPO with the hyperparameters of rl-baselines3-zoo (appo_sb3.py)
    rllib-appo          RLlib's APPO on its new API stack (appo_rllib.py)

All have the same cores, by affinity, and no GPU. On LunarLanderContinuous-v3 all stop by one rule. Every
`learner.appo.eval_every` environment steps of our preset the greedy policy is validated; where that mean (or
the mean of the last 100 training episodes) is at 200, it is confirmed over 100 greedy episodes of fresh
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
    python benchmarks/appo.py
    python benchmarks/appo.py --env Hopper-v5 --minutes 15
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from appo_arms import PEERS, PRESETS, Arm, RunFailed, distrl_arm, make_run, peer_arm
from appo_report import draw, ratios, summarise, table
from appo_runs import Run, Settings, load_run

from distrl.cli.options import seeds_of
from distrl.configs.load import load_config
from distrl.core.errors import DistrlError, MissingDependency
from distrl.core.process import install_signals

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
    """The arms asked for. A peer that is not installed is told and left out."""
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
        eval_every=learner.appo.eval_every if is_stopped else 0,
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
