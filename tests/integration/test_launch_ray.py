"""Runs on three raylets of this machine, one of which is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray_nodes import NODE, OTHERS, ray_nodes
from typer.testing import CliRunner
from waiting import until

from distrl.cli.main import app
from distrl.core.metrics import read_metrics
from distrl.core.store import TrajectoryStore

pytestmark = [pytest.mark.needs("ray", "torch"), pytest.mark.timeout(300)]

CONFIG = """
name: {name}
runs_dir: {folder}
policy: {{d_model: 32, num_layers: 1, num_heads: 2, d_ff: 64, image_size: [36, 80]}}
network: {{control: "tcp://127.0.0.2:*", broadcast: "tcp://127.0.0.2:*", weights: "tcp://127.0.0.2:*",
          act: "tcp://127.0.0.2:*"}}
learner:
  episodes: {episodes}
  batch_trajectories: 2
  min_replay: 4
  lease_ttl_s: 5
  eval_episodes: 2
  demonstrations: {{episodes: 4, updates: 4, batch_size: 8, critic_updates: 2}}
worker: {{slots: 2}}
placement:
  learner: {{resources: {{"node:127.0.0.2": 0.001}}}}
  inference: {{resources: {{"node:127.0.0.2": 0.001}}}}
  workers: {{count: 2, resources: {{emulators: 1}}}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ray_nodes(tmp_path_factory.mktemp("r")) as nodes:
        yield nodes


def distrl(*arguments: str | Path, code: int = 0) -> str:
    """What `distrl launch …` prints."""
    result = CliRunner().invoke(app, ["launch", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def launched(tmp_path: Path, name: str, episodes: int, *options: str) -> tuple[Path, Path]:
    """A run that was just launched: its directory here, and that on the learner's node."""
    (tmp_path / "config.yaml").write_text(CONFIG.format(name=name, folder=tmp_path, episodes=episodes))
    distrl(tmp_path / "config.yaml", "--on", "ray", *options)
    return tmp_path / name, Path.home() / "distrl-runs" / name


def states(run: Path) -> dict[str, list[str]]:
    """By each process's name its state, and where it is."""
    lines = CliRunner().invoke(app, ["launch", "status", str(run)]).stdout.splitlines()
    return {words[0]: words[1:3] for words in map(str.split, lines)}


def stored(folder: Path) -> set[str]:
    """The trajectories that the learner has acknowledged, or is about to."""
    if not (folder / "store.sqlite3").exists():
        return set()
    store = TrajectoryStore(folder / "store.sqlite3")
    try:
        return set(store.ids())
    finally:
        store.close()


def test_a_run_survives_the_loss_of_a_node(cluster: Any, tmp_path: Path) -> None:
    run, folder = launched(tmp_path, "lost", episodes=60)

    def details() -> str:
        return CliRunner().invoke(app, ["launch", "status", str(run)]).output + distrl("logs", run)

    until(lambda: len(stored(folder)) >= 6, "the first trajectories", 120.0, details=details)
    state, host = states(run)["worker-1"]
    assert state == "running"
    before = stored(folder)
    cluster.remove_node(next(node for node in cluster.worker_nodes if node.node_ip_address == host))
    (other,) = {*OTHERS} - {host}
    # The manager may have been on that node: until it is back, there are no states.
    until(lambda: states(run).get("worker-1") == ["running", other], "the new place", 120.0, details=details)
    until(lambda: all(one[0] == "done" for one in states(run).values()), "the end", 180.0, details=details)
    assert before <= stored(folder)
    assert max(row.get("episodes", 0) for row in read_metrics(folder / "metrics.jsonl")) == 60
    assert "distrl.workers" in distrl("logs", run, "worker-1", "-n", "3")
    cluster.add_node(node_ip_address=host, **NODE)  # for the tests that follow


def test_stop_leaves_a_checkpoint_and_resume_continues(cluster: Any, tmp_path: Path) -> None:
    run, folder = launched(tmp_path, "stopped", episodes=100_000)
    until(lambda: len(stored(folder)) >= 6, "the first trajectories", 120.0, details=lambda: str(states(run)))
    refused = distrl(tmp_path / "config.yaml", "--on", "ray", "--resume", code=18)
    assert "still running" in refused
    distrl("stop", run)
    until(lambda: {one[0] for one in states(run).values()} == {"stopped"}, "the stop")
    assert (folder / "checkpoints" / "latest").exists()
    before = stored(folder)
    distrl(tmp_path / "config.yaml", "--on", "ray", "--resume")
    until(lambda: stored(folder) > before, "more trajectories", 120.0, details=lambda: str(states(run)))
    distrl("stop", run)
    until(lambda: {one[0] for one in states(run).values()} == {"stopped"}, "the second stop")
    distrl("stop", run)  # it is over: now its last actor goes
    assert {one[0] for one in states(run).values()} == {"lost"}


def test_a_learner_does_not_begin_again_where_its_run_is_not(cluster: Any, tmp_path: Path) -> None:
    run, folder = launched(tmp_path, "moved", episodes=100_000)
    until(lambda: states(run)["learner"][0] == "running", "the learner")
    distrl("stop", run)
    until(lambda: {one[0] for one in states(run).values()} == {"stopped"}, "the stop")
    folder.rename(folder.with_name("elsewhere"))
    distrl(tmp_path / "config.yaml", "--on", "ray", "--resume")
    until(lambda: states(run)["learner"][0] == "failed", "the refusal")
    shown = distrl("status", run, code=18)
    assert "where distrl-runs/moved is missing. Set placement.folder" in shown


def test_the_ranks_of_a_learner_on_two_nodes_meet_again_when_one_dies(cluster: Any, tmp_path: Path) -> None:
    run, folder = launched(  # the first node has no room for the other rank
        tmp_path, "ranks", 60, "--set=placement.learner.count=2", "--set=placement.learner.cpus=3"
    )

    def details() -> str:
        return CliRunner().invoke(app, ["launch", "status", str(run)]).output + distrl("logs", run)

    until(lambda: len(stored(folder)) >= 6, "the first trajectories", 120.0, details=details)
    state, host = states(run)["rank-1"]
    assert (state, host in OTHERS) == ("running", True)
    [rank] = [one for one in psutil.process_iter() if is_rank(one, folder.name)]
    rank.kill()
    until(lambda: {one[0] for one in states(run).values()} == {"done"}, "the end", 180.0, details=details)
    assert distrl("logs", run, "learner", "-n", "1000").count("a learner of 2 ranks") >= 2


def is_rank(process: psutil.Process, run: str) -> bool:
    """Whether it is rank 1 of the learner of a run."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        is_learner = "run-learner" in words and f"distrl-runs/{run}/config.yaml" in words
        return is_learner and process.environ().get("RANK") == "1"
    return False
