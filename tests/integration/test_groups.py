"""A worker killed in the middle of a group of four: others finish the group, and the run. Real processes."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from role_processes import check_alive, free_endpoints, start, step_of_latest
from waiting import until

from distrl.core import checkpoints
from distrl.core.metrics import read_metrics
from distrl.core.process import Child, stop_all
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Purpose, Trajectory
from distrl.learner.task_statistics import read_table

DEADLINE_S = 240.0
EPISODES, SIZE = 48, 4
CONFIG = """
name: run
runs_dir: {runs}
tasks: {{suite: "counting_suite:tasks"}}
env: {{import_path: "held_env:HeldEnv", options: {{directory: {directory}}}}}
policy: {{d_model: 32, num_layers: 1, num_heads: 2, d_ff: 64, image_size: [36, 72], grid: [2, 2]}}
network: {{control: "{control}", broadcast: "{broadcast}", weights: "{weights}"}}
worker: {{slots: 2}}
learner:
  episodes: {episodes}
  group_size: {size}
  task_sampling: round_robin
  lease_ttl_s: 6
  batch_trajectories: 2
  min_replay: 4
  updates_per_episode: 0.5
  publish_every: 1
  checkpoint_every: 3
  eval_every: 8
  eval_episodes: 2
  replay: {{capacity: 16}}
  demonstrations: {{episodes: 4, updates: 4, batch_size: 8, critic_updates: 2}}
"""


def members(store: TrajectoryStore) -> dict[str, list[Trajectory]]:
    """Training episodes that came to an end, by group."""
    found: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in store.iterate(Purpose.TRAIN):
        if trajectory.fault is Fault.NONE:
            found[trajectory.group_id].append(trajectory)
    return found


@pytest.mark.needs("torch")
def test_a_worker_killed_in_the_middle_of_a_group(tmp_path: Path) -> None:
    control, broadcast, weights = free_endpoints(3)
    config = tmp_path / "config.yaml"
    config.write_text(
        CONFIG.format(
            runs=tmp_path / "runs", directory=tmp_path, control=control, broadcast=broadcast, weights=weights,
            episodes=EPISODES, size=SIZE,
        )
    )  # fmt: skip
    run, held = tmp_path / "runs" / "run", tmp_path / "held"
    learner = start(tmp_path, "learner", "run-learner", str(config))
    server = start(tmp_path, "server", "serve-inference", str(config))
    workers = {
        name: start(
            tmp_path, name, "run-worker", str(config), "--name", name, "--spool", str(tmp_path / "spool")
        )
        for name in ("w0", "w1")
    }
    children: list[Child] = [learner, server, *workers.values()]

    def wait_for(holds, what: str) -> None:
        until(
            holds, what, DEADLINE_S, meanwhile=lambda: check_alive(children),
            details=lambda: "\n".join(child.log_file.read_text()[-2000:] for child in children),
        )  # fmt: skip

    try:
        wait_for(lambda: step_of_latest(run / "checkpoints") >= 3, "training")
        (tmp_path / "armed").touch()
        wait_for(held.exists, "an episode that is held")
        pid, task = held.read_text().split()
        store = TrajectoryStore(run / "store.sqlite3")
        wait_for(
            lambda: any(len(m) < SIZE and m[0].task.id == task for m in members(store).values()),
            "another member of its group",
        )
        (victim,) = [name for name, child in workers.items() if child.pid == int(pid)]
        before = {t.id for t in store.iterate()}
        assert workers[victim].kill() == -signal.SIGKILL
        children.remove(workers.pop(victim))
        assert learner.wait(DEADLINE_S) == 0, learner.log_file.read_text()[-3000:]
        assert all(child.wait(DEADLINE_S) == 0 for child in (server, *workers.values()))
    finally:
        stop_all((child, 5.0) for child in children)

    groups = members(store)
    assert sum(map(len, groups.values())) >= EPISODES
    assert "" not in groups
    assert all(len({t.task.id for t in group}) == 1 for group in groups.values())
    spread = [
        group
        for group in groups.values()
        if group[0].task.id == task and len({t.id in before for t in group}) == 2
    ]
    assert len(spread) == 1, "the group that lost a member went on without its worker"
    assert len(spread[0]) == SIZE
    answers = [
        [tuple(c.completion.token_ids for s in t.steps for c in s.chats) for t in group]
        for group in groups.values()
    ]
    assert any(len(set(each)) > 1 for each in answers), "members of a group are sampled one by one"
    state = json.loads((checkpoints.resolve(run / "checkpoints", "latest") / "state.json").read_text())
    assert state["scheduler"]["groups"]["open"] == {}
    assert set(filter(None, state["replay"]["ids"])) <= set(state["ingest"]["groups"])
    rows = list(read_metrics(run / "metrics.jsonl"))
    assert max(row.get("scheduler/expired", 0.0) for row in rows) >= 1
    table = read_table(run / "tasks.json")
    assert table[task].expired >= 1
    assert sum(row.episodes for row in table.values()) == sum(map(len, groups.values()))
