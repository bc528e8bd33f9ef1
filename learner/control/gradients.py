"""Reading what a worker sends: checked as a whole before any of it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from distrl.configs.control import AppoConfig
from distrl.core.errors import PolicyError, ProtocolError
from distrl.core.messages import Gradient, RejectCode
from distrl.core.moments import Moments
from distrl.core.policies import weights_io
from distrl.core.policies.gaussian import GaussianPolicy, unpack_moments
from distrl.core.policies.local_ppo import Eta

Blob = bytes | memoryview
_RATE_SLACK = 1.0 + 1e-6


@dataclass(frozen=True)
class Change:
    """The payload of a gradient.

    Attributes:
        eta: η by parameter.
        observations, returns: Moments of what is new.
    """

    eta: Eta
    observations: Moments
    returns: Moments


def read_change(
    gradient: Gradient, blobs: Sequence[Blob], policy: GaussianPolicy, config: AppoConfig
) -> Change:
    """What `gradient` brings, if all of it fits `policy`.

    Raises:
        ProtocolError: The bytes have another SHA-256 ("digest"), or are no change of this policy: a tensor is
            missing, unknown or of another shape, a number is not finite, a count or the rate is impossible.
    """
    if len(blobs) != 1:
        raise _malformed(f"a gradient has one frame, {len(blobs)} came")
    if hashlib.sha256(blobs[0]).hexdigest() != gradient.digest:
        raise ProtocolError(RejectCode.DIGEST.value, "the gradient's bytes have another SHA-256 than it says")
    try:
        state = weights_io.from_bytes(bytearray(blobs[0]))
    except PolicyError as error:
        raise _malformed(error.message) from error
    own = policy.published_state()
    for name in own.keys() | state.keys():
        if name not in state or name not in own:
            raise _malformed(f"the tensor {name!r:.100} is {'missing' if name in own else 'unknown'}")
        if state[name].shape != own[name].shape or state[name].dtype != own[name].dtype:
            raise _malformed(
                f"{name} is {tuple(state[name].shape)} {state[name].dtype}, "
                f"expected {tuple(own[name].shape)} {own[name].dtype}"
            )
        if not bool(torch.isfinite(state[name]).all()):
            raise _malformed(f"{name} holds numbers that are not finite")
    observations, returns = unpack_moments(state)
    for moments in (observations, returns):
        if moments.count != gradient.num_steps or not np.all(moments.m2 >= 0.0):
            raise _malformed(f"its statistics are not those of {gradient.num_steps} steps")
    if not 0 < gradient.num_steps <= config.num_steps:
        raise _malformed(f"{gradient.num_steps} steps, a round has at most {config.num_steps}")
    if len(gradient.episodes) > gradient.num_steps:
        raise _malformed(f"{len(gradient.episodes)} episodes ended in {gradient.num_steps} steps")
    if gradient.lr > config.local_lr * _RATE_SLACK:
        raise _malformed(f"its rate {gradient.lr:g} is above learner.appo.local_lr={config.local_lr:g}")
    names = dict(policy.named_parameters())
    return Change({name: state[name] for name in names}, observations, returns)


def global_rate(config: AppoConfig, lr: float, staleness: int) -> float:
    """α_g for a change that was divided by α_l = `lr` and is `staleness` versions behind.

    Without `global_lr` it is α_l: a lone worker's change is taken over as it is. A rate of its own falls over
    the run as α_l does. `inverse` divides by 1 + staleness.
    """
    rate = lr if config.global_lr is None else config.global_lr * lr / config.local_lr
    return rate / (1.0 + staleness) if config.staleness_weight == "inverse" else rate


def _malformed(reason: str) -> ProtocolError:
    return ProtocolError(RejectCode.MALFORMED.value, reason)
