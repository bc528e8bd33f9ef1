"""The time of a run: when it begins, what is waiting, and what ends when it is over."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from learning_world import OPTIONS, build

from distrl.core import checkpoints
from distrl.core.metrics import read_metrics
from distrl.learner.parts import PEERS_S
from distrl.learner.updates import Updates


def hand_clock(learner, world) -> None:
    """The learner's clock goes on by a second with each look at the server."""
    now, play = [0.0], world.check

    def check() -> None:
        now[0] += 1.0
        play()

    world.check = check
    learner.parts.started, learner.parts.clock = 0.0, lambda: now[0]


def test_the_time_without_episodes_is_measured(toy, tmp_path, monkeypatch) -> None:
    learner, world = build(toy, tmp_path, phase="training")
    learner.updates.close()
    parts, now = learner.parts, [0.0]
    for lease in world.scheduler.grant("w", 20):
        trajectory = world.play(lease)
        world.store.add(trajectory, toy.pixels)
        parts.ingest.take(trajectory)

    def nothing_comes(timeout_s: float) -> int:
        now[0] += timeout_s
        return 0

    parts.clock = lambda: now[0]
    monkeypatch.setattr(parts.ingest, "drain", nothing_comes)
    updates = Updates(parts)
    updates.wait(3.0)
    now[0] += 1.0
    updates.make()
    updates.close()
    (row,) = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "loss/policy" in row]
    assert row["time/wait_for_episodes"] == 0.75


def test_rates_of_workers_count_from_where_the_runs_time_begins(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path)
    parts, asked = learner.parts, []
    now = [parts.started + 1000.0]
    parts.clock = lambda: now[0]
    world.check = lambda: None
    world.peer_metrics = lambda: asked.append(now[0]) or {"workers/alive": 1.0}
    parts.tend()
    assert not list(read_metrics(tmp_path / "metrics.jsonl")), "no trajectory has come yet"
    assert world.status["workers/alive"] == 1.0, "who watches sees what it waits for"
    asked.clear()
    parts.start_clock()
    parts.start_clock()
    for _ in range(3):
        now[0] += PEERS_S / 2
        parts.tend()
    start = parts.started + 1000.0
    assert asked == [start, start + PEERS_S]
    assert len(list(read_metrics(tmp_path / "metrics.jsonl"))) == 1


def test_time_that_ends_in_cloning_leaves_a_measured_warm_start(toy, tmp_path, caplog) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "updates": 500}
    learner, world = build(toy, tmp_path, demonstrations=demonstrations, max_minutes=1)
    hand_clock(learner, world)
    learner.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    cloned = [row["cloning_updates"] for row in rows if "loss/cloning" in row]
    assert cloned[:2] == [20.0, 40.0]
    assert 40 < cloned[-1] <= 60
    assert f"learner.max_minutes=1 are over after {cloned[-1]:.0f} of 500 cloning updates" in caplog.text
    assert learner.progress.updates == 0
    assert any("eval/val/success" in row for row in rows)
    assert checkpoints.pointed(tmp_path / "checkpoints", "final") == "step_0"
    assert world.over


def test_time_that_ends_in_the_critics_warm_up_ends_the_run(toy, tmp_path, caplog) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "critic_updates": 500}
    learner, world = build(toy, tmp_path, demonstrations=demonstrations, max_minutes=1)
    hand_clock(learner, world)
    learner.run()
    assert "of 500 updates of the critic's warm-up" in caplog.text
    assert learner.progress.updates == 0, "the policy must not learn from a critic that is not ready"
    assert world.over


def test_waiting_for_the_first_worker_costs_no_time(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, episodes=16, max_minutes=1)
    now, waits, play = [0.0], iter(range(5)), world.check

    def check() -> None:
        is_waiting = next(waits, None) is not None
        now[0] += 10.0 if is_waiting else 1.0
        if not is_waiting:
            play()

    world.check = check
    learner.parts.started, learner.parts.clock = 0.0, lambda: now[0]
    learner.run()
    assert learner.progress.updates == 8
    elapsed_s = learner.parts.elapsed_s()
    assert elapsed_s == now[0] - 51.0 > 0.0

    again, _ = build(toy, tmp_path, "i2", episodes=16)
    again.parts.load_state_dict(again.parts.checkpointer.load())
    now[0] += 1000.0
    again.parts.clock = lambda: now[0]
    assert 0.0 < again.parts.elapsed_s() <= elapsed_s
    again.parts.start_clock()
    kept_s = again.parts.elapsed_s()
    now[0] += 7.0
    assert again.parts.elapsed_s() == kept_s + 7.0
