"""A worker killed in the middle of a group of four: others finish the group, and the run. Real processes."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from role_processes import served, small_run, start, step_of_latest, wait_for

from distrl.core import checkpoints
from distrl.core.metrics import read_metrics
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Purpose, Trajectory

DEADLINE_S = 240.0
EPISODES, SIZE = 32, 4


def members(store: TrajectoryStore) -> dict[str, list[Trajectory]]:
    """Training episodes that came to an end, by group."""
    found: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in store.iterate(Purpose.TRAIN):
        if trajectory.fault is Fault.NONE:
            found[trajectory.group_id].append(trajectory)
    return found


@pytest.mark.needs("torch")
def test_a_worker_killed_in_the_middle_of_a_group(tmp_path: Path) -> None:
    env = {"import_path": "held_env:HeldEnv", "options": {"directory": str(tmp_path)}}
    config = small_run(
        tmp_path,
        env,
        episodes=EPISODES,
        algorithm={"kind": "grpo", "group_size": SIZE},
        lease_ttl_s=3,
    )
    run, held = tmp_path / "runs" / "run", tmp_path / "held"
    with served(config) as children:
        learner = start(tmp_path, "learner", "run-learner", str(config))
        workers = {
            name: start(
                tmp_path, name, "run-worker", str(config), "--name", name, "--spool", str(tmp_path / "spool")
            )
            for name in ("w0", "w1")
        }
        children += [learner, *workers.values()]
        wait_for(children, lambda: step_of_latest(run / "checkpoints") >= 3, "training", DEADLINE_S)
        (tmp_path / "armed").touch()
        wait_for(children, held.exists, "an episode that is held", DEADLINE_S)
        pid, task = held.read_text().split()
        store = TrajectoryStore(run / "store.sqlite3")
        wait_for(
            children,
            lambda: any(len(m) < SIZE and m[0].task.id == task for m in members(store).values()),
            "another member of its group",
            DEADLINE_S,
        )
        (victim,) = [name for name, child in workers.items() if child.pid == int(pid)]
        before = {t.id for t in store.iterate()}
        assert workers[victim].kill() == -signal.SIGKILL
        children.remove(workers.pop(victim))
        assert learner.wait(DEADLINE_S) == 0, learner.log_file.read_text()[-3000:]
        assert all(child.wait(DEADLINE_S) == 0 for child in workers.values())

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
