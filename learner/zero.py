"""A policy whose optimiser states, gradients or weights are sharded over ranks by DeepSpeed's ZeRO.

The one file that imports deepspeed.
"""

from __future__ import annotations

import os
import re
from typing import Any

import torch
from torch import Tensor, nn

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import MissingDependency
from distrl.core.policies.base import Policy
from distrl.learner.optimisers import COPY, Optimiser
from distrl.learner.ranks import from_rank_0, num_ranks, own_rank
from distrl.learner.sharding import MOMENTS, ShardedPolicy


class ZeroPolicy(ShardedPolicy):
    def __init__(self, policy: Policy, config: LearnerConfig) -> None:
        self._deepspeed = _import()
        super().__init__(policy, config)
        self._parameters: list[nn.Parameter] = []
        self._engine: Any = None
        self._user: ZeroOptimiser | None = None

    @property
    def engine(self) -> Any:
        """DeepSpeed's engine; it starts when first used."""
        self.start()
        return self._engine

    def start(self) -> None:
        if self._engine is None:
            keys, optim = self._ds_config(), self.config.optim
            for module in self._whole_modules() if self.is_sharded else ():
                self._deepspeed.zero.Init(module=module, config_dict_or_path=keys)
            self._parameters = self.trained()
            adam = torch.optim.AdamW(self._parameters, lr=optim.lr, weight_decay=optim.weight_decay)
            self._engine = self._deepspeed.initialize(model=self._module, optimizer=adam, config=keys)[0]
            self._module.eval()
            self.is_started = True

    def call(self, name: str, *arguments: Any) -> Any:
        return self.engine(name, *arguments)

    def optimiser(self, lr: float) -> Optimiser:
        return ZeroOptimiser(self, lr)

    def _whole(self, parameter: nn.Parameter) -> Tensor:
        with self._deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().clone()

    def _set(self, parameter: nn.Parameter, whole: Tensor | None) -> None:
        with self._deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            if whole is not None:
                parameter.data.copy_(whole)

    def enter(self, user: ZeroOptimiser, lr: float) -> None:
        """Makes `user` the one whose steps follow. Only one has states: another begins afresh."""
        zero = self.engine.optimizer
        adam = zero.optimizer
        # It would add to the gradients of a step that was not made.
        if self.config.zero_stage == 3:
            zero._pre_step()
        else:
            zero.zero_grad()
            zero.micro_step_id = -1
            zero.all_grad_tensors.clear()
            zero.averaged_gradients.clear()
        if self._user is not user:
            adam.state.clear()
            self._link_states()
            self._user = user
            pending, user.pending = user.pending, None
            if pending is not None and pending["state"]:
                self._set_states(adam, pending)
        for group in zero.param_groups:
            group["lr"] = lr

    def states(self, user: ZeroOptimiser) -> dict[str, Any]:
        """See `Optimiser.state_dict`, of `user`; none if it made no step. Rank 0 alone keeps the tensors."""
        found: dict[str, Any] = {"state": {}}
        adam = None if self._engine is None else self._engine.optimizer.optimizer
        if adam is None or self._user is not user or not adam.state:
            return user.pending or found
        from deepspeed.utils import safe_get_full_optimizer_state

        step = next(iter(adam.state.values()))["step"].detach().clone().cpu()
        for index, parameter in enumerate(self._parameters):
            found["state"][index] = {"step": step}
            for name in (*MOMENTS, COPY) if self.is_half else MOMENTS:
                whole = safe_get_full_optimizer_state(parameter, _key(name))
                if own_rank() == 0:
                    found["state"][index][name] = whole.cpu()
        return found

    def _set_states(self, adam: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        step = next(iter(state["state"].values()))["step"]
        zero = self.engine.optimizer
        is_third = self.config.zero_stage == 3
        flats = zero.fp32_partitioned_groups_flat if is_third else zero.single_partition_of_fp32_groups
        for flat in flats:
            moments = {name: torch.zeros_like(flat) for name in MOMENTS}
            adam.state[flat] = {"step": torch.as_tensor(step).float().clone(), **moments}
        self._link_states()
        for index, parameter in enumerate(self._parameters):
            given = state["state"].get(index, {})
            for name in (*MOMENTS, COPY) if self.is_half else MOMENTS:
                if name in given:
                    shape = parameter.ds_shape if is_third else parameter.shape  # type: ignore[attr-defined]
                    value = from_rank_0(given[name], shape, torch.float32, parameter.device)
                    _set_state(parameter, value, name, is_third)

    def _link_states(self) -> None:
        """Lets DeepSpeed look up the states of stages 1 and 2 again, which it does only once."""
        zero = self.engine.optimizer
        if self.config.zero_stage < 3:
            zero._hp_optimizer_states_linked = False
            if zero.optimizer.state:
                zero._lazy_init_hp_params_optimizer_state()

    def _ds_config(self) -> dict[str, Any]:
        given = self.config.ds_config
        return {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": self.config.optim.grad_clip,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            # Of what is trained: with bf16 on, a frozen model's float32 adapters would be rounded too.
            "bf16": {"enabled": self.is_half},
            "steps_per_print": 10**9,
            **given,
            "zero_optimization": {"stage": self.config.zero_stage, **given.get("zero_optimization", {})},
        }


class ZeroOptimiser(Optimiser):
    """One use of a policy under DeepSpeed, with a learning rate and states of its own."""

    def __init__(self, zero: ZeroPolicy, lr: float) -> None:
        self._zero, self._lr = zero, lr
        self.pending: dict[str, Any] | None = None

    def begin(self, lr: float | None = None) -> None:
        self._zero.enter(self, self._lr if lr is None else lr)

    def backward(self, loss: Tensor, is_last: bool = True) -> None:
        # DeepSpeed takes the mean over ranks, where ours is a sum.
        self._zero.engine.set_gradient_accumulation_boundary(is_last)
        self._zero.engine.backward(loss * num_ranks())

    def norm(self) -> None:
        """None: DeepSpeed sums, clips and steps in one call."""

    def step(self) -> float:
        self._zero.engine.step()
        return float(self._zero.engine.get_global_grad_norm())

    def state_dict(self) -> dict[str, Any]:
        return self._zero.states(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pending = state  # used from the next step on


def _key(name: str) -> str | None:
    """The name of a state in DeepSpeed, which has none for weights in float32."""
    return None if name == COPY else name


def _set_state(parameter: nn.Parameter, value: Tensor, name: str, is_third: bool) -> None:
    """Gives each rank its part of a whole parameter's state."""
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    if not is_third:
        safe_set_full_optimizer_state(parameter, value, _key(name))
        return
    size = -(-value.numel() // num_ranks())
    padded = value.new_zeros(size * num_ranks())
    padded[: value.numel()] = value.flatten()
    rank = own_rank()
    safe_set_local_optimizer_state(parameter, padded[rank * size : (rank + 1) * size], _key(name))


def _import() -> Any:
    try:
        import deepspeed
        import deepspeed.ops
    except ImportError as error:
        raise MissingDependency(
            "learner.engine 'deepspeed' needs the package deepspeed.", 'Install "distrl[deepspeed]".'
        ) from error
    if tuple(int(part) for part in re.findall(r"\d+", deepspeed.__version__)[:3]) < (0, 19, 8):
        raise MissingDependency(
            f"DeepSpeed {deepspeed.__version__} applies updates with non-finite gradients.",
            'Run pip install "deepspeed>=0.19.8".',
        )
    # Ranks meet before. DeepSpeed would compile a transport over shared memory, which takes a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    return deepspeed
