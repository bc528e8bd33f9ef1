"""Which rank a process is, as launchers say it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")

from distrl.core.errors import ConfigError, RankError
from distrl.learner.ranks import Place, open_job, translated


def test_torchrun_s_variables_are_used() -> None:
    found = Place.given({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "h"})
    assert found == Place(3, 4, 1, "env://")
    assert Place.given({"WORLD_SIZE": "4"}) is None
    here = Place.given({"RANK": "1", "WORLD_SIZE": "2", "DISTRL_MEETING": "/tmp/m"})
    assert here == Place(1, 2, 0, "file:///tmp/m")


@pytest.mark.parametrize("environment", [{"RANK": "0"}, {"RANK": "x", "WORLD_SIZE": "2"}])
def test_half_a_launcher_is_refused(environment) -> None:
    with pytest.raises(ConfigError, match="RANK"):
        Place.given(environment)


def test_ranks_that_do_not_come_are_missed(tmp_path) -> None:
    with (
        pytest.raises(RankError, match="did not connect within 1 s"),
        open_job(Place(0, 2, 0, f"file://{tmp_path / 'meeting'}"), timeout_s=1.0),
    ):
        pass


def test_a_rank_without_a_gpu_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with (
        pytest.raises(RankError, match="Rank 1 has no GPU: its machine has 1 of them"),
        open_job(Place(1, 2, 1, f"file://{tmp_path / 'meeting'}"), timeout_s=1.0),
    ):
        pass


def test_only_errors_of_the_job_are_about_ranks() -> None:
    with pytest.raises(RankError, match="rank 3"), translated("rank 3"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer [127.0.0.1]:1")
    with pytest.raises(RuntimeError, match="out of memory"), translated("rank 3"):
        raise RuntimeError("CUDA out of memory")
