"""How long the learner takes for an update of the quickstart's policy, and what makes it shorter.

Batches are of the quickstart's own episodes (the scripted expert's), 48 trajectories each, as in its runs.

Arms, each a process of its own, which take turns so that other load on the machine hits all of them
    plain      every step's picture goes through the picture stem, as if no two steps showed the same
    distinct   each distinct picture once, as the learner does
    allocator  the same with the allocator's settings of `distrl train`

Printed: seconds of CPU time per update, the ratio of `plain` to each arm (median over rounds, and its range),
and the peak memory of each process. `--cloning` times updates of behaviour cloning instead.

    python benchmarks/learner.py [--rounds 7] [--cloning]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ARMS = ("plain", "distinct", "allocator")
EPISODES = 200
BATCHES = 3
ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "quickstart.yaml"


def serve(arm: str, dataset: Path, is_cloning: bool) -> None:
    """One arm: for each line of standard input, updates on all batches; prints seconds per update."""
    import torch

    from distrl.configs.load import load_config
    from distrl.core.policies import build_critic, build_policy
    from distrl.core.policies.images import ImageCache
    from distrl.core.store import TrajectoryStore
    from distrl.evaluator.suites import vocabulary
    from distrl.learner.algorithms import build_algorithm
    from distrl.learner.batching import Batcher
    from distrl.learner.episodes import compile_episode
    from distrl.learner.train_step import TrainStep

    torch.set_num_threads(1)
    config = load_config(str(CONFIG))
    words = vocabulary(config.tasks, config.policy.kind)
    policy = build_policy(config.policy, words, 0)
    algorithm = build_algorithm(config.learner)
    engine = TrainStep(policy, build_critic(policy, 0), algorithm, config.learner)
    store = TrajectoryStore(dataset / "store.sqlite3")
    found = (compile_episode(one, policy) for one in store.iterate())
    episodes = [replace(one, success=float(n % 2)) for n, one in enumerate(e for e in found if e)]
    batcher = Batcher(policy, ImageCache(policy.image, store.images))
    size = config.learner.batch_trajectories
    batches = [batcher.trajectories(episodes[i * size : (i + 1) * size]) for i in range(BATCHES)]
    pictures = [batch.steps.prompts.images for batch in batches]
    if arm == "plain":
        for one in pictures:
            one.rows = [[picture.clone() for picture in row] for row in one.rows]
    steps = [len(batch.steps) for batch in batches]
    distinct = [len(one.distinct_on("cpu")[0]) for one in pictures]
    print(f"{arm}: batches of {steps} steps with {distinct} distinct pictures", flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        for batch in batches:
            if is_cloning:
                engine.clone(batch.steps)
            else:
                engine.update(batch)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print((time.process_time() - started) / BATCHES, peak, flush=True)


def start(arm: str, dataset: Path, is_cloning: bool) -> subprocess.Popen[str]:
    """The process of an arm, ready."""
    from distrl.cli.local.programs import ALLOCATOR

    environment = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
    environment |= {"OMP_NUM_THREADS": "1", **(ALLOCATOR if arm == "allocator" else {})}
    command = [sys.executable, __file__, "--arm", arm, "--dataset", str(dataset)]
    process = subprocess.Popen(
        [*command, *(["--cloning"] if is_cloning else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stdout is not None
    print(process.stdout.readline().strip())
    return process


def turn(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Seconds per update, and the peak memory so far in MiB."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    seconds, peak = process.stdout.readline().split()
    return float(seconds), float(peak)


def compare(dataset: Path, rounds: int, is_cloning: bool) -> None:
    """Lets the arms take turns, and prints the ratios."""
    processes = {arm: start(arm, dataset, is_cloning) for arm in ARMS}
    for process in processes.values():
        turn(process)  # warms up
    times: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm, process in processes.items():
            seconds, _ = turn(process)
            times[arm].append(seconds)
    for arm, process in processes.items():
        _, peak = turn(process)
        ratios = [plain / own for plain, own in zip(times["plain"], times[arm], strict=True)]
        print(
            f"{arm}: {statistics.median(times[arm]):.3f} s per update, plain / {arm} = "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), peak {peak:.0f} MiB"
        )
        process.communicate()


def main() -> None:
    """Collects episodes, then measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cloning", action="store_true", help="updates of behaviour cloning")
    parser.add_argument("--dataset", type=Path, help="a collection of `distrl collect`; else one is made")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.arm:
        serve(args.arm, args.dataset, args.cloning)
    elif args.dataset:
        compare(args.dataset, args.rounds, args.cloning)
    else:
        with tempfile.TemporaryDirectory() as directory:
            dataset = Path(directory) / "demonstrations"
            command = [sys.executable, "-m", "distrl", "collect", str(CONFIG), "--output", str(dataset)]
            subprocess.run([*command, "--episodes", str(EPISODES)], check=True, stdout=subprocess.DEVNULL)
            compare(dataset, args.rounds, args.cloning)


if __name__ == "__main__":
    main()
