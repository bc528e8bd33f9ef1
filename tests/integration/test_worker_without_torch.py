"""A worker process on the simulated phone, on a machine that has only what the base install brings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from small_learner import SmallLearner

from distrl.configs.schema import Config
from distrl.core.messages import Lease
from distrl.core.types import Outcome, Purpose
from distrl.evaluator.suites import load_suite

# Extras `train`, `browser` and `report`: a base install has none of them.
ABSENT = [
    *("torch", "transformers", "tokenizers", "peft", "accelerate", "safetensors", "tensorboard"),
    *("selenium", "miniwob", "matplotlib", "jinja2"),
]
BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def blocked(folder: Path) -> dict[str, str]:
    """An environment in which Python finds none of them."""
    (folder / "sitecustomize.py").write_text(BLOCK)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


def test_a_worker_acts_on_phones_without_the_extras(tmp_path: Path) -> None:
    first_of_each = {task.template: task for task in reversed(load_suite("quickstart", "train"))}
    leases = [
        Lease(id=f"lease-{i}", task=task, purpose=Purpose.DEMO)
        for i, task in enumerate(first_of_each.values())
    ]
    with SmallLearner(leases, tmp_path) as learner:
        network = {"control": learner.endpoints.control, "broadcast": learner.endpoints.broadcast}
        config = Config.model_validate(
            {"network": network, "worker": {"slots": 2}, "runs_dir": str(tmp_path / "runs")}
        )
        (tmp_path / "config.yaml").write_text(config.to_yaml())
        environment = blocked(tmp_path)
        config_file = str(tmp_path / "config.yaml")
        command = [sys.executable, "-m", "distrl", "run-worker", config_file, "--set", "worker.slots=3"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            trajectories = learner.collect(len(leases))
            process.send_signal(signal.SIGINT)
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, log
    assert f"stopped; {len(leases)} episodes" in log
    (spool,) = (tmp_path / "runs" / ".spool" / config.name).glob("*.sqlite3")
    assert spool.name.endswith("-0.sqlite3"), "the first name of this host"
    assert {trajectory.slot for trajectory in trajectories} <= {0, 1, 2}
    assert {trajectory.task.template for trajectory in trajectories} == set(first_of_each)
    assert {trajectory.outcome for trajectory in trajectories} == {Outcome.SUCCESS}


def test_what_needs_an_extra_says_which(tmp_path: Path) -> None:
    """Also shows that the test above would notice an import of torch."""
    environment = blocked(tmp_path)
    command = [sys.executable, "-m", "distrl", "serve-inference", "quickstart"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 7
    assert result.stderr.splitlines()[-1] == (
        "error: This needs the package torch, which is not installed. "
        'Install the extra "train", e.g. pip install "distrl[train]".'
    )
