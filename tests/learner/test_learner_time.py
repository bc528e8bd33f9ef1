"""The time of a run: when it begins, what is waiting, and what ends when it is over."""

from __future__ import annotations

import pytest
from learning_world import OPTIONS, build

from distrl.core.metrics import read_metrics
from distrl.learner.checkpoint import restore
from distrl.learner.context import start_clock


def hand_clock(learner, world) -> None:
    """The learner's clock goes on by a second with each look at the server."""
    now, play = [0.0], world.check

    def check() -> None:
        now[0] += 1.0
        play()

    world.check = check
    learner.context.clock.now = lambda: now[0]


def test_the_limit_counts_neither_cloning_nor_the_critics_warm_up(toy, tmp_path) -> None:
    demonstrations = {**OPTIONS["demonstrations"], "updates": 200, "critic_updates": 200}
    learner, _ = build(toy, tmp_path, demonstrations=demonstrations, max_minutes=1)
    hand_clock(learner, learner.context.server)
    learner.run()
    assert learner.progress.updates > 0, "the warm start alone takes more than the limit"
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert max(row.get("cloning_updates", 0.0) for row in rows) == 200.0
    assert rows[-1]["time/online_s"] == pytest.approx(60.0, abs=2.0)
    assert learner.context.clock.elapsed_s() > 400.0, "the report's time is that of the whole run"


def test_the_share_of_waiting_is_none_of_the_warm_starts_time(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, episodes=40)
    hand_clock(learner, world)
    look, drain, waited = learner.context.clock.now, learner.context.ingest.drain, [0.0]

    def wait(timeout_s: float) -> int:
        waited[0] += timeout_s
        return drain(0.0)

    learner.context.ingest.drain = wait
    learner.context.clock.now = lambda: look() + waited[0]
    learner.run()
    first = next(row for row in read_metrics(tmp_path / "metrics.jsonl") if "time/wait_for_episodes" in row)
    assert first["time/wait_for_episodes"] == pytest.approx(1.0)


def test_the_limit_counts_a_run_and_its_resumptions_together(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, max_minutes=1)
    hand_clock(learner, world)
    play = world.check

    def check() -> None:
        play()
        if learner.context.clock.online_s() >= 40.0:
            world.stop.set()

    world.check = check
    learner.run()
    again, world = build(toy, tmp_path, "i2", max_minutes=1)
    restore(again.context, again.context.checkpointer.load())
    hand_clock(again, world)
    again.run()
    assert world.over
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert rows[-1]["time/online_s"] == pytest.approx(60.0, abs=2.0)


@pytest.mark.parametrize("phase", ["demonstrations", "critic warm-up", "training", "validation"])
def test_broadcasts_say_how_much_of_the_phase_is_done(toy, tmp_path, phase) -> None:
    learner, world = build(toy, tmp_path, episodes=64)
    seen, play = [], world.check

    def check() -> None:
        seen.append((world.phases[-1], world.status.get("phase/done"), world.status.get("phase/total")))
        play()

    world.check = check
    learner.run()
    totals = {"demonstrations": 12, "critic warm-up": 20, "training": 64, "validation": 4}
    numbers = [(done, total) for name, done, total in seen if name == phase]
    assert {total for _, total in numbers} == {totals[phase]}
    assert [done for done, _ in numbers] == sorted(done for done, _ in numbers)
    assert numbers[0][0] < numbers[-1][0] or len(numbers) == 1


def test_waiting_for_the_first_worker_costs_no_time(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, episodes=16, max_minutes=1)
    now, waits, play = [0.0], iter(range(5)), world.check

    def check() -> None:
        is_waiting = next(waits, None) is not None
        now[0] += 10.0 if is_waiting else 1.0
        if not is_waiting:
            play()

    world.check = check
    learner.context.clock.now = lambda: now[0]
    learner.run()
    assert learner.progress.updates == 8
    elapsed_s = learner.context.clock.elapsed_s()
    assert elapsed_s == now[0] - 51.0 > 0.0

    again, _ = build(toy, tmp_path, "i2", episodes=16)
    restore(again.context, again.context.checkpointer.load())
    now[0] += 1000.0
    again.context.clock.now = lambda: now[0]
    assert 0.0 < again.context.clock.elapsed_s() <= elapsed_s
    start_clock(again.context)
    kept_s = again.context.clock.elapsed_s()
    now[0] += 7.0
    assert again.context.clock.elapsed_s() == kept_s + 7.0
