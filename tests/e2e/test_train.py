"""`distrl train` as a user runs it: real processes, some of them killed, the whole stopped and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from waiting import until

from distrl.core.checkpoints import resolve

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: children end with their parent"),
    pytest.mark.timeout(600),
]

DEADLINE_S = 240.0
STOP_S = 5.0
CONFIG = """
name: small
policy: {d_model: 32, num_layers: 1, num_heads: 2, d_ff: 64, image_size: [36, 80]}
learner:
  episodes: 40
  batch_trajectories: 2
  min_replay: 4
  checkpoint_every: 4
  eval_every: 8
  eval_episodes: 2
  demonstrations: {episodes: 4, updates: 4, batch_size: 8, critic_updates: 2}
evaluate: {episodes: 2, slots: 2}
worker: {slots: 2}
local: {workers: 2, inference_servers: 1}
"""


class Train:
    """A `distrl train` process; what it prints goes to a file."""

    def __init__(self, directory: Path, number: int, *options: str) -> None:
        (directory / "config.yaml").write_text(CONFIG)
        self.run, self._out = directory / "runs" / "small", directory / f"out-{number}.txt"
        command = [sys.executable, "-m", "distrl", "train", "config.yaml", *options]
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def output(self) -> str:
        return self._out.read_text()

    def children(self) -> dict[int, str]:
        """Its living child processes: process id → role, e.g. "run-worker worker-0"."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
                words = child.cmdline()
                if "distrl" in words:
                    name = words[words.index("--name") + 1] if "--name" in words else ""
                    found[child.pid] = f"{words[words.index('distrl') + 1]} {name}".strip()
        return found

    def pid_of(self, role: str) -> int | None:
        return next((pid for pid, known in self.children().items() if known == role), None)

    def until(self, condition: Callable[[], object], what: str) -> None:
        def details() -> str:
            return f"{self.output}\n{self.logs()}"

        def check_alive() -> None:
            assert self.process.poll() is None, f"ended before {what}\n{details()}"

        until(condition, what, DEADLINE_S, check_alive, details)

    def logs(self) -> str:
        """The ends of all logs, for a failing test's message."""
        return "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in self.run.glob("logs/*.log"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Train]]:
    started: list[Train] = []

    def _start(*options: str) -> Train:
        started.append(Train(tmp_path, len(started), *options))
        return started[-1]

    yield _start
    for train in started:
        train.process.kill()
        train.process.wait()


@pytest.mark.needs("torch", "transformers", "jinja2")
def test_killed_processes_are_replaced_ctrl_c_keeps_a_checkpoint_and_resume_ends_with_a_report(
    start: Callable[..., Train],
) -> None:
    train = start("--set", "learner.episodes=100000")
    train.until(lambda: "[training]" in train.output, "training")
    server, *workers = ["serve-inference inference-0", "run-worker worker-0", "run-worker worker-1"]
    assert sorted(train.children().values()) == ["run-learner", *workers, server]
    for role in (workers[0], server):
        victim = train.pid_of(role)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        train.until(
            lambda role=role, victim=victim: train.pid_of(role) not in (None, victim), f"another {role}"
        )
    for name in ("worker-0", "inference-0"):
        assert f"{name} died (signal 9), replaced in" in train.output
    children = train.children()
    assert len(children) == 4
    train.process.send_signal(signal.SIGINT)
    assert train.process.wait(STOP_S) == 130
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert resolve(train.run / "checkpoints", "latest").is_dir()

    again = start("--resume", "--set", "learner.episodes=40")
    assert again.process.wait(DEADLINE_S) == 0, again.output + again.logs()
    assert "resumed after" in (train.run / "logs" / "learner.log").read_text()
    assert "exit code 0" not in again.output, "who leaves because the run is over has not died"
    assert re.search(r"test .*%.*n = 2", again.output)
    assert str(Path("runs/small/report.html")) in again.output
    report = json.loads((train.run / "report.json").read_text())
    assert set(report["evaluations"]) == {"warm start", "after training"}
