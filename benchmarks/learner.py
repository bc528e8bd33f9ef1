"""How long an update of the learner takes, part by part, in CPU seconds of one thread; and what shortens it.

    hub      a small Qwen3-VL with random weights, LoRA and GRPO: four episodes of four steps, each one
             sequence, with screenshots of 1080x2400 (629 tokens); a pass has room for one sequence
    reader   the quickstart's policy and objective, on the scripted expert's episodes

Parts: `wait` for the batch, `first pass` without gradients, `forward`, `backward`, `step` of the optimisers,
`publish` after it, and the `rest` (losses, critic). The arms of `hub` take turns, each on new pictures:

    now           as the learner does
    two passes    as for an objective that is not separable
    no features   the vision tower looks at every picture in every pass
    late          pictures are decoded when their batch is drawn, not when they arrive
    before        all three

Printed: medians over the rounds, and the ratio of `before` to each arm (median, range over the rounds).

    python benchmarks/learner.py [--policies hub reader] [--rounds 5]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gpu
import torch

from distrl.configs.load import load_config
from distrl.core.errors import PolicyError
from distrl.core.policies import build_critic, build_policy, weights_io
from distrl.core.policies.images import ImageCache, Recent
from distrl.core.store import TrajectoryStore
from distrl.core.weights import describe
from distrl.evaluator.suites import vocabulary
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.grpo import Grpo
from distrl.learner.batching import Batcher, TrajectoryBatch
from distrl.learner.episodes import compile_episode
from distrl.learner.train_step import TrainStep

MODEL = "qwen3-vl-cpu"
gpu.SIZES[MODEL] = {
    "text": (256, 768, 4, 4, 2, 64),
    "vision": {**gpu.SMALL["vision"], "hidden_size": 128, "intermediate_size": 512, "out_hidden_size": 256},
}
LOAD = gpu.Load(trajectories=4, steps=4, prompt=50, answer=16, micro_batch=3000)
CHANGES = {"now": "", "two passes": "two", "no features": "tower", "late": "late", "before": "two tower late"}
PARTS = ("wait", "first pass", "forward", "backward", "step", "publish", "rest")


class TwoPasses(Grpo):
    is_separable = False


def update(engine: TrainStep, make: Callable[[], TrajectoryBatch]) -> Counter[str]:
    """CPU seconds of the parts of an update of the batch that `make` makes."""
    optimisers = (engine._policy_optimiser, engine._critic_optimiser)
    steps = [(one, name, lambda: "step") for one in optimisers for name in ("norm", "step")]
    backward = [(one, "backward", lambda: "backward") for one in optimisers]
    scoring = (engine.policy, "score", lambda: "forward" if torch.is_grad_enabled() else "first pass")
    with gpu.measured() as wait:
        batch = make()
    if isinstance(engine.algorithm, Grpo):  # what random weights would have said
        batch.steps.behaviour_logprobs.fill_(-math.log(gpu.VOCABULARY))
    with gpu.measured(scoring, *backward, *steps) as cost:
        assert engine.update(batch) is not None
    with gpu.measured() as publication:
        data = weights_io.to_bytes(engine.policy.published_state(), engine.policy.published_metadata())
        describe(1, data, engine.policy.published_kind())
    rest = cost.seconds - sum(cost.within.values())
    return Counter({**cost.within, "wait": wait.seconds, "publish": publication.seconds, "rest": rest})


def report(times: dict[str, list[Counter[str]]]) -> None:
    """The medians of the parts and the ratios of the whole, without the first round, which warms up."""
    times = {arm: rounds[1:] for arm, rounds in times.items()}
    print(f"{'':<12}" + "".join(f"{part:>11}" for part in (*PARTS, "sum")) + "   before / arm")
    sums = {arm: [sum(one.values()) for one in rounds] for arm, rounds in times.items()}
    first = list(sums.values())[-1]
    for arm, rounds in times.items():
        medians = [statistics.median(one[part] for one in rounds) for part in PARTS]
        ratios = [whole / own for whole, own in zip(first, sums[arm], strict=True)]
        cells = "".join(f"{value:>11.3f}" for value in (*medians, statistics.median(sums[arm])))
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{arm:<12}{cells}   {spread}")


def hub(rounds: int, directory: Path) -> None:
    bench: Any = gpu.Bench(MODEL, LOAD, directory, "cpu", (directory / "output").open("w"))
    engine, shots = bench.engine(bench.config()), bench._shots
    episodes = [bench.episode(number) for number in range(LOAD.trajectories)]
    pictures = {
        digest: shots[n] for e in episodes for n, digest in enumerate(e.steps[0].spans[0].sequence.images)
    }
    policy: Any = engine.policy
    features, own = policy._features, engine.algorithm
    times: dict[str, list[Counter[str]]] = {arm: [] for arm in CHANGES}
    for _ in range(rounds + 1):
        for arm, changes in CHANGES.items():
            cache = ImageCache(policy.image, lambda digests: {digest: pictures[digest] for digest in digests})
            if "late" not in changes:
                cache.get(list(pictures))
            features.kept = Recent(2**30, lambda kept: kept.nbytes)
            policy._features = None if "tower" in changes else features
            engine.algorithm = TwoPasses(own.config, engine._config) if "two" in changes else own

            times[arm].append(update(engine, partial(Batcher(policy, cache).trajectories, episodes)))
    report(times)


def reader(rounds: int, directory: Path) -> None:
    command = [sys.executable, "-m", "distrl", "collect", "quickstart", "--output", str(directory / "data")]
    subprocess.run([*command, "--episodes", "100"], check=True, stdout=subprocess.DEVNULL)
    config = load_config("quickstart")
    policy = build_policy(config.policy, vocabulary(config.tasks, config.policy.kind), 0)
    critic, algorithm = build_critic(policy, 0), build_algorithm(config.learner)
    engine = TrainStep(policy, critic, algorithm, config.learner)
    store = TrajectoryStore(directory / "data" / "store.sqlite3")
    episodes = []
    for one in store.iterate():
        with suppress(PolicyError):  # it shows random texts, which this policy cannot write
            episodes += [compile_episode(one, policy)]
    batcher, size = Batcher(policy, ImageCache(policy.image, store.images)), config.learner.batch_trajectories
    make = partial(batcher.trajectories, episodes[:size])
    report({"quickstart": [update(engine, make) for _ in range(rounds + 1)]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="+", choices=("hub", "reader"), default=["hub", "reader"])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    gpu.synchronise = time.process_time
    for name in arguments.policies:
        with tempfile.TemporaryDirectory() as directory:
            {"hub": hub, "reader": reader}[name](arguments.rounds, Path(directory))


if __name__ == "__main__":
    main()
