"""A policy whose weights, gradients and optimiser states are sharded over ranks by torch's FSDP2.

A layer is gathered where it is called and freed afterwards; what is in no layer (embeddings, the output
layer) is gathered once per pass. Weights that are trained in bfloat16 are float32 in the parts, which AdamW
changes, and bfloat16 where they compute and are published.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from distrl.learner.optimisers import COPY, Optimiser
from distrl.learner.ranks import from_rank_0, num_ranks, own_rank
from distrl.learner.sharding import MOMENTS, ShardedPolicy

# Of layers that return views, such as T5's; transformers changes none of them in place.
warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)


class FsdpPolicy(ShardedPolicy):
    def start(self) -> None:
        if self.is_started:
            return
        mesh = init_device_mesh(self.device.type, (num_ranks(),))
        precision = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if self.is_half else None,
            reduce_dtype=torch.float32 if self.is_half else None,
            cast_forward_inputs=False,  # temperatures are among them
        )
        for module in self._whole_modules(are_float32=self.is_half):
            # The last one too, so that between passes all parameters are the parts.
            sharded = fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=True)
            sharded.set_force_sum_reduction_for_comms(True)
            sharded.set_gradient_divide_factor(1.0)  # gradients are sums, as with other engines
        self.is_started = True

    def call(self, name: str, *arguments: Any) -> Any:
        self.start()
        return self._module(name, *arguments)

    def optimiser(self, lr: float) -> Optimiser:
        return FsdpOptimiser(self, lr)

    @torch.no_grad()
    def whole(self, part: Tensor) -> Tensor:
        """A tensor of which ranks have parts, in one piece."""
        assert isinstance(part, DTensor)
        return part.full_tensor()

    def parts(self, whole: Tensor | None, like: Tensor) -> DTensor:
        """The tensor `whole` of rank 0, of which every rank gets the part that it has of `like`."""
        assert isinstance(like, DTensor)
        own = from_rank_0(whole, like.shape, like.dtype, self.device)
        return distribute_tensor(own, like.device_mesh, like.placements, src_data_rank=None)

    def _whole(self, parameter: nn.Parameter) -> Tensor:
        whole = self.whole(parameter)
        return whole.bfloat16() if self.is_half else whole

    @torch.no_grad()
    def _set(self, parameter: nn.Parameter, whole: Tensor | None) -> None:
        parameter.copy_(self.parts(whole, parameter))

    @torch.no_grad()
    def _kept(self, parameter: nn.Parameter, whole: Tensor | None) -> Tensor | None:
        assert isinstance(parameter, DTensor)
        return parameter.to_local().to("cpu", copy=True)

    @torch.no_grad()
    def _give_back(self, parameter: nn.Parameter, kept: Tensor | None) -> None:
        assert isinstance(parameter, DTensor)
        assert kept is not None
        parameter.to_local().copy_(kept)


class FsdpOptimiser(Optimiser):
    """AdamW over the parts: each rank steps with its own."""

    def __init__(self, sharded: FsdpPolicy, lr: float) -> None:
        self._sharded, self._lr = sharded, lr
        self._is_ready = False
        self._pending: dict[str, Any] | None = None

    def begin(self, lr: float | None = None) -> None:
        if not self._is_ready:
            self._sharded.start()
            optim = self._sharded.config.optim
            super().__init__(self._sharded.policy, self._lr, optim.weight_decay, optim.grad_clip)
            self._set_states((self._pending or {"state": {}})["state"])
            self._is_ready, self._pending = True, None
        super().begin(self._lr if lr is None else lr)

    def norm(self) -> float | None:
        total = nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self._norm = float(total.full_tensor() if isinstance(total, DTensor) else total)
        return self._norm

    def state_dict(self) -> dict[str, Any]:
        """See `Optimiser.state_dict`; rank 0 alone keeps the tensors."""
        found: dict[str, Any] = {"state": {}}
        if not self._is_ready:
            return self._pending or found
        for index, parameter in enumerate(self._parameters):
            own = self._adam.state.get(parameter)
            if not own:
                continue
            parts = {name: own[name] for name in MOMENTS}
            if self._sharded.is_half:
                parts[COPY] = parameter
            found["state"][index] = {"step": own["step"].detach().cpu()}
            for name, part in parts.items():
                whole = self._sharded.whole(part)
                if own_rank() == 0:
                    found["state"][index][name] = whole.cpu()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._pending, self._is_ready = state, False  # used from the next step on

    def _set_states(self, state: dict[int, dict[str, Any]]) -> None:
        for index, parameter in enumerate(self._parameters):
            if index not in state:
                continue
            given = state[index]
            moments = {name: self._sharded.parts(given.get(name), parameter) for name in MOMENTS}
            # Fused AdamW, as on GPUs, reads it on the device.
            step = torch.as_tensor(given["step"]).to(self._sharded.device, torch.float32, copy=True)
            self._adam.state[parameter] = {"step": step, **moments}
            if COPY in given and self._sharded.is_half:
                with torch.no_grad():
                    parameter.copy_(self._sharded.parts(given[COPY], parameter))
