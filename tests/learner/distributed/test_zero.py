"""DeepSpeed's ZeRO gives the numbers of one process of torch, and each resumes what the other saved."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from rank_world import run_ranks

from distrl.core.errors import MissingDependency

pytestmark = pytest.mark.timeout(600)


def test_torch_on_two_ranks_has_the_losses_of_one(tmp_path) -> None:
    """20 updates of the embedded policy in float32, all weights and LoRA, to 1e-5."""
    run_ranks("rank_zero:compare", 2, tmp_path, "0", timeout_s=500.0)


@pytest.mark.needs("deepspeed")
@pytest.mark.parametrize("size", [1, 2])
def test_every_stage_of_zero_has_the_losses_of_torch(size, tmp_path) -> None:
    run_ranks("rank_zero:compare", size, tmp_path, "1", "2", "3", timeout_s=500.0)


@pytest.mark.needs("deepspeed")
def test_checkpoints_pass_between_engines_and_numbers_of_ranks(tmp_path) -> None:
    """One process of torch → two ranks of each stage → one process of torch."""
    run_ranks("rank_zero:resume", 2, tmp_path, timeout_s=500.0)


def test_without_deepspeed_the_extra_is_named(monkeypatch) -> None:
    import sys

    from distrl.configs.schema import LearnerConfig
    from distrl.learner.distributed.zero import ZeroPolicy

    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(MissingDependency, match=r"distrl\[deepspeed\]"):
        ZeroPolicy(None, LearnerConfig(engine="deepspeed"))
