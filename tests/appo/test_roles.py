"""Continuous control by real processes: a killed worker, a killed learner, and a run that is solved."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

import yaml
from appo_world import config_data
from role_processes import check_alive, free_endpoints, start, step_of_latest
from waiting import until

from distrl.core import checkpoints
from distrl.core.metrics import read_metrics
from distrl.core.process import Child

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: children end with their parent"),
    pytest.mark.timeout(600),
]
DEADLINE_S = 240.0


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.kill()


def write_config(folder: Path, **appo: object) -> Path:
    control, broadcast, weights = free_endpoints(3)
    data = config_data(**appo)
    data["network"] = {"control": control, "broadcast": broadcast, "weights": weights}
    data["learner"] |= {"checkpoint_every": 3, "lease_ttl_s": 60.0}
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump(data | {"name": "r", "runs_dir": str(folder / "runs")}))
    return file


def last_of(run: Path, name: str) -> float:
    return next(
        (row[name] for row in reversed(list(read_metrics(run / "metrics.jsonl"))) if name in row), 0.0
    )


def test_killed_workers_and_a_killed_learner_cost_only_time(tmp_path: Path, children: list[Child]) -> None:
    # No policy reaches 1.0, so the run cannot end before both are killed; the last learner is given -1.0.
    config, run = write_config(tmp_path, max_env_steps=10**9, stop_at_return=1.0), tmp_path / "runs" / "r"

    def begin(name: str, *arguments: str) -> Child:
        children.append(start(tmp_path, name, *arguments))
        return children[-1]

    def wait(holds: Callable[[], object], what: str, *alive: Child) -> None:
        until(holds, what, DEADLINE_S, lambda: check_alive(list(alive)))

    learner = begin("learner", "run-learner", str(config))
    first = begin("worker-a", "run-worker", str(config), "--name", "a")
    wait(lambda: step_of_latest(run / "checkpoints") >= 3, "a checkpoint", learner, first)

    os.kill(first.pid, signal.SIGKILL)
    second = begin("worker-b", "run-worker", str(config), "--name", "b")
    before = last_of(run, "env_steps")
    wait(lambda: last_of(run, "env_steps") > before, "another worker's steps", learner, second)

    os.kill(learner.pid, signal.SIGKILL)
    learner.wait(10.0)
    saved = checkpoints.pointed(run / "checkpoints", "latest")
    kept = json.loads((run / "checkpoints" / str(saved) / "state.json").read_text())["progress"]
    reachable = ("--set", "learner.algorithm.stop_at_return=-1.0")
    learner = begin("learner-2", "run-learner", str(config), "--resume", *reachable)
    wait(lambda: learner.poll() is not None, "the end of the run")
    assert learner.poll() == 0, learner.log_file.read_text()[-3000:]
    wait(lambda: second.poll() is not None, "the end of the worker")
    assert second.poll() == 0

    rows = list(read_metrics(run / "metrics.jsonl"))
    assert "resumed after" in learner.log_file.read_text()
    assert [row["step"] for row in rows if "resumed" in row] == [checkpoints.step_of(str(saved))]
    assert last_of(run, "env_steps") >= kept["env_steps"] > 0  # a confirmation may end it before more steps
    assert last_of(run, "gradients/rejected") == 0
    assert last_of(run, "solved/return") >= -1.0
    assert any("eval/return" in row for row in rows)
    final = checkpoints.resolve(run / "checkpoints", "final")
    assert (final / "policy" / "weights.safetensors").is_file()

    again = begin("learner-3", "run-learner", str(config), "--resume", *reachable)  # complete: no worker
    wait(lambda: again.poll() is not None, "the end of a complete run")
    assert again.poll() == 0, again.log_file.read_text()[-3000:]
    assert checkpoints.resolve(run / "checkpoints", "final") == final
