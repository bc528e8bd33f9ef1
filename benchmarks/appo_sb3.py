"""stable-baselines3's PPO as a peer in `appo.py`.

Hyperparameters are those of rl-baselines3-zoo (`hyperparams/ppo.yml`: LunarLanderContinuous-v3, and Hopper-v4
and HalfCheetah-v4 for v5); `normalize` there is VecNormalize of observations and rewards, which it has for
MuJoCo but not for LunarLander. What the zoo's `n_timesteps` limits, `--minutes` limits here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from appo_runs import Outcome, Settings
from appo_trial import Act, Floats, Trial, run_peer
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

MUJOCO_NET = {
    "log_std_init": -2.0,
    "ortho_init": False,
    "activation_fn": torch.nn.ReLU,
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}
ZOO: dict[str, dict[str, Any]] = {
    "LunarLanderContinuous-v3": {
        "n_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "Hopper-v5": {
        "normalize": True,
        "n_envs": 1,
        "batch_size": 32,
        "n_steps": 512,
        "gamma": 0.999,
        "learning_rate": 9.80828e-05,
        "ent_coef": 0.00229519,
        "clip_range": 0.2,
        "n_epochs": 5,
        "gae_lambda": 0.99,
        "max_grad_norm": 0.7,
        "vf_coef": 0.835671,
        "policy_kwargs": MUJOCO_NET,
    },
    "HalfCheetah-v5": {
        "normalize": True,
        "n_envs": 1,
        "batch_size": 64,
        "n_steps": 512,
        "gamma": 0.98,
        "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762,
        "clip_range": 0.1,
        "n_epochs": 20,
        "gae_lambda": 0.92,
        "max_grad_norm": 0.8,
        "vf_coef": 0.58096,
        "policy_kwargs": MUJOCO_NET,
    },
}
ENDLESS = 10**12
PACKAGES = ("stable-baselines3", "torch", "gymnasium")


class AskTrial(BaseCallback):
    """Asks the trial before each collection, with the weights of the update just made."""

    def __init__(self, trial: Trial, act: Act) -> None:
        super().__init__()
        self._trial, self._act = trial, act
        self._is_over = False

    def _on_training_start(self) -> None:
        self._trial.begin()

    def _on_rollout_start(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        train_return = float(np.mean(returns)) if returns else None
        self._is_over = self._trial.is_over(self.num_timesteps, train_return, self._act)

    def _on_step(self) -> bool:
        return not self._is_over


def train(settings: Settings) -> Outcome:
    """Trains until the trial is over."""
    torch.set_num_threads(1)
    chosen = dict(ZOO[settings.env])
    is_normalised = chosen.pop("normalize", False)
    # Stepped in this process: for environments of 0.1 ms, processes cost more than they give.
    env: Any = make_vec_env(settings.env, n_envs=chosen.pop("n_envs"), seed=settings.seed)
    if is_normalised:
        env = VecNormalize(env, gamma=chosen["gamma"])
    model = PPO("MlpPolicy", env, seed=settings.seed, device="cpu", **chosen)

    def act(observations: Floats) -> Floats:
        seen = env.normalize_obs(observations) if is_normalised else observations
        actions, _ = model.predict(seen, deterministic=True)
        return np.asarray(actions, np.float32)

    trial = Trial(settings)
    model.learn(ENDLESS, callback=AskTrial(trial, act))
    return trial.finish(act, PACKAGES)


if __name__ == "__main__":
    run_peer(__doc__, train)
