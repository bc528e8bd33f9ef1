"""The prefetcher: order, errors, the end."""

from __future__ import annotations

import threading

import pytest

from distrl.learner.prefetch import Prefetcher


def test_batches_come_in_the_order_they_were_asked_for() -> None:
    prefetcher: Prefetcher[int, int] = Prefetcher(lambda x: x * x, depth=3)
    for number in (2, 3, 4):
        prefetcher.submit(number)
    assert [prefetcher.get(10.0) for _ in range(3)] == [4, 9, 16]
    assert prefetcher.num_pending == 0
    assert prefetcher.waited_s >= 0
    prefetcher.close()


def test_an_error_reaches_the_one_who_asked_and_the_thread_goes_on() -> None:
    prefetcher: Prefetcher[int, float] = Prefetcher(lambda x: 1 / x)
    prefetcher.submit(0)
    prefetcher.submit(2)
    with pytest.raises(ZeroDivisionError):
        prefetcher.get(10.0)
    assert prefetcher.get(10.0) == 0.5
    prefetcher.close()


def test_closing_drops_what_nobody_fetched() -> None:
    prefetcher: Prefetcher[int, float] = Prefetcher(lambda x: 1 / x)
    prefetcher.submit(0)
    prefetcher.close()
    assert prefetcher.num_pending == 0


def test_closing_does_not_fail_while_a_batch_takes_longer() -> None:
    """Whoever closes may be on the way out with an error of their own, which must not be hidden."""
    go_on = threading.Event()
    prefetcher: Prefetcher[int, bool] = Prefetcher(lambda _: go_on.wait(60.0))
    prefetcher.submit(0)
    prefetcher.close(timeout_s=0.01)
    go_on.set()
