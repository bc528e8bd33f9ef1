from __future__ import annotations

import contextlib

import pytest
from virtual_world import Engine, Leases, make_world

from distrl.core.types import Branch, PastStep, Purpose

EPISODE_S = 4 * (0.25 + 1.0)  # three taps and COMPLETE: an answer and an action each


@contextlib.contextmanager
def playing(source, **options):
    with contextlib.closing(make_world(source, **options)) as world:
        yield world


def test_one_slot_takes_exactly_what_its_steps_take() -> None:
    source = Leases(2)
    with playing(source, simulate={"reset_s": 0.5}) as world:
        world.advance(100.0)
    assert [at for at, _ in source.ended] == [0.5 + EPISODE_S, 2 * (0.5 + EPISODE_S)]
    first = source.ended[0][1]
    assert (first.success, first.duration_s) == (1.0, 0.5 + EPISODE_S)
    assert [(step.timing.started_at, step.timing.think_s, step.timing.act_s) for step in first.steps[:2]] == [
        (0.5, 0.25, 1.0),
        (1.75, 0.25, 1.0),
    ]
    assert world.now == 100.0


@pytest.mark.parametrize(("servers", "max_batch", "per_s"), [(1, 1, 4.0), (2, 1, 8.0), (1, 2, 8.0)])
def test_where_servers_are_the_limit_they_decide_the_throughput(servers, max_batch, per_s) -> None:
    """64 slots ask for up to 51 answers a second; a server gives 4 batches a second."""
    with playing(
        Leases(),
        worker={"slots": 64},
        local={"workers": 1, "inference_servers": servers},
        inference={"max_batch": max_batch},
    ) as world:
        world.advance(50.0)
        start = world.moment()
        world.advance(100.0)
        found = world.since(start)
    assert found["workers/actions_per_s"] == pytest.approx(per_s, rel=0.02)
    assert found["inference/busy_share"] == pytest.approx(1.0, rel=0.01)
    # Little's law: 64 slots in a loop of one action, one answer and the queue.
    assert found["inference/queue_wait_p50_ms"] == pytest.approx(1000 * (64 / per_s - 1.25), rel=0.05)


def test_where_devices_are_the_limit_every_slot_adds_the_same() -> None:
    with playing(Leases(), worker={"slots": 2}, local={"workers": 4, "inference_servers": 8}) as world:
        world.advance(EPISODE_S * 10)
        found = world.since(type(world.moment())(0.0, dict.fromkeys(world.moment().totals, 0.0), 0))
    assert found["workers/actions_per_s"] == pytest.approx(8 / 1.25, rel=0.01)
    assert found["workers/idle_share"] == 0.0


def test_a_full_batch_runs_at_once_and_a_part_of_one_after_the_wait() -> None:
    source = Leases(3)
    inference = {"max_batch": 2, "engine": {"kind": "hf", "max_wait_ms": 500.0}}
    with playing(source, worker={"slots": 3}, inference=inference) as world:
        world.advance(3.0)
        assert [round(wait, 6) for wait in world._waits_s[:3]] == [0.0, 0.0, 0.5]


def test_an_answer_is_that_of_the_weights_that_the_server_has_when_it_starts() -> None:
    source, engine = Leases(8), Engine()
    with playing(source, engine=engine, worker={"slots": 8}, simulate={"publish_s": 0.3}) as world:
        for version in range(1, 60):
            world.load(version, {})
            world.advance(0.5)
    for _, trajectory in source.ended:
        for step in trajectory.steps:
            started_at = step.timing.started_at + step.timing.think_s - 0.25  # after the wait in the queue
            published = int((started_at - 0.3) / 0.5 + 1e-9) + 1 if started_at >= 0.3 - 1e-9 else 0
            assert step.chats[0].completion.weight_versions == (published,)
    assert len(source.ended) == 8


def test_requests_that_are_known_share_a_pass_of_the_policy() -> None:
    engine = Engine()
    with playing(Leases(16), engine=engine, worker={"slots": 16}, local={"inference_servers": 16}) as world:
        world.advance(EPISODE_S)
    assert engine.passes == [16] * 4


def test_nothing_is_answered_before_there_are_weights() -> None:
    source = Leases(1)
    with playing(source, engine=Engine(version=-1)) as world:
        world.advance(10.0)
        world.load(0, {})
        world.advance(EPISODE_S)
    assert [at for at, _ in source.ended] == [10.0 + EPISODE_S]


def test_stragglers_and_apps_are_slower_by_their_factor() -> None:
    slow, usual = Leases(1), Leases(1)
    with playing(slow, simulate={"stragglers": 1.0, "straggler_factor": 20.0}) as world:
        world.advance(100.0)
    with playing(usual, simulate={"app_factors": {"counter": 3.0}}) as world:
        world.advance(100.0)
    assert (slow.ended[0][0], usual.ended[0][0]) == (4 * 20.25, 4 * 3.25)


def test_slots_without_a_lease_are_idle() -> None:
    with playing(Leases(1), worker={"slots": 2}) as world:
        start = world.moment()
        world.advance(2 * EPISODE_S)
        assert world.since(start)["workers/idle_share"] == pytest.approx(0.75)


def test_with_a_barrier_slots_begin_together() -> None:
    source = Leases(6)
    with playing(source, worker={"slots": 3, "barrier": True}) as world:
        world.advance(100.0)
    ends = [at for at, _ in source.ended]
    starts = [trajectory.started_at for _, trajectory in source.ended]
    assert starts == [0.0] * 3 + [ends[2]] * 3
    assert ends[0] < ends[2]


def test_what_ends_a_slot_ends_the_world() -> None:
    env = {"import_path": "counting_env:CountingEnv", "options": {"no_such": 1}}
    with playing(Leases(1), env=env) as world, pytest.raises(Exception, match="no_such"):
        world.advance(1.0)


def test_a_failing_device_is_replaced_after_a_pause() -> None:
    env = {"import_path": "counting_env:CountingEnv", "options": {"fail_at": 2}}
    source = Leases(2)
    with playing(source, env=env) as world:
        world.advance(100.0)
    assert [trajectory.fault.value for _, trajectory in source.ended] == ["device", "device"]
    assert source.ended[1][0] - source.ended[0][0] == 1.0 + 0.25 + 1.0 + 0.25


def test_an_imagined_episode_takes_only_the_server_s_time_and_is_not_one_of_a_device() -> None:
    class Imagined(Leases):
        def lease(self, worker):
            past = tuple(PastStep(action={"kind": "tap", "point": (0.5, 0.5)}) for _ in range(2))
            branch = Branch(trajectory="real", past=past, horizon=5)
            lease = super().lease(worker)
            return lease and lease.model_copy(update={"purpose": Purpose.IMAGINED, "branch": branch})

    source = Imagined(2)
    with playing(source, simulate={"reset_s": 0.5}) as world:
        start = world.moment()
        world.advance(10.0)
        found = world.since(start)
    assert [at for at, _ in source.ended] == [0.5, 1.0], "a tap and COMPLETE, a quarter of a second each"
    assert [trajectory.success for _, trajectory in source.ended] == [1.0, 1.0]
    assert (found["workers/episodes_per_s"], found["workers/actions_per_s"]) == (0.0, 0.0)
    assert found["workers/imagined_per_s"] == 0.2
