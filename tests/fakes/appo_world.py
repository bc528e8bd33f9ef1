"""A small run of continuous control: its configuration, and a master without sockets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distrl.appo.envs import Moments
from distrl.appo.master import Master
from distrl.appo.policy import GaussianPolicy, PolicySpec, pack_moments
from distrl.appo.worker import Stopped
from distrl.configs.load import check_config
from distrl.configs.schema import Config
from distrl.core.errors import ProtocolError
from distrl.core.messages import Gradient, Measured, Reject, RejectCode, WeightInfo, WorkUnit
from distrl.core.policies import weights_io
from distrl.core.weights import Buffer

AIM = "appo_envs:Aim-v0"


def config_data(**appo: Any) -> dict[str, Any]:
    """A run that learns `Aim` in seconds."""
    small = {"num_steps": 256, "minibatch_size": 32, "epochs": 4, "local_lr": 0.01, "gamma": 0.0, "lam": 0.0}
    return {
        "env": {"kind": "gym", "options": {"id": AIM}},
        "policy": {"kind": "gaussian", "hidden": [16]},
        "worker": {"slots": 4},
        "local": {"workers": 1},
        "learner": {
            "eval_episodes": 8,
            "algorithm": {"kind": "appo", **small, "eval_every": 1024, "max_env_steps": 20_000, **appo},
        },
    }


def appo_config(**appo: Any) -> Config:
    return check_config(config_data(**appo), "test")


def new_policy(config: Config) -> GaussianPolicy:
    return GaussianPolicy(PolicySpec.of(config, (2, 2)), config.seed)


class World:
    """A master, and what it has published. Serves a `AppoWorker` as its `Master` too.

    Attributes:
        clock: Seconds; tests move it.
        refusals: What gradients were refused for.
        stop_when: Polled before each unit of `work`.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.config = config
        self.policy = new_policy(config)
        self.published: dict[str, Buffer] = {}
        self.infos: list[WeightInfo] = []
        self.clock = 0.0
        self.refusals: list[str] = []
        self.units: list[WorkUnit] = []
        self.stop_when: Callable[[], bool] = lambda: False
        self.master = Master(
            config,
            self.policy,
            self,
            folder / "version",
            lambda: self.clock,
        )
        self.master.start()

    # ---- as the master's server ----

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        self.infos.append(info)
        self.published[info.digest] = data

    def offer_weights(self, info: WeightInfo, data: Buffer) -> None:
        self.published[info.digest] = data

    # ---- as a worker's master ----

    def work(self, collected: str | None = None) -> WorkUnit:
        if collected is None and self.stop_when():
            raise Stopped
        unit = self.master.work("w", collected)
        if unit is None:
            raise Stopped
        if collected is None:
            self.units.append(unit)
        return unit

    def fetch(self, info: WeightInfo) -> memoryview | None:
        return memoryview(self.published[info.digest])

    def send(self, message: Gradient | Measured, blobs: Any) -> Reject | None:
        if isinstance(message, Measured):
            self.master.take_measured(message)
            return None
        try:
            self.master.take_gradient(message, blobs)
        except ProtocolError as error:
            self.refusals.append(str(error))
            return Reject(code=RejectCode(error.code), reason=error.message, ref=message.unit_id)
        return None


def gradient(
    world: World,
    change: Mapping[str, Tensor] | None = None,
    unit_id: str = "u1",
    base: int = 1,
    num_steps: int = 256,
    **fields: Any,
) -> tuple[Gradient, bytes]:
    """A gradient that fits `world`, and its payload; `change` replaces or adds tensors."""
    moments = Moments(float(num_steps), torch.zeros(2).double().numpy(), torch.ones(2).double().numpy())
    returns = Moments(float(num_steps), torch.zeros(1).double().numpy(), torch.ones(1).double().numpy())
    eta = {name: torch.zeros_like(parameter) for name, parameter in world.policy.named_parameters()}
    payload = bytes(weights_io.to_bytes({**eta, **pack_moments(moments, returns), **(change or {})}))
    values = {
        "worker": "w",
        "unit_id": unit_id,
        "base_version": base,
        "digest": hashlib.sha256(payload).hexdigest(),
        "lr": world.config.learner.appo.local_lr,
        "num_steps": num_steps,
    }
    return Gradient(**{**values, **fields}), payload
