"""When a batch runs (AcceRL eq. 1), with a clock that the test sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.workers.inference.batcher import Batcher
from distrl.workers.inference.server import ServerStats, quantile


def test_a_full_batch_runs_at_once() -> None:
    batcher = Batcher[int](max_batch=3, max_wait_s=1.0)
    assert batcher.wait_s(0.0) is None
    for number in range(3):
        batcher.offer(number, now=10.0)
        assert batcher.wait_s(10.0) == (0.0 if number == 2 else 1.0)
    assert [queued.item for queued in batcher.take()] == [0, 1, 2]
    assert batcher.wait_s(10.0) is None


def test_the_oldest_request_decides_how_long_a_small_batch_waits() -> None:
    batcher = Batcher[str](max_batch=8, max_wait_s=1.0)
    batcher.offer("old", now=10.0)
    batcher.offer("new", now=10.9)
    assert batcher.wait_s(10.9) == pytest.approx(0.1)
    assert batcher.wait_s(11.0) == 0.0
    assert [queued.item for queued in batcher.take()] == ["old", "new"]


@given(
    gaps=st.lists(st.floats(0, 3), max_size=60),
    max_batch=st.integers(1, 5),
    max_wait_s=st.floats(0, 2),
)
def test_an_idle_engine_starts_every_request_in_order_within_its_wait(
    gaps: list[float], max_batch: int, max_wait_s: float
) -> None:
    batcher = Batcher[int](max_batch, max_wait_s)
    now, taken = 0.0, []
    for number, gap in enumerate([*gaps, 1000.0]):
        arrival = now + gap
        while (wait := batcher.wait_s(now)) is not None and now + wait <= arrival:
            now += wait
            batch = batcher.take()
            assert 1 <= len(batch) <= max_batch
            assert now - batch[0].arrived_at <= max_wait_s + 1e-9
            taken += [queued.item for queued in batch]
        now = arrival
        if number < len(gaps):
            batcher.offer(number, now)
    assert taken == list(range(len(gaps)))


def test_statistics_of_batches() -> None:
    stats = ServerStats()
    assert stats.snapshot()["queue_wait_p99_ms"] == 0.0
    stats.batch(99)
    stats.batch(1)
    for _ in range(99):
        stats.answered(0.001, 0.01, 2)
    stats.answered(0.5, 0.02, 4)
    stats.swapped(0.003)
    stats.count(rejected=1, failed=4)
    found = stats.snapshot()
    assert (found["requests"], found["batches"], found["tokens"]) == (100, 2, 202)
    assert (found["rejected"], found["failed"], found["weight_swaps"]) == (1, 4, 1)
    assert (found["batch_size"], found["swap_pause_ms"]) == (50, 3)
    assert (found["queue_wait_p50_ms"], found["queue_wait_p99_ms"]) == (1, 1)
    assert quantile([1, 2, 3, 4], 0.76) == 4
