"""RLlib's APPO, on its new API stack, as a peer in `appo.py`.

For MuJoCo the hyperparameters are those of RLlib's `rllib/examples/algorithms/appo/mujoco_appo.py`, after
IMPACT (Luo et al. 2020). There is no example for LunarLander; its settings were found by hand on seed 0,
beginning with those of the example for Pendulum: of ten tried, those that solved it. What made it learn:

- rewards scaled, which RLlib does not do of itself, and a value network that shares nothing with the policy:
  the squared error of returns in the hundreds drowns the policy's gradient, and the critic learns slowly;
- a target network that is renewed every 4,000 steps of the environment. Its period is
  `target_network_update_freq` · N · K · batch size in trained steps, K being how often a batch is replayed.
  Ray 2.60 counts a batch once, not K times (the main thread takes one of the learner thread's results per
  batch), so that the period is K times as long as it says. Hence the smaller factor for MuJoCo, too: that
  example's would be 2.6 million steps, more than the run has;
- batches replayed 20 times, as that paper does for continuous actions.

λ has no effect under V-trace.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from appo_runs import Outcome, Settings
from appo_trial import Floats, Trial, run_peer
from gymnasium.wrappers import TransformReward
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env


@dataclass(frozen=True)
class Choice:
    """Keyword arguments of RLlib's `training`, `env_runners` and `DefaultModelConfig`; and what training
    rewards are multiplied by."""

    training: dict[str, Any]
    collection: dict[str, Any]
    model: dict[str, Any]
    reward_scale: float = 1.0


LUNAR_LANDER = Choice(
    training={
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
    },
    collection={"num_envs_per_env_runner": 20, "rollout_fragment_length": 100},
    model={
        "fcnet_hiddens": [64, 64],
        "fcnet_activation": "tanh",
        "vf_share_layers": False,
    },
    reward_scale=0.01,
)
MUJOCO = Choice(
    training={
        "train_batch_size_per_learner": 4096,
        "circular_buffer_num_batches": 16,
        "circular_buffer_iterations_per_batch": 20,
        "target_network_update_freq": 0.0125,
        "target_worker_clipping": 2.0,
        "clip_param": 0.4,
        "grad_clip": 0.5,
        "grad_clip_by": "value",
        "lr": 0.0005,
        "vf_loss_coeff": 0.5,
        "gamma": 0.995,
        "entropy_coeff": 0.0,
        "use_kl_loss": True,
        "kl_coeff": 1.0,
        "kl_target": 0.04,
    },
    collection={"num_envs_per_env_runner": 32, "rollout_fragment_length": 512},
    model={},
)
CHOICES = {"LunarLanderContinuous-v3": LUNAR_LANDER, "Hopper-v5": MUJOCO, "HalfCheetah-v5": MUJOCO}
TRAINED = "trained"
"""Ray's name of the environment."""
ITERATION_S = 2.0
"""How often the trial is asked; RLlib's iterations are as long as one wants."""
PACKAGES = ("ray", "torch", "gymnasium")


class Greedy:
    """The mean action of the learner's policy, as it is when `renew` was called last."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm, self._module = algorithm, algorithm.get_module()
        self._is_current = False

    def renew(self) -> None:
        """Fetches the learner's weights before the next action."""
        self._is_current = False

    def __call__(self, observations: Floats) -> Floats:
        if not self._is_current:
            self._module.set_state(self._algorithm.get_weights()[DEFAULT_MODULE_ID])
            self._is_current = True
        with torch.no_grad():
            out = self._module.forward_inference({Columns.OBS: torch.from_numpy(observations)})
        kind = self._module.get_inference_action_dist_cls()
        actions = kind.from_logits(out[Columns.ACTION_DIST_INPUTS]).to_deterministic().sample()
        return np.clip(actions.numpy(), -1.0, 1.0)  # the action space of all three environments


def configure(settings: Settings) -> APPOConfig:
    """As many processes that collect as there are cores; the learner is a thread of this process."""
    choice = CHOICES[settings.env]

    def make_env(_: object) -> gymnasium.Env[Any, Any]:
        return TransformReward(
            gymnasium.make(settings.env), lambda reward: choice.reward_scale * float(reward)
        )

    register_env(TRAINED, make_env)
    return (
        APPOConfig()
        .environment(TRAINED)
        .env_runners(num_env_runners=settings.cores, **choice.collection)
        .learners(num_learners=0)
        .training(**choice.training)
        .rl_module(model_config=DefaultModelConfig(**choice.model))
        .reporting(min_time_s_per_iteration=ITERATION_S, metrics_num_episodes_for_smoothing=100)
        .debugging(seed=settings.seed, log_level="ERROR")
    )


def train(settings: Settings) -> Outcome:
    """Trains until the trial is over."""
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
            trial, act, scale = Trial(settings), Greedy(algorithm), CHOICES[settings.env].reward_scale
            trial.begin()
            is_over = False
            while not is_over:
                collected = algorithm.train()["env_runners"]
                act.renew()
                steps = int(collected.get("num_env_steps_sampled_lifetime", 0))
                scaled = collected.get("episode_return_mean")
                train_return = None if scaled is None else scaled / scale
                is_over = trial.is_over(steps, train_return, act)
            return trial.finish(act, PACKAGES)
        finally:
            ray.shutdown()


if __name__ == "__main__":
    run_peer(__doc__, train)
