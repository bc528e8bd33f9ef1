"""What became of each task: counted once, also over restarts, and readable by people."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_world import GroupWorld

from distrl.core.errors import StoreError
from distrl.core.types import Fault, Outcome
from distrl.learner.leases import AVOID_S, MAX_ATTEMPTS
from distrl.learner.task_sampling import TaskRecord, read_table, write_table

OPTIONS = {"group_size": 1, "max_staleness": 100}


def test_episodes_success_steps_and_faults_of_each_task(toy) -> None:
    world = GroupWorld(toy, **OPTIONS)
    leases = world.lease(10)
    task = leases[0].task
    mine = [lease for lease in leases if lease.task == task]
    world.finish(mine[0], 1.0, duration_s=3.0)
    world.finish(mine[1], 0.5, duration_s=5.0)
    more = [lease for lease in world.lease(10) if lease.task == task]
    world.finish(more[0], outcome=Outcome.UNJUDGED)
    world.finish(more[1], 1.0, fault=Fault.DEVICE)
    row = world.scheduler.task_table()[task.id]
    assert (row.template, row.episodes, row.judged, row.faults) == ("t", 3, 2, 1)
    assert (row.mean_success, row.mean_steps) == (0.75, 1.0)
    assert row.mean_seconds == pytest.approx(8 / 3)
    assert len(world.scheduler.task_table()) == 1, "others have no episode yet"


def test_expired_leases_and_episodes_given_up_are_counted(toy) -> None:
    world = GroupWorld(toy, **OPTIONS | {"episodes": 1})
    (lease,) = world.lease(1, "w0")
    world.wait(61.0)
    for attempt in range(1, MAX_ATTEMPTS):
        (lease,) = world.lease(1, f"w{attempt}")
        world.finish(lease, fault=Fault.ENV)
        world.now += AVOID_S
    row = world.scheduler.task_table()[lease.task.id]
    assert (row.expired, row.faults, row.abandoned, row.episodes) == (1, MAX_ATTEMPTS - 1, 1, 0)
    assert (row.mean_success, row.mean_steps, row.mean_seconds) == (None, None, None)


def test_evaluations_are_not_in_it(toy) -> None:
    world = GroupWorld(toy, **OPTIONS)
    world.scheduler.start_eval()
    for lease in world.lease(3):
        world.finish(lease, 1.0)
    assert world.scheduler.task_table() == {}


def test_a_restart_counts_what_came_in_after_the_checkpoint_once(toy) -> None:
    world = GroupWorld(toy, **OPTIONS)
    leases = world.lease(6)
    for lease in leases[:3]:
        world.finish(lease, 1.0)
    state = world.save()
    world.finish(leases[3], 0.0)
    world.commit(leases[4], fault=Fault.ENV)
    world.train()
    again = world.restart(state, "i1")
    assert again.scheduler.task_table() == world.scheduler.task_table()


def test_the_table_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    table = {"s/t/1": TaskRecord("t", episodes=3, judged=2, success=1.5, steps=9, seconds=2.5, faults=1)}
    write_table(path, table)
    assert read_table(path) == table
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "rule"), [(None, "There is no"), ("{", "cannot be read"), ('{"a": {"x": 1}}', "cannot be read")]
)
def test_what_is_no_table_is_one_clear_error(tmp_path: Path, text: str | None, rule: str) -> None:
    path = tmp_path / "tasks.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StoreError, match=rule) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
