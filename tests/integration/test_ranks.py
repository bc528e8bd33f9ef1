"""A learner of two ranks: it trains, ends with a clear error when a rank is killed, and goes on with one."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from role_processes import free_endpoints, served, small_run, start, start_node, step_of_latest, wait_for

from distrl.core import checkpoints
from distrl.core.errors import RankError
from distrl.core.metrics import read_metrics

DEADLINE_S = 240.0
EPISODES = 24


@pytest.mark.needs("torch")
def test_a_learner_goes_on_with_one_rank_after_a_rank_was_killed(tmp_path: Path) -> None:
    config = small_run(tmp_path, {"import_path": "counting_env:CountingEnv"}, episodes=EPISODES)
    run, spool = tmp_path / "runs" / "run", tmp_path / "spool"
    saved, log = run / "checkpoints", run / "logs" / "learner-rank-1.log"
    with served(config) as children:
        first = start(tmp_path, "first", "run-learner", str(config), "--set=learner.num_processes=2")
        worker = start(tmp_path, "worker", "run-worker", str(config), "--name", "w", "--spool", str(spool))
        children += [first, worker]
        wait_for(children, lambda: step_of_latest(saved) >= 3, "the checkpoint", DEADLINE_S)
        os.kill(int(re.search(r"rank 1 of 2, process (\d+)", log.read_text())[1]), signal.SIGKILL)
        assert first.wait(DEADLINE_S) == RankError.exit_code, first.log_file.read_text()[-3000:]
        said = first.log_file.read_text()
        assert "Rank 1 of the learner ended with signal 9" in said
        assert "--resume continues" in said
        made = step_of_latest(saved)
        assert made >= 3
        again = start(tmp_path, "again", "run-learner", str(config), "--resume")
        children.append(again)
        assert again.wait(DEADLINE_S) == 0, again.log_file.read_text()[-3000:]
    assert int(re.search(r"resumed after (\d+) updates", again.log_file.read_text())[1]) == made
    assert checkpoints.resolve(saved, "final").is_dir()
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "loss/policy" in row]
    assert max(row["step"] for row in rows) > made


ZERO = {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "engine",
    [
        {"engine": "fsdp"},
        pytest.param({"engine": "deepspeed", "ds_config": ZERO}, marks=pytest.mark.needs("deepspeed")),
    ],
    ids=["fsdp", "deepspeed"],
)
def test_a_learner_of_two_ranks_that_share_the_weights_completes_its_run(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    config = small_run(
        tmp_path,
        {"import_path": "counting_env:CountingEnv"},
        episodes=16,
        num_processes=2,
        micro_batch_tokens=24,
        **engine,
    )
    with served(config) as children:
        children += [
            start(tmp_path, "learner", "run-learner", str(config)),
            start(tmp_path, "worker", "run-worker", str(config), "--spool", str(tmp_path / "spool")),
        ]
        for child in children:
            assert child.wait(DEADLINE_S) == 0, child.log_file.read_text()[-3000:]
    assert "a learner of 2 ranks" in children[0].log_file.read_text()
    assert checkpoints.resolve(tmp_path / "runs" / "run" / "checkpoints", "final").is_dir()


@pytest.mark.needs("torch")
def test_the_ranks_of_two_hosts_are_started_by_torchrun(tmp_path: Path) -> None:
    """Two launches that know only where to meet; the second has no run directory."""
    config = small_run(tmp_path, {"import_path": "counting_env:CountingEnv"}, episodes=12)
    (meeting,) = free_endpoints(1)
    elsewhere = tmp_path / "elsewhere"
    command = ("run-learner", str(config))
    with served(config) as children:
        children += [
            start_node(tmp_path, 0, meeting, *command),
            start_node(tmp_path, 1, meeting, *command, "--set", f"runs_dir={elsewhere}"),
        ]
        log = children[0].log_file
        wait_for(children, lambda: "a learner of 2 ranks" in log.read_text(), "both are there", DEADLINE_S)
        children.append(
            start(tmp_path, "worker", "run-worker", str(config), "--spool", str(tmp_path / "spool"))
        )
        for child in children:
            assert child.wait(DEADLINE_S) == 0, child.log_file.read_text()[-3000:]
    assert "rank 1 of 2, process" in children[1].log_file.read_text()
    assert checkpoints.resolve(tmp_path / "runs" / "run" / "checkpoints", "final").is_dir()
    assert not elsewhere.exists()
