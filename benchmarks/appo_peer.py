"""One run of a peer in `appo_peers.py`: its clock, its stop rule, and how each library is set up.

The peers train in their own way and ask a `Trial` after every iteration whether to continue. So all are
measured by one rule, which is that of `distrl train` with `learner.algorithm.stop_at_return`.

sb3: PPO of stable-baselines3 with the hyperparameters of rl-baselines3-zoo (`hyperparams/ppo.yml`), but with
`--minutes` in place of `n_timesteps`.

rllib: APPO of RLlib on its new API stack. RLlib has no example for LunarLander; the settings were found by
hand on seed 0, starting from those of the example for Pendulum: of ten tried, those that solved it. The
changes that made it learn:

- rewards scaled, which RLlib does not do by itself, and a value network that shares nothing with the policy:
  the squared error of returns in the hundreds drowns the policy's gradient, and the critic learns slowly;
- a target network that is renewed every 4,000 steps of the environment. Its period is
  `target_network_update_freq` · N · K · batch size in trained steps, K being how often a batch is replayed.
  Ray 2.60 counts a batch once, not K times (the main thread takes one of the learner thread's results per
  batch), so the period is K times as long as it says;
- batches replayed 20 times, as IMPACT (Luo et al. 2020) does for continuous actions.

λ has no effect under V-trace.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from appo_peers import Outcome, Point, Settings
from numpy.typing import NDArray

from distrl.appo.envs import GymGroup, run_episodes
from distrl.core.files import write_atomically

CONFIRMED_EPISODES = 100
"""Greedy episodes over which a solution and a final result are measured."""
TOGETHER = 25
"""Environments stepped together in an evaluation, so that the policy sees a batch."""

Floats = NDArray[np.float32]
Act = Callable[[Floats], Floats]
"""Observations [n, d] to the greedy policy's actions [n, k], inside the action space."""


class Trial:
    """A peer's clock and its stop rule.

    Args:
        settings: The settings of the run.
        evaluate: The mean return of the greedy policy over episodes of the given seeds.
        clock: Seconds.
    """

    def __init__(
        self,
        settings: Settings,
        evaluate: Callable[[Act, Sequence[int]], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._evaluate = evaluate or (lambda act, seeds: mean_return(settings.env, act, seeds))
        self._num_evaluations = 0
        self._next_validation, self._next_confirmation = 0, 0
        self._began, self._began_at = clock(), time.time()
        self._last = (0.0, 0)
        self._training: list[Point] = []
        self._validation: list[Point] = []
        self._solved: tuple[float, int] | None = None

    def begin(self) -> None:
        """Starts the clock: from here on the peer trains."""
        self._began, self._began_at = self._clock(), time.time()

    def is_over(self, env_steps: int, train_return: float | None, act: Act) -> bool:
        """Notes an iteration, validates if it is time, and says whether the run ends here.

        Args:
            env_steps: Made so far, over all environments.
            train_return: The mean of the last 100 training episodes; None or NaN before the first.
            act: The greedy policy as it is now.
        """
        elapsed = self._clock() - self._began
        if train_return is None or not math.isfinite(train_return):
            train_return = None
        else:
            self._training.append(Point(elapsed, env_steps, train_return))
        print(f"{elapsed:.0f} s, {env_steps} steps, return {train_return}", file=sys.stderr, flush=True)
        now = elapsed, env_steps
        if self._is_solution(now, train_return, act):
            self._solved = now
        self._last = self._clock() - self._began, env_steps
        return self._solved is not None or self._last[0] >= 60 * self._settings.minutes

    def _is_solution(self, now: tuple[float, int], train_return: float | None, act: Act) -> bool:
        """Whether the policy is a candidate, and is confirmed. Training waits for it.

        Candidates by their training episodes are confirmed at once, but for a pause after one that failed.
        """
        stop_at, (_, env_steps) = self._settings.stop_at, now
        is_candidate = train_return is not None and train_return >= stop_at
        if not is_candidate or env_steps < self._next_confirmation:
            if env_steps < self._next_validation:
                return False
            self._next_validation = env_steps + self._settings.eval_every
            if self._validate(now, act, self._settings.eval_episodes) < stop_at:
                return False
        if self._validate(now, act, CONFIRMED_EPISODES) >= stop_at:
            return True
        self._next_confirmation = env_steps + self._settings.eval_every
        return False

    def _validate(self, now: tuple[float, int], act: Act, episodes: int) -> float:
        mean = self._measure(act, episodes)
        self._validation.append(Point(*now, mean))
        return mean

    def _measure(self, act: Act, episodes: int) -> float:
        """The greedy mean return over seeds that nothing was measured on before."""
        self._num_evaluations += 1
        sequence = np.random.SeedSequence([self._settings.seed, self._num_evaluations])
        mean = self._evaluate(act, [int(state) for state in sequence.generate_state(episodes)])
        print(f"greedy return over {episodes} episodes: {mean:.1f}", file=sys.stderr, flush=True)
        return mean

    def finish(self, act: Act, packages: Sequence[str] = ()) -> Outcome:
        """Measures the final policy. The clock has stopped.

        Args:
            act: The greedy policy.
            packages: Whose versions to note.
        """
        solved_s, solved_steps = self._solved or (None, None)
        return Outcome(
            started_at=self._began_at,
            elapsed_s=self._last[0],
            env_steps=self._last[1],
            solved_s=solved_s,
            solved_steps=solved_steps,
            final_return=self._measure(act, CONFIRMED_EPISODES),
            training=tuple(self._training),
            validation=tuple(self._validation),
            versions={name: version(name) for name in packages},
        )


def mean_return(env_id: str, act: Act, seeds: Sequence[int]) -> float:
    """The mean undiscounted return of one episode per seed, however long each takes."""
    group = GymGroup({"id": env_id}, min(TOGETHER, len(seeds)))
    episodes = run_episodes(group, lambda seen: act(seen.astype(np.float32)), seeds)
    group.close()
    assert episodes is not None
    return math.fsum(episode.total for episode in episodes) / len(seeds)


NUM_ENVS = 16
ZOO = {
    "n_steps": 1024,
    "batch_size": 64,
    "gae_lambda": 0.98,
    "gamma": 0.999,
    "n_epochs": 4,
    "ent_coef": 0.01,
}
ENDLESS = 10**12


def train_sb3(settings: Settings) -> Outcome:
    """Trains until the trial is over."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class AskTrial(BaseCallback):
        """Asks the trial before each collection, with the weights of the update just made."""

        is_over = False

        def _on_training_start(self) -> None:
            trial.begin()

        def _on_rollout_start(self) -> None:
            returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
            train_return = float(np.mean(returns)) if returns else None
            self.is_over = trial.is_over(self.num_timesteps, train_return, act)

        def _on_step(self) -> bool:
            return not self.is_over

    torch.set_num_threads(1)
    # Stepped in this process: for environments of 0.1 ms, processes cost more than they save.
    env = make_vec_env(settings.env, n_envs=NUM_ENVS, seed=settings.seed)
    model = PPO("MlpPolicy", env, seed=settings.seed, device="cpu", **ZOO)

    def act(observations: Floats) -> Floats:
        actions, _ = model.predict(observations, deterministic=True)
        return np.asarray(actions, np.float32)

    trial = Trial(settings)
    model.learn(ENDLESS, callback=AskTrial())
    return trial.finish(act, ("stable-baselines3", "torch", "gymnasium"))


TRAINING = {
    "train_batch_size_per_learner": 500,
    "circular_buffer_num_batches": 8,
    "circular_buffer_iterations_per_batch": 20,
    "target_network_update_freq": 0.05,
    "clip_param": 0.2,
    "grad_clip": 0.5,
    "grad_clip_by": "global_norm",
    "lr": 0.0005,
    "vf_loss_coeff": 0.5,
    "gamma": 0.99,
    "entropy_coeff": 0.0,
    "use_kl_loss": False,
}
COLLECTION = {"num_envs_per_env_runner": 20, "rollout_fragment_length": 100}
NETWORK = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False}
REWARD_SCALE = 0.01
TRAINED = "trained"
"""Ray's name of the environment."""
ITERATION_S = 2.0
"""How often the trial is asked; RLlib's iterations are as long as one wants."""


class Greedy:
    """The mean action of the learner's policy, as it is when `renew` was called last."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm, self._module = algorithm, algorithm.get_module()
        self._is_current = False

    def renew(self) -> None:
        """Fetches the learner's weights before the next action."""
        self._is_current = False

    def __call__(self, observations: Floats) -> Floats:
        from ray.rllib.core import DEFAULT_MODULE_ID

        if not self._is_current:
            self._module.set_state(self._algorithm.get_weights()[DEFAULT_MODULE_ID])
            self._is_current = True
        from ray.rllib.core.columns import Columns

        with torch.no_grad():
            out = self._module.forward_inference({Columns.OBS: torch.from_numpy(observations)})
        kind = self._module.get_inference_action_dist_cls()
        actions = kind.from_logits(out[Columns.ACTION_DIST_INPUTS]).to_deterministic().sample()
        return np.clip(actions.numpy(), -1.0, 1.0)  # the action space


def configure(settings: Settings) -> Any:
    """As many processes that collect as there are cores; the learner is a thread of this process."""
    from gymnasium.wrappers import TransformReward
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    def make_env(_: object) -> gymnasium.Env[Any, Any]:
        return TransformReward(gymnasium.make(settings.env), lambda reward: REWARD_SCALE * float(reward))

    register_env(TRAINED, make_env)
    return (
        APPOConfig()
        .environment(TRAINED)
        .env_runners(num_env_runners=settings.cores, **COLLECTION)
        .learners(num_learners=0)
        .training(**TRAINING)
        .rl_module(model_config=DefaultModelConfig(**NETWORK))
        .reporting(min_time_s_per_iteration=ITERATION_S, metrics_num_episodes_for_smoothing=100)
        .debugging(seed=settings.seed, log_level="ERROR")
    )


def train_rllib(settings: Settings) -> Outcome:
    """Trains until the trial is over."""
    import ray

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as scratch:
        # Ray only counts CPUs. The cores are shared with the learner's thread, as the affinity says.
        ray.init(
            num_cpus=settings.cores + 1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=scratch,
        )
        try:
            algorithm = configure(settings).build_algo()
            trial, act = Trial(settings), Greedy(algorithm)
            trial.begin()
            is_over = False
            while not is_over:
                collected = algorithm.train()["env_runners"]
                act.renew()
                steps = int(collected.get("num_env_steps_sampled_lifetime", 0))
                scaled = collected.get("episode_return_mean")
                train_return = None if scaled is None else scaled / REWARD_SCALE
                is_over = trial.is_over(steps, train_return, act)
            return trial.finish(act, ("ray", "torch", "gymnasium"))
        finally:
            ray.shutdown()


def main() -> None:
    """Reads the settings, trains, and writes the outcome."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=["sb3", "rllib"])
    parser.add_argument("--settings", required=True, help="appo_peers.Settings as JSON")
    parser.add_argument("--output", required=True, type=Path, help="the JSON file to write at the end")
    args = parser.parse_args()
    train = {"sb3": train_sb3, "rllib": train_rllib}[args.library]
    outcome = train(Settings(**json.loads(args.settings)))
    write_atomically(args.output, json.dumps(asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
