"""`distrl sweep` as a user runs it: real runs, one that fails, the whole interrupted and gone on with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: children end with their parent"),
    pytest.mark.timeout(900),
    pytest.mark.needs("torch", "transformers", "jinja2"),
]

DEADLINE_S = 300.0
BASE = """
tasks: {suite: "counting_suite:tasks"}
env: {import_path: "counting_env:CountingEnv"}
policy: {d_model: 32, num_layers: 1, num_heads: 2, d_ff: 64, image_size: [36, 72], grid: [2, 2]}
worker: {slots: 2}
evaluate: {slots: 2}
local: {workers: 1}
learner:
  episodes: 60
  batch_trajectories: 2
  min_replay: 4
  updates_per_episode: 0.5
  publish_every: 1
  checkpoint_every: 3
  eval_every: 10
  eval_episodes: 2
  keep_best: false
  demonstrations: {episodes: 4, updates: 4, batch_size: 8, critic_updates: 2}
"""
BROKEN_ENV = """
from counting_env import CountingEnv
from distrl.core.errors import ConfigError

class Nothing(CountingEnv):
    def __init__(self):
        raise ConfigError("There is no screen.", "Connect one.")
"""
SWEEP = """
base: base.yaml
set: {learner.replay.capacity: 16}
arms:
  broken: {env.import_path: "broken_env:Nothing"}
  lagging: {learner.policy_lag: 2}
seeds: [5]
minutes: 5
threshold: 0.0
"""


class SweepProcess:
    """A `distrl sweep` in `directory`; its output goes to a file."""

    def __init__(self, directory: Path, number: int, *options: str) -> None:
        self.out = directory / f"out-{number}.txt"
        command = [sys.executable, "-m", "distrl", "sweep", "try.yaml", *options]
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def output(self) -> str:
        return self.out.read_text()

    def finish(self) -> int:
        return self.process.wait(2 * DEADLINE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., SweepProcess]]:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "try.yaml").write_text(SWEEP)
    (tmp_path / "broken_env.py").write_text(BROKEN_ENV)
    started: list[SweepProcess] = []

    def _start(*options: str) -> SweepProcess:
        started.append(SweepProcess(tmp_path, len(started), *options))
        return started[-1]

    yield _start
    for sweep in started:
        sweep.process.kill()
        sweep.process.wait()


def test_a_sweep_goes_on_after_an_interruption_and_past_a_failure(tmp_path: Path, start) -> None:
    runs = tmp_path / "runs" / "try"
    log = runs / "lagging" / "seed-5.log"
    first = start()

    def is_training() -> bool:
        assert first.process.poll() is None, first.output
        return log.is_file() and "[training]" in log.read_text()

    until(is_training, "training", DEADLINE_S, details=lambda: first.output)
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(60.0) == 130, first.output
    assert "Waiting for the checkpoint of the run under way" in first.output
    assert "Continue with: distrl sweep" in first.output
    assert "broken, seed 5 failed" in first.output
    assert "There is no screen" in first.output, "the failed run's log is shown"
    assert (runs / "lagging" / "seed-5" / "checkpoints" / "latest").is_file()

    again = start()
    assert again.finish() == 11, again.output + log.read_text()[-3000:]
    assert "lagging seed 5 continues" in again.output
    assert "broken, seed 5 failed" in again.output
    assert "resumed after" in (runs / "lagging" / "seed-5" / "logs" / "learner.log").read_text()
    data = json.loads((runs / "results.json").read_text())
    arms = {arm["name"]: arm for arm in data["arms"]}
    assert (arms["broken"]["seeds"], arms["lagging"]["seeds"]) == ([], [5])
    assert arms["lagging"]["episodes"]["value"] >= 60
    assert 0.0 <= arms["lagging"]["after"]["value"] <= 1.0
    assert "| lagging | 1/1 |" in (runs / "table.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/seed-5/**/*")}

    last = start("--arms", "lagging")
    assert last.finish() == 0, last.output
    assert "starts" not in last.output
    assert "continues" not in last.output
    assert {path: path.stat().st_mtime_ns for path in runs.glob("*/seed-5/**/*")} == before
