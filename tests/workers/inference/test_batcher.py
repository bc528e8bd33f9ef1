"""When a batch runs (AcceRL eq. 1), with a clock that the test sets."""

from hypothesis import given
from hypothesis import strategies as st

from distrl.workers.inference.batcher import BatchQueue
from distrl.workers.inference.server import ServerStats


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def taken(queue: BatchQueue) -> list:
    return [queued.item for queued in queue.take(0.0)]


def test_a_full_batch_runs_at_once() -> None:
    queue = BatchQueue[int](3, 1.0, Clock())
    assert queue.wait_s() is None
    for number in range(3):
        queue.offer(number)
        assert queue.wait_s() == (0.0 if number == 2 else 1.0)
    assert taken(queue) == [0, 1, 2]
    assert queue.wait_s() is None


@given(gaps=st.lists(st.floats(0, 3), max_size=60), max_batch=st.integers(1, 5), max_wait_s=st.floats(0, 2))
def test_an_idle_engine_starts_every_request_in_order_within_its_wait(
    gaps: list[float], max_batch: int, max_wait_s: float
) -> None:
    clock, found = Clock(), []
    queue = BatchQueue[int](max_batch, max_wait_s, clock)
    for number, gap in enumerate([*gaps, 1000.0]):
        arrival = clock.now + gap
        while (wait := queue.wait_s()) is not None and clock.now + wait <= arrival:
            clock.now += wait
            batch = queue.take(0.0)
            assert len(batch) <= max_batch
            assert all(clock.now - one.arrived_at <= max_wait_s + 1e-9 for one in batch)
            found += [queued.item for queued in batch]
            if not batch:  # the sum of times was rounded down
                clock.now += 1e-9
        clock.now = arrival
        if number < len(gaps):
            queue.offer(number)
    assert found == list(range(len(gaps)))


def test_statistics_of_batches() -> None:
    stats = ServerStats()
    assert stats.snapshot()["queue_wait_p99_ms"] == 0.0
    stats.batch(99)
    stats.batch(1)
    for _ in range(99):
        stats.answered(0.001, 0.01, 2)
    stats.answered(0.5, 0.02, 4)
    found = stats.snapshot()
    assert (found["requests"], found["batches"], found["tokens"], found["batch_size"]) == (100, 2, 202, 50)
    assert (found["queue_wait_p50_ms"], found["queue_wait_p99_ms"], found["batch_p99_ms"]) == (1, 1, 10)
