"""Leases as a worker keeps them."""

import pytest

from distrl.core.messages import Lease, LeaseGrant
from distrl.core.types import Task
from distrl.workers import lease_book
from distrl.workers.lease_book import ANSWER_S, LeaseBook

TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(lease_book, "time", clock)
    return clock


@pytest.fixture
def book(clock):
    return LeaseBook()


def grant(*names, ttl_s=30.0):
    return LeaseGrant(leases=tuple(Lease(id=name, task=TASK, ttl_s=ttl_s) for name in names))


def test_it_asks_once_for_all_who_wait_until_there_is_an_answer(book, clock):
    assert book.num_to_ask() == 0
    book.num_waiting = 3
    assert book.num_to_ask() == 3
    assert book.num_to_ask() == 0
    book.granted(grant("a"), "run")
    assert book.num_to_ask() == 2


def test_a_lost_answer_is_asked_for_again(book, clock):
    book.num_waiting = 1
    book.num_to_ask()
    clock.now += ANSWER_S
    assert book.num_to_ask() == 1


def test_an_empty_grant_says_when_to_ask_again(book, clock):
    book.num_waiting = 1
    book.num_to_ask()
    book.granted(LeaseGrant(retry_after_s=2.0), "run")
    clock.now += 1.9
    assert book.num_to_ask() == 0
    clock.now += 0.2
    assert book.num_to_ask() == 1


def test_leases_at_work_are_renewed_and_others_not(book, clock):
    book.granted(grant("taken", "lying"), "run")
    assert book.take().id == "taken"
    clock.now += 11.0
    assert book.due_for_renewal() == ["taken"]
    assert book.due_for_renewal() == []
    clock.now += 11.0
    book.close("taken")
    assert book.due_for_renewal() == []


def test_a_lease_that_lay_too_long_is_not_taken(book, clock):
    book.granted(grant("a"), "run")
    clock.now += 16.0
    assert book.take() is None
    assert book.take_given_back() == ["a"]


def test_what_a_slot_gives_up_is_told_once(book):
    book.granted(grant("a", "b"), "run")
    book.take()
    book.give_back("a")
    book.give_back("unknown")
    assert book.take_given_back() == ["a"]
    assert book.take_given_back() == []
    assert book.due_for_renewal() == []


def test_who_leaves_gives_all_back_but_what_is_finished(book):
    book.granted(grant("finished", "at-work", "lying"), "run")
    book.take(), book.take()
    book.close("finished")
    book.give_all_back()
    assert book.take_given_back() == ["lying", "at-work"]
    assert not book.has_granted()


def test_another_run_voids_what_nobody_took(book):
    book.granted(grant("a", "c", "b"), "old")
    book.take(), book.take()
    book.give_back("c")
    book.reconnected("new")
    assert book.take_given_back() == []
    assert not book.has_granted()
    assert book.run_of("a") == "old"
    assert book.run_of("b") == ""
