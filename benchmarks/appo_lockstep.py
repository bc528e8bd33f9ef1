"""How stable APPO with several workers is, by environment steps, beside stable-baselines3's PPO.

The real `Master` and `AppoWorker`s take turns in one process. Each worker collects with the weights at the
end of its own last round, W − 1 versions behind, and trains weights (W − 1) // 2 versions behind, as if both
took half of its time. Results depend on the seed, not on the load or the cores of the machine.
`appo_peers.py` measures wall time.

All arms use the settings of one preset. W workers divide `num_steps` and `worker.slots` among them. PPO of
stable-baselines3 has the same settings, but no bound on the KL. A mean return is that of the last 100
training episodes.

    python benchmarks/appo_lockstep.py --set learner.algorithm.final_lr_fraction=1 --output lockstep
    python benchmarks/appo_lockstep.py --preset appo-lunarlander --env LunarLanderContinuous-v3 \
        --threshold 200 --output lockstep

Finished runs in `--output` are not repeated; `--report-only` prints their table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from distrl.appo.envs import make_env, space_of
from distrl.appo.master import Master
from distrl.appo.policy import GaussianPolicy, PolicySpec
from distrl.appo.worker import AppoWorker, Stopped
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.files import write_atomically
from distrl.core.messages import Gradient, Measured, WeightInfo, WorkUnit
from distrl.core.sockets import Blob
from distrl.core.weights import Buffer

Episodes = list[tuple[int, float]]
"""Environment steps of the run when an episode was counted, and its return."""

PEER = "sb3"
WINDOW, GRID = 100, 2048


@dataclass(frozen=True)
class Job:
    """One run: an arm is a number of workers, 0 for stable-baselines3."""

    env: str
    preset: str
    overrides: tuple[str, ...]
    steps: int
    workers: int
    seed: int

    @property
    def arm(self) -> str:
        """Its name in the table."""
        return f"{self.workers} worker{'s' * (self.workers > 1)}" if self.workers else PEER

    def file(self, folder: Path) -> Path:
        """Where its result is kept."""
        return folder / f"{self.env}-{self.arm.replace(' ', '-')}-seed{self.seed}.json"

    def config(self) -> Config:
        """The preset, with the work of a round divided among the workers."""
        whole = load_config(self.preset, self.overrides)
        num = max(1, self.workers)
        return load_config(
            self.preset,
            [
                *self.overrides,
                f"env.options.id={self.env}",
                f"seed={self.seed}",
                f"worker.slots={max(1, whole.worker.slots // num)}",
                f"learner.algorithm.num_steps={whole.learner.appo.num_steps // num}",
                f"learner.algorithm.max_env_steps={self.steps}",
                "learner.algorithm.eval_every=0",
                "learner.algorithm.stop_at_return=null",
            ],
        )


class Shelf:
    """Published weights by digest: as many versions as there are workers, and one."""

    def __init__(self, num: int) -> None:
        self._num, self._data = num, dict[str, bytearray]()

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Keeps a copy."""
        self._data[info.digest] = bytearray(data)
        while len(self._data) > self._num:
            del self._data[next(iter(self._data))]

    offer_weights = publish_weights

    def fetch(self, info: WeightInfo) -> memoryview:
        """The bytes of a version."""
        return memoryview(self._data[info.digest])


class Seat:
    """A worker's end of the master: one unit for each turn.

    Attributes:
        newest: The weights that the unit is trained from.
    """

    def __init__(self, name: str, master: Master, shelf: Shelf, episodes: Episodes) -> None:
        self._name, self._master, self._episodes = name, master, episodes
        self.fetch = shelf.fetch
        self.take()

    def take(self) -> None:
        """Takes the unit of the next turn, with the weights that are the newest now."""
        self._unit = self.newest = self._master.work(self._name)

    def renew(self) -> None:
        """The round that it has collected is trained from the weights that are the newest now."""
        if self._unit is not None:
            self.newest = self._master.work(self._name, self._unit.id)

    def work(self, collected: str | None = None) -> WorkUnit:
        """The unit of this turn, first as it was taken, then renewed. Raises Stopped when it is done."""
        unit = self.newest if collected is not None else self._unit
        if collected is None:
            self._unit = None
        if unit is None:
            raise Stopped
        return unit

    def send(self, message: Gradient | Measured, blobs: list[Blob]) -> None:
        """Delivers a round."""
        assert isinstance(message, Gradient)  # nothing is measured: eval_every is 0
        self._master.take_gradient(message, [bytes(blob) for blob in blobs])
        steps = self._master.progress.env_steps
        self._episodes += [(steps, episode.total) for episode in message.episodes]


def train(job: Job) -> Episodes:
    """Workers take turns until all steps are made."""
    config, episodes = job.config(), Episodes()
    spec = PolicySpec.of(config, space_of(config.env.options).sizes)
    policy, shelf = GaussianPolicy(spec, job.seed), Shelf(job.workers + 1)
    with tempfile.TemporaryDirectory() as folder:
        master = Master(config, policy, shelf, Path(folder) / "version", clock=lambda: 0.0)
        master.start()
        names = [f"w{i}" for i in range(job.workers)]
        seats = [Seat(name, master, shelf, episodes) for name in names]
        workers = [
            AppoWorker(config, name, seat, lambda: False) for name, seat in zip(names, seats, strict=True)
        ]
        lag = (job.workers - 1) // 2
        while not master.is_over():
            for turn, (worker, seat) in enumerate(zip(workers, seats, strict=True)):
                seats[(turn + lag) % job.workers].renew()
                worker.run()
                seat.take()
    return episodes


def train_peer(job: Job) -> Episodes:
    """PPO of stable-baselines3 with the preset's numbers, normalised by VecNormalize."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    config, episodes = job.config(), Episodes()
    appo, net, slots = config.learner.appo, config.gaussian, config.worker.slots

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            episodes.extend((self.num_timesteps, float(total)) for total in ended)
            return True

    # By its id, make_vec_env would ask for pictures, with which Box2D takes several times as long.
    env = make_vec_env(lambda: make_env(config.env.options), n_envs=slots, seed=job.seed)
    model = PPO(
        "MlpPolicy",
        VecNormalize(env, gamma=appo.gamma),
        seed=job.seed,
        device="cpu",
        n_steps=appo.num_steps // slots,
        batch_size=appo.minibatch_size,
        n_epochs=appo.epochs,
        gamma=appo.gamma,
        gae_lambda=appo.lam,
        ent_coef=appo.entropy,
        vf_coef=appo.value_weight,
        learning_rate=lambda left: (
            appo.local_lr * (appo.final_lr_fraction + (1 - appo.final_lr_fraction) * left)
        ),
        clip_range=appo.clip,
        max_grad_norm=appo.grad_clip,
        policy_kwargs={
            "net_arch": list(net.hidden),
            "activation_fn": {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[net.activation],
            "log_std_init": net.log_std,
        },
    )
    model.learn(job.steps, callback=Note())
    return episodes


def run(job: Job, folder: Path) -> None:
    """Trains in this process and keeps the result."""
    torch.set_num_threads(1)
    began = time.process_time()
    episodes = train(job) if job.workers else train_peer(job)
    cpu_s = time.process_time() - began
    print(f"{job.env}, {job.arm}, seed {job.seed}: {cpu_s:.0f} s of CPU", flush=True)
    result = asdict(job) | {"arm": job.arm, "cpu_s": cpu_s, "episodes": episodes}
    write_atomically(job.file(folder), json.dumps(result) + "\n")


@dataclass(frozen=True)
class Row:
    """The numbers of a run. `reached`: steps to the threshold, `reached_s`: CPU time; nan if never."""

    reached: float
    reached_s: float
    mean: float
    lowest: float
    cpu_s: float


def summarise(result: dict[str, Any], threshold: float) -> Row:
    """The running mean return's way to `threshold`, and its mean and minimum over the last third of steps."""
    last: deque[float] = deque(maxlen=WINDOW)
    steps, means = [], []
    for at, total in result["episodes"]:
        last.append(total)
        steps.append(at)
        means.append(sum(last) / len(last))
    reached = next((at for at, mean in zip(steps, means, strict=True) if mean >= threshold), float("nan"))
    reached_s = reached / result["steps"] * result["cpu_s"]
    third = np.interp(np.arange(2 * result["steps"] / 3, result["steps"], GRID), steps, means)
    return Row(reached, reached_s, float(third.mean()), float(third.min()), result["cpu_s"])


def report(folder: Path, env: str, threshold: float) -> None:
    """Prints each finished run, then each arm, also beside stable-baselines3 on the seeds of both."""
    arms: dict[str, dict[int, Row]] = {}
    for file in sorted(folder.glob(f"{env}-*.json")):
        result = json.loads(file.read_text())
        arms.setdefault(result["arm"], {})[result["seed"]] = summarise(result, threshold)
    columns = f"{f'to {threshold:,.0f}':>12}{'last third':>12}"
    print(f"\n{env}\n{'arm':<12}{'seed':>6}{columns}{'lowest':>10}{'CPU s':>8}")
    for arm, rows in arms.items():
        for seed, row in sorted(rows.items()):
            print(
                f"{arm:<12}{seed:>6}{row.reached:>12,.0f}{row.mean:>12,.0f}{row.lowest:>10,.0f}{row.cpu_s:>8.0f}"
            )
    print(f"\n{'means':<12}{'seeds':>6}{columns}   beside {PEER} on the same seeds")
    for arm, rows in arms.items():
        steps, _, mean = _means(rows.values())
        shared = rows.keys() & arms.get(PEER, {}).keys()
        ratios = ""
        if arm != PEER and shared:
            own = _means([rows[seed] for seed in shared])
            its = _means([arms[PEER][seed] for seed in shared])
            steps_ratio, cpu_ratio, _ = (a / b for a, b in zip(own, its, strict=True))
            ratios = f"   {steps_ratio:.2f} of its steps, {cpu_ratio:.2f} of its CPU time, "
            ratios += f"return {own[2] - its[2]:+,.0f}"
        print(f"{arm:<12}{len(rows):>6}{steps:>12,.0f}{mean:>12,.0f}{ratios}")


def _means(rows: Iterable[Row]) -> tuple[float, float, float]:
    """Steps and CPU time to the threshold, nan if a run never reached it, and return of the last third."""
    steps, cpu_s, returns = np.mean([(row.reached, row.reached_s, row.mean) for row in rows], axis=0)
    return float(steps), float(cpu_s), float(returns)


def main() -> None:
    """Makes the missing runs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="InvertedDoublePendulum-v5", help="a gymnasium environment")
    parser.add_argument("--preset", default="appo-hopper", help="the configuration whose numbers are taken")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to the preset")
    parser.add_argument("--steps", type=int, default=700_000)
    parser.add_argument("--threshold", type=float, default=5000.0, help="mean return to reach")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 4], help="0: stable-baselines3")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--report-only", action="store_true", help="print the table of finished runs")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if not args.report_only:
        jobs = [
            Job(args.env, args.preset, tuple(args.set), args.steps, workers, seed)
            for seed in args.seeds
            for workers in args.workers
        ]
        missing = [job for job in jobs if not job.file(args.output).exists()]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
            for future in [pool.submit(run, job, args.output) for job in missing]:
                future.result()
    report(args.output, args.env, args.threshold)


if __name__ == "__main__":
    main()
