"""Several ranks are one learner: the numbers of one process, whoever has which share."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from rank_world import run_ranks


def test_ranks_update_as_one_process_does(tmp_path) -> None:
    """Metrics, priorities and weights, of every objective; also with fewer trajectories than ranks."""
    run_ranks("rank_updates:compare", 2, tmp_path)


def test_ranks_skip_a_batch_together_that_is_not_finite_on_one(tmp_path) -> None:
    run_ranks("rank_updates:skip", 2, tmp_path)
