"""`distrl launch` as a user runs it: on this machine, over ssh, and on a Slurm cluster of two nodes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from role_processes import free_endpoints
from slurm_cluster import SlurmCluster, slurm_cluster
from ssh_hosts import HOSTS, ssh_hosts
from waiting import until

from distrl.core.checkpoints import resolve
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.workers.spool import Spool

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: children end with their parent"),
    pytest.mark.needs("torch"),
    pytest.mark.timeout(600),
]

DEADLINE_S = 240.0
EPISODES = 20
CONFIG = f"""
name: small
policy: {{d_model: 32, num_layers: 1, num_heads: 2, d_ff: 64, image_size: [36, 80]}}
learner:
  episodes: {EPISODES}
  batch_trajectories: 2
  min_replay: 4
  checkpoint_every: 4
  eval_every: 100
  eval_episodes: 2
  lease_ttl_s: 5
  demonstrations: {{episodes: 4, updates: 4, batch_size: 8, critic_updates: 2}}
worker: {{slots: 2}}
local: {{workers: 2, inference_servers: 1}}
network:
  control: tcp://127.0.0.1:*
  broadcast: tcp://127.0.0.1:*
  weights: tcp://127.0.0.1:*
  act: tcp://127.0.0.1:*
"""


class Launch:
    """`distrl launch` in a directory and an environment."""

    def __init__(self, directory: Path, on: str, environment: Mapping[str, str] = os.environ) -> None:
        self._directory, self._on, self._environment = directory, on, environment
        self.run = directory / "runs" / "small"
        (directory / "config.yaml").write_text(CONFIG)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "distrl", "launch", *arguments],
            cwd=self._directory, env=self._environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *options: str) -> str:
        return self("config.yaml", "--on", self._on, *options)

    def states(self, *codes: int) -> dict[str, list[str]]:
        """By process its state and where it is."""
        done = subprocess.run(
            [sys.executable, "-m", "distrl", "launch", "status", str(self.run)],
            cwd=self._directory, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (codes or (0, 18)), done.stdout + done.stderr
        return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}

    def wait(self, state: str) -> None:
        """Waits until no process is left, which all are then in this state."""
        self("status", "--wait", str(self.run), code=0 if state == "done" else 18)
        states = self.states()
        assert {found[0] for found in states.values()} == {state}, f"{states}\n{self.tail()}"

    def tail(self) -> str:
        logs = self.run.rglob("*.log") if self.run.exists() else ()
        return "\n".join(f"== {log.name}\n{log.read_text()[-1500:]}" for log in logs)


def trained(run: Path) -> int:
    """How many training episodes the learner has taken."""
    if not (run / "store.sqlite3").exists():
        return 0
    return len(list(TrajectoryStore(run / "store.sqlite3").iterate(Purpose.TRAIN)))


def check_complete(run: Path, spools: Path) -> None:
    """The run has its result, no episode counted twice, and nothing waits for delivery.

    Episodes that a stopped run's workers still had in their spools may be more than its next goal needs.
    """
    assert resolve(run / "checkpoints", "final").is_dir()
    state = json.loads((resolve(run / "checkpoints", "latest") / "state.json").read_text())
    usable = [
        t for t in TrajectoryStore(run / "store.sqlite3").iterate(Purpose.TRAIN) if t.fault.value == "none"
    ]
    assert EPISODES <= state["scheduler"]["accounted"]["train"] <= len(usable)
    assert [len(Spool(file)) for file in spools.glob("worker-*.sqlite3")] == [0, 0]


def test_on_this_machine_a_run_outlives_its_launcher_and_is_stopped_and_resumed(tmp_path: Path) -> None:
    launch = Launch(tmp_path, "local")
    launch.start("--set=learner.episodes=100000")
    run = launch.run
    keys = sorted(path.name for path in (run / "launch" / "keys").glob("*.key"))
    assert keys == [f"{name}.key" for name in ("client", "inference-0", "server", "worker-0", "worker-1")]
    assert {stat.S_IMODE((run / "launch" / "keys" / key).stat().st_mode) for key in keys} == {0o600}
    until(lambda: trained(run) >= 2, "training episodes", DEADLINE_S, details=launch.tail)
    assert "still running" in launch("config.yaml", "--on", "local", "--resume", code=18)
    [worker] = [one for one in psutil.process_iter() if is_worker(one, run)]
    worker.kill()
    until(lambda: any(is_worker(one, run) for one in psutil.process_iter()), "its replacement")
    launch("stop", str(run))
    launch.wait("stopped")
    wanted = f"--set=learner.episodes={trained(run) + 10}"
    launch.start("--resume", wanted)
    launch.wait("done")
    assert len(launch.states(0)) == 4
    check_complete(run, run / "spool")
    assert "phase: done" in launch("logs", str(run), "learner")
    assert "is complete" in launch("config.yaml", "--on", "local", "--resume", wanted)


def is_worker(process: psutil.Process, run: Path) -> bool:
    """Whether it is worker-0 of a run."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "run-worker" in words and "worker-0" in words and f"{run}/config.yaml" in words


def test_over_ssh_each_host_gets_what_its_processes_need(tmp_path: Path) -> None:
    with ssh_hosts(tmp_path) as environment:
        launch = Launch(tmp_path, "ssh", environment)
        addresses = zip(("control", "broadcast", "weights"), free_endpoints(3), strict=True)
        launch.start(
            *(f"--set=network.{name}={address}" for name, address in addresses),
            f"--set=placement.hosts={list(HOSTS)}",
            f"--set=placement.python={sys.executable}",
            "--set=placement.folder=there",
        )
        first, second = (tmp_path / host / "there" / "small" for host in HOSTS)
        states = launch.states(0)
        assert [found[1] for found in states.values()] == [HOSTS[0], HOSTS[0], HOSTS[0], HOSTS[1]]
        secrets = [
            sorted(path.name for path in (there / "launch" / "keys").glob("*.key"))
            for there in (first, second)
        ]
        assert secrets == [["inference-0.key", "server.key", "worker-0.key"], ["worker-1.key"]]
        assert {stat.S_IMODE(file.stat().st_mode) for file in (second / "launch" / "keys").iterdir()} == {
            0o600
        }
        try:
            until(lambda: trained(first) >= 2, "training episodes", DEADLINE_S, details=launch.tail)
            assert "connected to run" in launch("logs", str(launch.run), "worker-1", "-n", "100")
            launch.wait("done")
        finally:
            launch("stop", str(launch.run))
        assert resolve(first / "checkpoints", "final").is_dir()
        assert len(list((second / "spool").glob("worker-1.sqlite3"))) == 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    (tmp_path / "slurm").mkdir()
    with slurm_cluster(tmp_path / "slurm") as cluster:
        yield cluster


@pytest.mark.needs("slurm")
def test_on_slurm_a_worker_comes_back_after_its_node_fails(tmp_path: Path, cluster: SlurmCluster) -> None:
    launch = Launch(tmp_path, "slurm", cluster.environment)
    run = launch.run
    launch.start(
        "--set=placement.learner={cpus: 2, options: [--nodelist=n1]}",
        "--set=placement.inference={cpus: 2, options: [--nodelist=n1]}",
        "--set=placement.workers={cpus: 2}",
        "--set=learner.episodes=60",
    )
    until(lambda: trained(run) >= 4, "training episodes", DEADLINE_S, details=launch.tail)
    states = launch.states(0)
    assert [found[1] for found in states.values()] == ["n1", "n1", "n2", "n2"]
    before = TrajectoryStore(run / "store.sqlite3").ids()
    cluster.kill_node("n2")
    until(lambda: launch.states()["worker-0"][:2] == ["running", "n1"], "worker-0 on n1", DEADLINE_S)
    launch.wait("done")
    assert TrajectoryStore(run / "store.sqlite3").ids()[: len(before)] == before
    check_complete(run, run / "spool")
    assert "phase: done" in launch("logs", str(run), "learner")


@pytest.mark.needs("slurm")
def test_on_slurm_the_learner_queues_again_after_its_checkpoint_unless_the_run_was_stopped(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    launch = Launch(tmp_path, "slurm", cluster.environment)
    run = launch.run
    launch.start("--set=learner.episodes=100000")
    until(lambda: trained(run) >= 4, "training episodes", DEADLINE_S, details=launch.tail)
    jobs = json.loads((run / "launch" / "backend.json").read_text())["jobs"]
    # As Slurm does ten minutes before the end.
    cluster.client("scancel", "--batch", "--signal=TERM", jobs["learner"])
    until(lambda: "resumed after" in (run / "logs" / "learner.log").read_text(), "the learner", DEADLINE_S)
    taken = trained(run)
    until(
        lambda: trained(run) >= taken + 4,
        "episodes for the learner's next job",
        DEADLINE_S,
        details=launch.tail,
    )
    launch("stop", str(run))
    launch.wait("stopped")
    until(lambda: not cluster.client("squeue", "-h"), "an empty queue")
