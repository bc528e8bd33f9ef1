"""Engines that shard give the numbers of one process of torch, and each resumes what the other saved."""

from __future__ import annotations

import sys

import pytest
import torch
from rank_world import run_ranks

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import MissingDependency, PolicyError
from distrl.learner.sharding import _is_half
from distrl.learner.zero import ZeroPolicy

pytestmark = pytest.mark.timeout(600)

ENGINES = pytest.mark.parametrize(
    "engines",
    [["fsdp"], pytest.param(["1", "2", "3"], marks=pytest.mark.needs("deepspeed"))],
    ids=["fsdp", "zero"],
)


@ENGINES
@pytest.mark.parametrize("size", [1, 2])
def test_every_engine_has_the_losses_of_torch(size, engines, tmp_path) -> None:
    run_ranks("rank_sharded:compare", size, tmp_path, *engines, timeout_s=500.0)


@ENGINES
def test_checkpoints_pass_between_engines_and_numbers_of_ranks(engines, tmp_path) -> None:
    """One process of torch → two ranks of each engine → one process of torch."""
    run_ranks("rank_sharded:resume", 2, tmp_path, *engines, timeout_s=500.0)


@ENGINES
def test_a_gradient_that_is_not_finite_is_skipped(engines, tmp_path) -> None:
    run_ranks("rank_sharded:skip", 2, tmp_path, *engines, timeout_s=500.0)


@ENGINES
def test_a_loss_that_is_not_finite_is_skipped_after_its_parts(engines, tmp_path) -> None:
    run_ranks("rank_sharded:skip_in_parts", 1, tmp_path, *engines, timeout_s=500.0)


def test_without_deepspeed_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(MissingDependency, match=r"distrl\[deepspeed\]"):
        ZeroPolicy(torch.nn.Linear(2, 2), LearnerConfig(engine="deepspeed"))


def test_trained_weights_of_two_types_are_refused() -> None:
    """As AutoUI's fusion in bfloat16 beside adapters in float32: an engine would round the adapters."""
    policy = torch.nn.Sequential(torch.nn.Linear(2, 2, dtype=torch.bfloat16), torch.nn.Linear(2, 2))
    with pytest.raises(PolicyError, match=r"'fsdp' trains in one type.*policy\.dtype to float32"):
        _is_half(list(policy.parameters()), "fsdp")
