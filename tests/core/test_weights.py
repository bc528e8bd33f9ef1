"""Weights arrive whole and verified, or not at all."""

import random
import threading

import pytest
from weights_fake import FakeLearner

from distrl.core import weights
from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.sockets import Wire
from distrl.core.weights import WeightFetcher, WeightStore, describe, describe_chunks

DATA = random.Random(0).randbytes(1_000_003)
LIST_BYTES = 11 * 32  # of DATA in chunks of 100,000 bytes


@pytest.fixture
def learner():
    with Wire() as wire:
        learner = FakeLearner(wire)
        yield learner
        learner.stop()


@pytest.fixture
def fetcher(learner):
    return WeightFetcher(learner.wire, learner.channel.endpoint)


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000, 100_001, len(DATA)])
def test_all_sizes_arrive(learner, fetcher, size):
    info = learner.publish(DATA[:size])
    assert fetcher.fetch(info, 10.0) == DATA[:size]


def test_versions_follow_each_other(learner, fetcher):
    for version in range(4):
        data = DATA[version:]
        assert fetcher.fetch(learner.publish(data, version), 10.0) == data


def test_doubled_chunks_do_no_harm(learner, fetcher):
    learner.doubled = True
    for version in range(2):
        assert fetcher.fetch(learner.publish(DATA[version:], version), 10.0) == DATA[version:]


def test_a_fetch_that_ended_early_goes_on_where_it_was(learner, fetcher):
    info = learner.publish(DATA)
    learner.drop_after = 5
    with pytest.raises(NetworkError, match="did not arrive"):
        fetcher.fetch(info, 0.5)
    learner.drop_after, learner.asked = 10**9, []
    assert fetcher.fetch(info, 10.0) == DATA
    assert sorted(set(learner.asked)) == list(range(500_000, len(DATA), 100_000))


def test_lost_chunks_are_asked_for_again(learner, fetcher, monkeypatch):
    monkeypatch.setattr(weights, "RESEND_S", 0.1)
    info = learner.publish(DATA)
    learner.drop_after = 5
    threading.Timer(0.3, setattr, (learner, "drop_after", 10**9)).start()
    assert fetcher.fetch(info, 20.0) == DATA


def test_spoiled_bytes_are_never_returned(learner, fetcher):
    info = learner.publish(DATA)
    learner.spoil = True
    with pytest.raises(ProtocolError) as caught:
        fetcher.fetch(info, 10.0)
    assert caught.value.code == "digest"
    learner.spoil = False
    assert fetcher.fetch(info, 10.0) == DATA


def test_a_version_that_is_gone_fails_at_once(learner, fetcher):
    with pytest.raises(NetworkError, match="no longer keeps"):
        fetcher.fetch(describe(1, DATA), 60.0)


def test_a_stop_ends_a_fetch(learner, fetcher):
    learner.drop_after = 0
    with pytest.raises(NetworkError):
        fetcher.fetch(learner.publish(DATA), 60.0, is_stopping=lambda: bool(learner.asked))


def test_without_a_learner_a_fetch_ends_at_its_deadline():
    with Wire() as wire, pytest.raises(NetworkError):
        WeightFetcher(wire, "tcp://127.0.0.1:1").fetch(describe(1, DATA), 0.1)


def test_the_newest_versions_are_kept():
    store = WeightStore(keep=2)
    infos = [describe(version, bytes([version])) for version in range(3)]
    for version, info in enumerate(infos):
        store.publish(info, bytes([version]))
    assert [bytes(store.chunk(info.digest, 0, 1)) for info in infos[1:]] == [b"\1", b"\2"]
    with pytest.raises(ProtocolError):
        store.chunk(infos[0].digest, 0, 1)


def test_what_does_not_fit_its_description_is_not_published():
    with pytest.raises(ValueError, match="size_bytes"):
        WeightStore().publish(describe(1, b"12"), b"123")


def changed(data, *places):
    """`data` with other bytes at these places."""
    other = bytearray(data)
    for place in places:
        other[place] ^= 1
    return bytes(other)


def test_only_chunks_that_differ_are_fetched(learner, fetcher):
    assert fetcher.fetch(learner.publish(DATA, 1, listed=True), 10.0) == DATA
    for version in (2, 3):
        data = changed(DATA, 250_000, version * 300_000)
        info = learner.publish(data, version, listed=True)
        learner.num_bytes = 0
        assert fetcher.fetch(info, 10.0) == data
        assert learner.num_bytes == 2 * 100_000 + LIST_BYTES  # version 3 differs from 2 where 2 did from 1


def test_bytes_that_somebody_looks_at_do_not_change(learner, fetcher):
    versions = [changed(DATA, place) for place in range(4)]
    views = []
    for version, data in enumerate(versions):
        info = learner.publish(data, version, listed=True)
        learner.num_bytes = 0
        views.append(fetcher.fetch(info, 10.0))
        assert learner.num_bytes == (100_000 if version else len(DATA)) + LIST_BYTES
    assert views == versions


def test_what_came_of_a_version_that_was_passed_by_is_used(learner, fetcher):
    info = learner.publish(DATA, 1, listed=True)
    learner.drop_after = 1 + 5  # the list comes first
    with pytest.raises(NetworkError, match="did not arrive"):
        fetcher.fetch(info, 0.5)
    learner.drop_after = 10**9
    data = changed(DATA, 0)
    info = learner.publish(data, 2, listed=True)
    learner.num_bytes = 0
    assert fetcher.fetch(info, 10.0) == data
    assert learner.num_bytes == len(data) - 400_000 + LIST_BYTES


def test_a_memory_that_was_spoiled_is_not_used(learner, fetcher):
    fetcher.fetch(learner.publish(DATA, 1, listed=True), 10.0)
    data = changed(DATA, 0)
    info = learner.publish(data, 2, listed=True)
    learner.spoil = True
    with pytest.raises(ProtocolError):
        fetcher.fetch(info, 10.0)
    learner.spoil = False
    assert fetcher.fetch(info, 10.0) == data


def test_weights_of_another_size_are_fetched_whole(learner, fetcher):
    for version, size in enumerate((300_000, 300_001, 99_999, 100_000, 0, 300_000)):
        assert fetcher.fetch(learner.publish(DATA[:size], version, listed=True), 10.0) == DATA[:size]


def test_a_list_must_be_there_if_it_is_announced():
    info, chunk_list = describe_chunks(1, DATA, chunk_bytes=1000)
    assert len(chunk_list) == 32 * 1001
    with pytest.raises(ValueError, match="chunk_list"):
        WeightStore().publish(info, DATA)
    assert describe_chunks(1, DATA[:1000], chunk_bytes=1000) == (
        describe(1, DATA[:1000], chunk_bytes=1000),
        b"",
    )
