"""Which GPUs the processes of a local run see: each its own, as far as there are enough.

    learner: the first `learner.num_processes`      inference servers: of the rest one each, or
                                                    `inference.engine.tensor_parallel_size`

With `local.gpus: colocated` the one server has the learner's. Servers for which nothing is left share what
the others have. What has no GPU of its own sees all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from distrl.cli.health.machine import query_gpus

if TYPE_CHECKING:
    from distrl.configs.schema import Config

VISIBLE = "CUDA_VISIBLE_DEVICES"

Places = dict[str, tuple[str, ...]]
"""By a program's name its GPUs, as `VISIBLE` names them."""


def visible(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs of this machine that CUDA may use."""
    named = environ.get(VISIBLE)
    if named is None:
        return query_gpus("index")[0]
    names = (name.strip() for name in named.split(","))
    return list(takewhile(lambda name: name not in ("", "-1"), names))  # as CUDA reads it


def for_training(config: Config, gpus: Sequence[str]) -> Places:
    """The GPUs of learner and inference servers; nothing where there is nothing to choose."""
    if len(gpus) < 2 or not may_choose(config):
        return {}
    places: Places = {}
    num_learner = 0
    if config.learner.device != "cpu":
        num_learner = config.learner.num_ranks
        places["learner"] = tuple(gpus[:num_learner])
    if config.policy.device != "cpu":
        rest, each = gpus[0 if config.local.gpus == "colocated" else num_learner :], width_of(config)
        blocks = _blocks(rest, each) or _blocks(gpus, each) or [tuple(gpus)]
        servers = range(config.num_servers)
        places |= {f"inference-{i}": blocks[i % len(blocks)] for i in servers}
    return places


def for_runs(gpus: Sequence[str], num_runs: int) -> list[tuple[str, ...]]:
    """Equal shares for runs at the same time; of fewer GPUs than runs one each, in turn."""
    if len(gpus) < 2 or num_runs < 2:
        return []
    blocks = _blocks(gpus, max(1, len(gpus) // num_runs))
    return [blocks[i % len(blocks)] for i in range(num_runs)]


def variables(mine: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables with which a program sees these GPUs only; without any, all."""
    if not mine:
        return {}
    # Numbers of ours are nvidia-smi's; those that the user let CUDA see are in the order that the user chose.
    order = {} if VISIBLE in environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {VISIBLE: ",".join(mine), **order}


def variables_by_role(wanted: Mapping[str, int], gpus: Sequence[str]) -> dict[str, dict[str, str]]:
    """By name the environment variables with which each program sees as many GPUs as it wants.

    Each gets its own as long as there are enough left. One that wants none sees all.
    """
    found, left = {}, list(gpus)
    for name, num in wanted.items():
        if len(left) < num:
            left = list(gpus)
        found[name] = variables(left[:num])
        left = left[num:]
    return found


def described(places: Places) -> str:
    """One line: which process has which."""
    return "GPUs: " + ", ".join(f"{name} {'+'.join(mine)}" for name, mine in places.items()) + "."


def may_choose(config: Config) -> bool:
    """Whether the configuration leaves it to us which GPUs its processes see."""
    return config.num_servers > 0 and {config.learner.device, config.policy.device} <= {"auto", "cuda", "cpu"}


def width_of(config: Config) -> int:
    """How many GPUs an inference server takes."""
    return config.inference.vllm.tensor_parallel_size if config.inference.engine.kind == "vllm" else 1


def _blocks(gpus: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """As many groups of `size` as there are."""
    return [tuple(gpus[i : i + size]) for i in range(0, len(gpus) - size + 1, size)]
