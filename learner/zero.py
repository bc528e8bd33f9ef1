"""A policy whose optimiser states, gradients or weights are sharded over ranks by DeepSpeed's ZeRO.

The one file that imports deepspeed. Objectives call the policy through `ZeroPolicy.view`, since with stage 3
weights are gathered where the engine sees a call. Everything here is of all ranks together: each must make
the same calls in the same order. DeepSpeed's engine begins at the first call, after weights have been loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import MissingDependency, PolicyError
from distrl.core.policies.base import Generated, Policy, PromptBatch, States, TokenScores
from distrl.core.types import Sampling
from distrl.learner.optimisers import Optimiser, trainable
from distrl.learner.ranks import num_ranks

MOMENTS = ("exp_avg", "exp_avg_sq")


class ZeroPolicy:
    def __init__(self, policy: Policy, config: LearnerConfig) -> None:
        self._deepspeed = _import()
        self._policy, self._config = policy, config
        self._module = _Calls(policy)
        self._parameters = list(trainable(policy))
        self._is_half = _is_half(self._parameters)
        optim = config.optim
        self._adam = torch.optim.AdamW(self._parameters, lr=optim.lr, weight_decay=optim.weight_decay)
        self._groups = self._adam.state_dict()["param_groups"]
        self._engine: Any = None
        self._user: ZeroOptimiser | None = None
        self.view = cast(Policy, _View(self, policy))

    @property
    def is_sharded(self) -> bool:
        """Whether no rank has all weights at the moment."""
        return self._engine is not None and self._config.zero_stage == 3

    @property
    def engine(self) -> Any:
        """DeepSpeed's engine; it starts when first used."""
        if self._engine is None:
            self._engine = self._deepspeed.initialize(
                model=self._module, optimizer=self._adam, config=self._ds_config()
            )[0]
            self._module.eval()
        return self._engine

    def call(self, name: str, *arguments: Any) -> Any:
        """What the policy's method `name` returns, its records as tuples of tensors."""
        return self.engine(name, *arguments)

    def enter(self, user: ZeroOptimiser, lr: float) -> None:
        """Makes `user` the one whose steps follow. Only one has states: another begins afresh."""
        adam = self.engine.optimizer.optimizer
        if self._config.zero_stage == 3:  # which adds to the gradients of a step that was not made
            self.engine.optimizer._pre_step()
        if self._user is not user:
            adam.state.clear()
            self._link_states()
            self._user = user
            pending, user.pending = user.pending, None
            if pending is not None and pending["state"]:
                self._set_states(adam, pending)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr

    @contextmanager
    def gathered(self, is_full: bool, is_changed: bool = False) -> Iterator[None]:
        """A block within which every rank has all weights, or all of those that are trained.

        Args:
            is_changed: What rank 0 changes in the block, all ranks keep.
        """
        if not self.is_sharded:
            yield
            return
        wanted = list(self._policy.parameters()) if is_full else self._parameters
        with self._deepspeed.zero.GatheredParameters(wanted, modifier_rank=0 if is_changed else None):
            yield

    def states(self, user: ZeroOptimiser) -> dict[str, Any]:
        """AdamW's states of `user` of whole parameters, as torch writes them; none if it made no step."""
        found: dict[str, Any] = {"state": {}, "param_groups": self._groups}
        adam = None if self._engine is None else self._engine.optimizer.optimizer
        if adam is None or self._user is not user or not adam.state:
            return user.pending or found
        from deepspeed.utils import safe_get_full_optimizer_state

        step = next(iter(adam.state.values()))["step"].detach().clone().cpu()
        for index, parameter in enumerate(self._parameters):
            moments = {name: safe_get_full_optimizer_state(parameter, name).cpu() for name in MOMENTS}
            found["state"][index] = {"step": step, **moments}
        return found

    def _set_states(self, adam: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        step = next(iter(state["state"].values()))["step"]
        zero = self.engine.optimizer
        is_third = self._config.zero_stage == 3
        flats = zero.fp32_partitioned_groups_flat if is_third else zero.single_partition_of_fp32_groups
        for flat in flats:
            moments = {name: torch.zeros_like(flat) for name in MOMENTS}
            adam.state[flat] = {"step": torch.as_tensor(step).float().clone(), **moments}
        self._link_states()
        for index, parameter in enumerate(self._parameters):
            for name in MOMENTS:
                if index in state["state"]:
                    _set_moment(parameter, state["state"][index][name].float(), name, is_third)

    def _link_states(self) -> None:
        """Lets DeepSpeed look up the states of stages 1 and 2 again, which it does only once."""
        zero = self.engine.optimizer
        if self._config.zero_stage < 3:
            zero._hp_optimizer_states_linked = False
            if zero.optimizer.state:
                zero._lazy_init_hp_params_optimizer_state()

    def _ds_config(self) -> dict[str, Any]:
        given = self._config.ds_config
        return {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": self._config.optim.grad_clip,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            # Of what is trained: with bf16 on, a frozen model's float32 adapters would be rounded too.
            "bf16": {"enabled": self._is_half},
            "steps_per_print": 10**9,
            **given,
            "zero_optimization": {"stage": self._config.zero_stage, **given.get("zero_optimization", {})},
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


class _Calls(nn.Module):
    """Lets a call of one module be any of a policy's methods, with tensors in tuples, which hooks can see."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, name: str, *arguments: Any) -> Any:
        found = getattr(self.policy, name)(*arguments)
        if isinstance(found, TokenScores):
            return found.logprobs, found.entropy, *_flat(found.states)
        return _flat(found) if isinstance(found, States) else found


def _flat(states: States) -> tuple[Tensor | None, ...]:
    return states.hidden, states.mask, states.rows, states.ends


class _View:
    """The methods of a policy that objectives call, through DeepSpeed's engine."""

    def __init__(self, zero: ZeroPolicy, policy: Policy) -> None:
        self._zero, self._policy = zero, policy

    @property
    def device(self) -> torch.device:
        return self._policy.device

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        logprobs, entropy, *states = self._zero.call("score", batch, completions, mask, temperature)
        return TokenScores(logprobs, entropy, States(*states))

    def states(self, batch: PromptBatch) -> States:
        return States(*self._zero.call("states", batch))

    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        generated: list[Generated] = self._zero.call("generate", batch, sampling, generator)
        return generated


def _is_half(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether they are in bfloat16. DeepSpeed has one type for all that is trained."""
    types = {parameter.dtype for parameter in parameters}
    if torch.bfloat16 in types and len(types) > 1:
        raise PolicyError(
            f"learner.engine 'deepspeed' trains in one type, and of this policy in {len(types)}: "
            f"{', '.join(sorted(map(str, types)))}.",
            "Set policy.dtype to float32, or learner.engine to 'torch'.",
        )
    return torch.bfloat16 in types


def _set_moment(parameter: nn.Parameter, value: Tensor, name: str, is_third: bool) -> None:
    """Gives each rank its part of a whole parameter's moment."""
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    value = value.to(parameter.device)
    if not is_third:
        safe_set_full_optimizer_state(parameter, value, name)
        return
    size = -(-value.numel() // num_ranks())
    padded = value.new_zeros(size * num_ranks())
    padded[: value.numel()] = value.flatten()
    rank = torch.distributed.get_rank()
    safe_set_local_optimizer_state(parameter, padded[rank * size : (rank + 1) * size], name)


def _import() -> Any:
    try:
        import deepspeed
        import deepspeed.ops
    except ImportError as error:
        raise MissingDependency(
            "learner.engine 'deepspeed' needs the package deepspeed.", 'Install "distrl[deepspeed]".'
        ) from error
    # Ranks meet before. DeepSpeed would compile a transport over shared memory, which takes a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    return deepspeed
