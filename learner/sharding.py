"""A policy of which each rank has a part: what DeepSpeed's ZeRO (zero.py) and torch's FSDP2 (fsdp.py) share.

Objectives call the policy through `ShardedPolicy.view`, because weights are gathered where the engine sees a
call. Everything here is of all ranks together: each must make the same calls in the same order. Rank 0 alone
keeps what is gathered, in main memory, one tensor after the other. An engine starts at the first call, with
rank 0's weights, so weights are loaded before that. One that shards weights needs them on rank 0 only, in
main memory: it gives each rank its part layer by layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import PolicyError
from distrl.core.policies import resolve_device
from distrl.core.policies.base import Generated, Policy, PromptBatch, States, TokenScores
from distrl.core.types import Sampling
from distrl.learner.optimisers import Optimiser, trainable
from distrl.learner.ranks import from_rank_0, own_rank

MOMENTS = ("exp_avg", "exp_avg_sq")


class ShardedPolicy(ABC):
    """A policy under an engine that shards it.

    Attributes:
        view: The policy as objectives call it.
        is_half: Whether what is trained is bfloat16 in the policy.
        is_started: Whether ranks have their parts.
        device: Where batches belong.
    """

    def __init__(self, policy: Policy, config: LearnerConfig) -> None:
        self.policy, self.config = policy, config
        self.device = torch.empty(0, device=resolve_device(config.device)).device
        self.is_started = False
        self._module = _Calls(policy)
        self.is_half = _is_half(list(trainable(policy)), config.engine)
        self.view = cast(Policy, _View(self))
        policy.is_joint = True

    @property
    def is_sharded(self) -> bool:
        """Whether weights are sharded, and not only gradients and optimiser states."""
        return self.config.zero_stage == 3

    @abstractmethod
    def start(self) -> None:
        """Gives each rank its part, unless it has it."""

    @abstractmethod
    def call(self, name: str, *arguments: Any) -> Any:
        """What the policy's method `name` returns, its records as tuples of tensors."""

    @abstractmethod
    def optimiser(self, lr: float) -> Optimiser:
        """AdamW over the policy, with states of its own."""

    @abstractmethod
    def _whole(self, parameter: nn.Parameter) -> Tensor:
        """A parameter in one piece, of the type that is published."""

    @abstractmethod
    def _set(self, parameter: nn.Parameter, whole: Tensor | None) -> None:
        """Gives a parameter the values that rank 0 has, the only one with `whole`."""

    def _kept(self, parameter: nn.Parameter, whole: Tensor | None) -> Tensor | None:
        """What `_give_back` needs; `whole` is the parameter in one piece, on rank 0."""
        return None if whole is None else whole.detach().clone()

    def _give_back(self, parameter: nn.Parameter, kept: Tensor | None) -> None:
        self._set(parameter, kept)

    def _whole_modules(self, are_float32: bool = False) -> Iterator[nn.Module]:
        """Each layer, then the policy, with rank 0's weights on the device, but for what is sharded by then.

        Args:
            are_float32: Whether what is trained becomes float32.
        """
        names = {
            name for one in self.policy.modules() for name in getattr(one, "_no_split_modules", None) or ()
        }
        layers = [module for module in self.policy.modules() if type(module).__name__ in names]
        for owner in self.policy.modules():
            for name, buffer in owner._buffers.items():
                if buffer is not None:
                    owner._buffers[name] = from_rank_0(buffer, buffer.shape, buffer.dtype, self.device)
        for module in (*layers, self._module):
            self._spread(module, are_float32)
            yield module

    def _spread(self, module: nn.Module, are_float32: bool) -> None:
        """Gives all ranks rank 0's weights of a module, but for those that are sharded already."""
        made: dict[nn.Parameter, nn.Parameter] = {}  # tied weights stay tied
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is None or isinstance(parameter, DTensor) or hasattr(parameter, "ds_id"):
                    continue
                if parameter not in made:
                    whole = from_rank_0(parameter.detach(), parameter.shape, parameter.dtype, self.device)
                    is_trained = parameter.requires_grad
                    made[parameter] = nn.Parameter(
                        whole.float() if are_float32 and is_trained else whole, requires_grad=is_trained
                    )
                owner._parameters[name] = made[parameter]

    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained, in the policy's order."""
        return list(trainable(self.policy))

    @contextmanager
    def gathered(self) -> Iterator[list[tuple[nn.Parameter, nn.Parameter | None]]]:
        """A block within which rank 0's policy has what is trained in one piece, in main memory.

        Yields:
            Each parameter that is trained, and on rank 0 what stands in for it. Nothing if no weights are
            sharded.
        """
        found: list[tuple[nn.Parameter, nn.Parameter | None]] = []
        for parameter in self.trained() if self.is_sharded and self.is_started else ():
            whole = self._whole(parameter)
            found.append((parameter, nn.Parameter(whole.cpu()) if own_rank() == 0 else None))
        wholes = {parameter: whole for parameter, whole in found if whole is not None}
        places = [
            (module, name, parameter)
            for module in (self.policy.modules() if wholes else ())
            for name, parameter in module._parameters.items()
            if parameter in wholes
        ]
        for module, name, parameter in places:
            module._parameters[name] = wholes[parameter]
        try:
            yield found
        finally:
            for module, name, parameter in places:
                module._parameters[name] = parameter

    @contextmanager
    def lent(self, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
        """A block within which all ranks have the weights that rank 0 gives, as `Policy.load_published`."""
        self.start()
        with self.gathered() as found:
            kept = [(parameter, self._kept(parameter, whole)) for parameter, whole in found]
            if weights is not None:
                self.policy.load_published(dict(weights))
        try:
            for parameter, whole in found:
                self._set(parameter, whole)
            yield
        finally:
            for parameter, own in kept:
                self._give_back(parameter, own)


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
    """The methods of a policy that objectives call, through the engine."""

    def __init__(self, sharded: ShardedPolicy) -> None:
        self._sharded = sharded

    @property
    def device(self) -> torch.device:
        return self._sharded.device

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        logprobs, entropy, *states = self._sharded.call("score", batch, completions, mask, temperature)
        return TokenScores(logprobs, entropy, States(*states))

    def states(self, batch: PromptBatch) -> States:
        return States(*self._sharded.call("states", batch))

    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        generated: list[Generated] = self._sharded.call("generate", batch, sampling, generator)
        return generated


def _is_half(parameters: Sequence[nn.Parameter], engine: str) -> bool:
    """Whether they are in bfloat16. Engines have one type for all that is trained."""
    types = {parameter.dtype for parameter in parameters}
    if torch.bfloat16 in types and len(types) > 1:
        raise PolicyError(
            f"learner.engine {engine!r} trains in one type, and of this policy in {len(types)}: "
            f"{', '.join(sorted(map(str, types)))}.",
            "Set policy.dtype to float32, or learner.engine to 'torch'.",
        )
    return torch.bfloat16 in types
