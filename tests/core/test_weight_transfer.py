"""Chunks come from holders if there are any that are of use, and no holder can do harm."""

import random
import threading

import pytest
from weights_fake import FakeLearner

from distrl.core import weight_transfer
from distrl.core.sockets import Wire
from distrl.core.weights import WeightFetcher

DATA = random.Random(0).randbytes(1_000_003)
LIST_BYTES = 11 * 32
WAIT_S = 30.0


@pytest.fixture
def wire():
    with Wire() as made:
        yield made


@pytest.fixture
def servers(wire):
    """A learner and two holders."""
    made = [FakeLearner(wire) for _ in range(3)]
    yield made
    for one in made:
        one.stop()


@pytest.fixture
def known():
    return []


@pytest.fixture
def fetch(wire, servers, known):
    """Publishes DATA everywhere and fetches it; gives the bytes that left each server."""
    made = WeightFetcher(wire, servers[0].channel.endpoint, lambda digest: known)
    infos = [one.publish(DATA, listed=True) for one in servers]

    def run():
        assert made.fetch(infos[0], WAIT_S) == DATA
        return [one.num_bytes for one in servers]

    yield run
    made.close()


def endpoints(*servers):
    return [one.channel.endpoint for one in servers]


def test_what_others_have_leaves_the_learner_only_as_a_list(servers, known, fetch):
    known += endpoints(*servers[1:])
    learner, first, second = fetch()
    assert learner == LIST_BYTES
    assert first + second == len(DATA)
    assert min(first, second) > 0


def test_a_holder_is_told_when_nothing_more_is_wanted(servers, known, fetch):
    known += endpoints(servers[1])
    fetch()
    told = threading.Event()
    for _ in range(500):
        if servers[1].num_done:
            break
        told.wait(0.01)
    assert servers[1].num_done == 1


def test_other_bytes_are_passed_over_and_come_from_somebody_else(servers, known, fetch, caplog):
    known += endpoints(*servers[1:])
    servers[1].spoil = True
    assert fetch()[0] in (LIST_BYTES, LIST_BYTES + len(DATA))
    assert any(servers[1].channel.endpoint in message for message in caplog.messages)


def test_if_all_holders_lie_the_learner_is_told_so(servers, known, fetch):
    known += endpoints(*servers[1:])
    servers[1].spoil = servers[2].spoil = True
    assert fetch()[0] == LIST_BYTES + len(DATA)
    assert servers[0].insisted == [False] + 11 * [True]


def test_a_holder_that_is_gone_or_falls_silent_is_passed_over(servers, known, fetch, monkeypatch):
    monkeypatch.setattr(weight_transfer, "HOLDER_S", 0.2)
    known += [
        *endpoints(servers[1]),
        "tcp://127.0.0.1:1",
        "tcp://192.0.2.1:5700",
    ]  # without keys not even tried
    servers[1].drop_after = 4
    learner, first, _ = fetch()
    assert first <= 4 * 100_000
    assert learner >= len(DATA) - first


def test_who_is_busy_is_left_for_another(servers, known, fetch):
    known += endpoints(*servers[1:])
    servers[1].busy = True
    assert fetch() == [LIST_BYTES, 0, len(DATA)]


def test_while_all_are_busy_somebody_else_is_waited_for(servers, known, fetch):
    known += endpoints(servers[1])
    servers[1].busy = True
    timer = threading.Timer(0.3, setattr, (servers[1], "busy", False))
    timer.start()
    assert fetch() == [LIST_BYTES, len(DATA), 0]


def test_if_they_stay_busy_the_learner_helps(servers, known, fetch, monkeypatch):
    monkeypatch.setattr(weight_transfer, "ALL_BUSY_S", 0.2)
    known += endpoints(servers[1])
    servers[1].busy = True
    assert fetch() == [LIST_BYTES + len(DATA), 0, 0]
    assert servers[0].insisted[-1]


def test_who_waits_for_the_learner_takes_holders_that_turn_up(servers, known, fetch):
    servers[0].busy = True
    timer = threading.Timer(0.3, known.extend, (endpoints(servers[2]),))
    timer.start()
    assert fetch() == [LIST_BYTES, 0, len(DATA)]
    assert not any(servers[0].insisted)


def test_weights_without_a_list_come_from_the_learner_alone(wire, servers, known):
    known += endpoints(servers[1])
    made = WeightFetcher(wire, servers[0].channel.endpoint, lambda digest: known)
    infos = [one.publish(DATA) for one in servers]
    assert made.fetch(infos[0], WAIT_S) == DATA
    assert servers[1].asked == []
    small = [one.publish(DATA[:1000], listed=True) for one in servers]  # the whole is its own chunk
    assert made.fetch(small[0], WAIT_S) == DATA[:1000]
    assert servers[1].num_bytes == 1000
    made.close()


def test_weights_that_a_holder_has_no_more_come_from_the_learner(wire, servers, known):
    known += endpoints(servers[1])
    made = WeightFetcher(wire, servers[0].channel.endpoint, lambda digest: known)
    assert made.fetch(servers[0].publish(DATA, listed=True), WAIT_S) == DATA
    assert servers[0].num_bytes == LIST_BYTES + len(DATA)
    made.close()
