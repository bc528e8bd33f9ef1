"""The policy of continuous control: a diagonal Gaussian over actions, its critic, and what normalises both.

    π_θ(a|s) = N(a; mean_θ(x), diag exp(2 log_std_θ)),   V_ω(x),   x = clip((s − mean) / std, ±10)

θ and ω are networks of their own, as in the APPO paper. log_std does not depend on the state. Actions are
clipped to the environment's box for the environment only: log π is that of the action before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distrl.appo.envs import Moments
from distrl.configs.schema import Config
from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import weights_io

CLIP = 10.0
"""Normalised observations and scaled rewards lie in ±CLIP."""

SPEC_FILE, WEIGHTS_FILE = "policy.json", "weights.safetensors"
_LOG_2PI = math.log(2.0 * math.pi)
_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PolicySpec:
    """Everything needed to build a policy again; sizes are lengths of flat observations and actions."""

    env_id: str
    observation_size: int
    action_size: int
    hidden: tuple[int, ...]
    activation: str
    log_std: float

    @classmethod
    def of(cls, config: Config, sizes: tuple[int, int]) -> PolicySpec:
        """Of a configuration and the sizes of the environment's observations and actions."""
        net = config.gaussian
        env_id = str(config.env.options["id"])
        return cls(env_id, *sizes, tuple(net.hidden), net.activation, net.log_std)

    @property
    def sizes(self) -> tuple[int, int]:
        """Of observations and of actions."""
        return self.observation_size, self.action_size


class FlatParameters:
    """Moves the parameters of `module` into one vector and the gradients into another, for fast steps.

    The parameters become views of the vector. The module keeps working as before; it must not be moved to
    another device or type afterwards.

    Attributes:
        vector, grad: [P] parameters and gradients, in the order of `module.named_parameters()`.
    """

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self._shapes = {name: parameter.shape for name, parameter in named.items()}
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in named.values()])
        self.grad = torch.zeros_like(self.vector)
        vectors, grads = self.views(self.vector), self.views(self.grad)
        for name, parameter in named.items():
            parameter.data, parameter.grad = vectors[name], grads[name]

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """`vector`, [P], cut up into tensors by name: views of its memory."""
        parts = torch.split(vector, [math.prod(shape) for shape in self._shapes.values()])
        return {name: part.view(self._shapes[name]) for name, part in zip(self._shapes, parts, strict=True)}


class GaussianPolicy(nn.Module):
    """Actor, critic and statistics.

    Attributes:
        flat: θ and ω in one vector; the first `num_actor` numbers are θ.
        observations: Moments of all observations in training, [observation_size].
        returns: Moments, [1], of the discounted return, by whose standard deviation rewards are divided.
    """

    def __init__(self, spec: PolicySpec, seed: int) -> None:
        super().__init__()
        self.spec = spec
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.log_std = nn.Parameter(torch.full((spec.action_size,), spec.log_std))
            self.actor = _mlp(spec, spec.action_size, out_gain=0.01)
            self.critic = _mlp(spec, 1, out_gain=1.0)
        self.flat = FlatParameters(self)
        self.num_actor = self.flat.vector.numel() - sum(p.numel() for p in self.critic.parameters())
        self.observations = Moments.empty(spec.observation_size)
        self.returns = Moments.empty(1)

    def normalise(self, observations: NDArray[np.floating]) -> Floats:
        """The networks' inputs at observations [..., d]."""
        x = np.asarray(observations, np.float64)
        x = np.clip((x - self.observations.mean) / self.observations.std(), -CLIP, CLIP)
        return x.astype(np.float32)

    def log_prob(self, x: Tensor, actions: Tensor) -> Tensor:
        """log π(a|s), [B], of actions [B, a] at normalised observations [B, d]."""
        z = (actions - self.actor(x)) * torch.exp(-self.log_std)
        constant = self.log_std.sum() + 0.5 * self.spec.action_size * _LOG_2PI
        log_prob: Tensor = -0.5 * (z * z).sum(-1) - constant
        return log_prob

    @torch.no_grad()
    def log_probs(self, x: Floats, actions: Floats) -> Floats:
        """`log_prob` of [..., d] and [..., a], as numbers [...]."""
        found: Floats = self.log_prob(torch.from_numpy(x), torch.from_numpy(actions)).numpy()
        return found

    def entropy(self) -> Tensor:
        """The entropy in nats, the same in every state: Σ log_std + ½ d log 2πe."""
        return self.log_std.sum() + 0.5 * self.spec.action_size * (_LOG_2PI + 1.0)

    def value(self, x: Tensor) -> Tensor:
        """V(s), [B], at normalised observations [B, d]."""
        value: Tensor = self.critic(x)
        return value.squeeze(-1)

    @torch.no_grad()
    def act(self, x: Floats, rng: np.random.Generator | None) -> Floats:
        """Actions [B, a] at normalised observations [B, d]: drawn by `rng`; without one the most probable."""
        mean: Floats = self.actor(torch.from_numpy(x)).numpy()
        if rng is None:
            return mean
        noise = rng.standard_normal(mean.shape, np.float32)
        std: Floats = torch.exp(self.log_std).numpy()
        return mean + noise * std

    def act_greedily(self, observations: NDArray[np.floating]) -> Floats:
        """The most probable actions [B, a] at raw observations [B, d]."""
        return self.act(self.normalise(observations), None)

    def published_kind(self) -> str:
        """Always all weights."""
        return "full"

    def published_state(self) -> dict[str, Tensor]:
        """Weights and statistics by name, for workers and checkpoints."""
        state = {name: parameter.detach() for name, parameter in self.named_parameters()}
        return state | pack_moments(self.observations, self.returns)

    def published_metadata(self) -> dict[str, str]:
        """Empty."""
        return {}

    def load_published(self, state: Mapping[str, Tensor]) -> None:
        """Loads what `published_state` returned; raises PolicyError if it is a different policy's."""
        weights_io.copy_into(self.published_state(), state)
        self.observations, self.returns = unpack_moments(state)

    def save(self, directory: Path) -> None:
        """Writes a checkpoint's policy into a new `directory`."""
        directory.mkdir()
        (directory / SPEC_FILE).write_text(json.dumps(asdict(self.spec)))
        weights_io.write(directory / WEIGHTS_FILE, self.published_state())

    def load(self, directory: Path) -> None:
        """Reads the weights of a checkpoint's policy; raises CheckpointError if they do not fit."""
        try:
            state = weights_io.from_bytes(bytearray((directory / WEIGHTS_FILE).read_bytes()))
            self.load_published(state)
        except (OSError, PolicyError) as error:
            raise CheckpointError(f"The weights in {directory} cannot be loaded: {error}", "") from error


def load_policy(directory: Path) -> GaussianPolicy:
    """Reads what `GaussianPolicy.save` wrote; raises CheckpointError."""
    try:
        data: dict[str, Any] = json.loads((directory / SPEC_FILE).read_text())
        spec = PolicySpec(**{**data, "hidden": tuple(data["hidden"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{directory} is not a Gaussian policy: {error}.", "Use a checkpoint of an appo run."
        ) from error
    policy = GaussianPolicy(spec, seed=0)
    policy.load(directory)
    return policy


def pack_moments(observations: Moments, returns: Moments) -> dict[str, Tensor]:
    """Statistics as float64 tensors, named as `unpack_moments` expects."""
    state = {}
    for name, moments in (("observations", observations), ("returns", returns)):
        state[f"{name}.count"] = torch.tensor([moments.count], dtype=torch.float64)
        state[f"{name}.mean"] = torch.from_numpy(moments.mean)
        state[f"{name}.m2"] = torch.from_numpy(moments.m2)
    return state


def unpack_moments(state: Mapping[str, Tensor]) -> tuple[Moments, Moments]:
    """Statistics of observations and of returns, copied."""

    def moments(name: str) -> Moments:
        mean, m2 = (state[f"{name}.{part}"].numpy().copy() for part in ("mean", "m2"))
        return Moments(float(state[f"{name}.count"]), mean, m2)

    return moments("observations"), moments("returns")


def _mlp(spec: PolicySpec, num_out: int, out_gain: float) -> nn.Sequential:
    """Layers with orthogonal weights: gain √2, and `out_gain` at the end, as is usual for PPO."""
    layers: list[nn.Module] = []
    size = spec.observation_size
    for width in spec.hidden:
        layers += [_linear(size, width, math.sqrt(2.0)), _ACTIVATIONS[spec.activation]()]
        size = width
    return nn.Sequential(*layers, _linear(size, num_out, out_gain))


def _linear(size: int, width: int, gain: float) -> nn.Linear:
    layer = nn.Linear(size, width)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
