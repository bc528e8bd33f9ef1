"""Servers of one host fetch each version once, and none of them waits for one that does not go on."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from weights_fake import FakeLearner

from distrl.core import shared_fetch, weights
from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.shared_fetch import SharedFetcher
from distrl.core.sockets import Wire
from distrl.core.weight_share import WeightShare
from distrl.core.weights import WeightFetcher

DATA = random.Random(0).randbytes(1_000_003)
WAIT_S = 30.0
# Fetches what it is told of, and would never end.
HOLDER = """
import sys
from pathlib import Path
from distrl.core.messages import WeightInfo
from distrl.core.shared_fetch import SharedFetcher
from distrl.core.sockets import Wire
from distrl.core.weights import WeightFetcher
endpoint, root, info = sys.argv[1:]
with Wire() as wire:
    fetcher = SharedFetcher(WeightFetcher(wire, endpoint), endpoint, Path(root))
    fetcher.fetch(WeightInfo.model_validate_json(info), 600.0)
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def learner(monkeypatch):
    monkeypatch.setattr(weights, "RESEND_S", 600.0)  # a slow machine must not be served twice
    with Wire() as wire:
        learner = FakeLearner(wire)
        yield learner
        learner.stop()


@pytest.fixture
def make(learner, root):
    made = []

    def build():
        endpoint = learner.channel.endpoint
        made.append(SharedFetcher(WeightFetcher(learner.wire, endpoint), endpoint, root))
        return made[-1]

    yield build
    for fetcher in made:
        fetcher.close()


@pytest.fixture
def holder(learner, root):
    """Another member, which may take the lock."""
    share = WeightShare(learner.channel.endpoint, root)
    yield share
    share.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor() as pool:
        yield pool


def test_one_copy_leaves_the_learner(learner, make, pool):
    fetchers = [make() for _ in range(4)]
    for version in range(4):
        data = DATA[version:]
        info = learner.publish(data, version)
        learner.num_bytes = 0
        for future in [pool.submit(fetcher.fetch, info, WAIT_S) for fetcher in fetchers]:
            assert future.result(WAIT_S) == data
        assert learner.num_bytes == len(data)


def test_damaged_bytes_are_never_shared(learner, make, holder):
    info = learner.publish(DATA)
    learner.spoil = True
    with pytest.raises(ProtocolError) as caught:
        make().fetch(info, WAIT_S)
    assert caught.value.code == "digest"
    assert holder.open(info.digest, info.size_bytes) is None
    learner.spoil = False
    assert make().fetch(info, WAIT_S) == DATA


def test_a_killed_server_blocks_nobody(learner, make, root, pool):
    info = learner.publish(DATA)
    learner.drop_after = 3
    command = [sys.executable, "-c", HOLDER, learner.channel.endpoint, str(root), info.model_dump_json()]
    process = subprocess.Popen(command)
    try:
        assert learner.dropped.wait(WAIT_S)
        polled = threading.Event()
        future = pool.submit(make().fetch, info, WAIT_S, lambda: bool(polled.set()))
        assert polled.wait(WAIT_S)
        assert not future.done()
        learner.drop_after = 10**9
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)
    assert future.result(WAIT_S) == DATA
    assert [path.name for path in root.glob("*/*") if path.name != "lock"] == [info.digest]


def test_a_server_that_shows_no_life_is_not_waited_for(learner, make, holder, monkeypatch):
    monkeypatch.setattr(shared_fetch, "HOLDER_S", 0.01)
    assert holder.try_lock()
    for version in range(2):
        assert make().fetch(learner.publish(DATA[version:], version), WAIT_S) == DATA[version:]
    holder.unlock()


def test_what_is_superseded_is_not_waited_for(learner, make, holder):
    info = learner.publish(DATA)
    fetcher = make()
    assert fetcher.fetch(info, WAIT_S, is_superseded=lambda: True) is None
    assert holder.try_lock()
    assert fetcher.fetch(info, WAIT_S, is_superseded=lambda: True) is None
    with holder.reserve("0" * 64, 1):
        assert fetcher.fetch(info, WAIT_S, is_superseded=lambda: True) is None
    holder.unlock()
    assert learner.asked == []


def test_what_is_being_fetched_is_taken_even_if_superseded(learner, make, holder, pool):
    info = learner.publish(DATA)
    polled = threading.Semaphore(0)
    assert holder.try_lock()
    with holder.reserve(info.digest, info.size_bytes) as slot:
        future = pool.submit(make().fetch, info, WAIT_S, is_superseded=lambda: not polled.release())
        for _ in range(3):
            assert polled.acquire(timeout=WAIT_S)
        slot.write(0, memoryview(DATA))
    assert future.result(WAIT_S) == DATA
    holder.unlock()
    assert learner.asked == []


def test_a_stop_ends_waiting(learner, make, holder):
    assert holder.try_lock()
    with pytest.raises(NetworkError, match="stopped"):
        make().fetch(learner.publish(DATA), WAIT_S, is_stopping=lambda: True)
    holder.unlock()


def test_in_a_folder_that_is_not_private_nobody_shares(learner, make, root, caplog):
    root.mkdir()
    root.chmod(0o755)
    fetchers = [make(), make()]
    assert [fetcher.fetch(learner.publish(DATA), WAIT_S) for fetcher in fetchers] == [DATA, DATA]
    assert learner.num_bytes == 2 * len(DATA)
    assert [record.message for record in caplog.records if "0755" in record.message] == caplog.messages
    assert len(caplog.messages) == 2
    assert list(root.iterdir()) == []


def test_without_room_each_fetches_on_its_own(learner, make, monkeypatch, caplog):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    fetcher = make()
    for version in range(2):
        assert fetcher.fetch(learner.publish(DATA[version:], version), WAIT_S) == DATA[version:]
    assert not fetcher.is_sharing
    assert len([message for message in caplog.messages if "No space left" in message]) == 1


def test_a_folder_that_somebody_removed_is_made_again(learner, make, root, caplog):
    first, second = make(), make()
    shutil.rmtree(root)
    for fetcher in (first, second):
        assert fetcher.fetch(learner.publish(DATA), WAIT_S) == DATA
        assert not fetcher.is_sharing
    learner.num_bytes = 0
    info = learner.publish(DATA[1:], 1)
    assert [fetcher.fetch(info, WAIT_S) for fetcher in (first, second)] == [DATA[1:], DATA[1:]]
    assert learner.num_bytes == len(DATA) - 1
    assert first.is_sharing
    assert len([message for message in caplog.messages if "until the next version" in message]) == 2


def test_a_folder_that_is_held_for_long_is_given_up(learner, make, monkeypatch, caplog):
    joins = []

    def fail(endpoint, root):
        joins.append(endpoint)
        raise TimeoutError(errno.ETIMEDOUT, "somebody has held the folder")

    monkeypatch.setattr(shared_fetch, "WeightShare", fail)
    fetcher = make()
    for version in range(5):
        assert fetcher.fetch(learner.publish(DATA[version:], version), WAIT_S) == DATA[version:]
    assert len(joins) == shared_fetch.MAX_FAILURES
    assert "until" not in caplog.messages[-1]


def test_a_digest_that_is_none_becomes_no_file_name(learner, make, tmp_path):
    info = learner.publish(DATA).model_copy(update={"digest": "../../file"})
    learner.store.publish(info, DATA)
    with pytest.raises(ProtocolError):
        make().fetch(info, WAIT_S)
    assert list(tmp_path.glob("file*")) == []


def test_only_chunks_that_differ_leave_the_learner_whoever_fetches(learner, make):
    fetchers = [make() for _ in range(2)]
    for version in range(4):
        data = bytes([version]) + DATA[1:]
        info = learner.publish(data, version, listed=True)
        learner.num_bytes = 0
        first, second = fetchers[version % 2], fetchers[(version + 1) % 2]
        assert first.fetch(info, WAIT_S) == data
        assert second.fetch(info, WAIT_S) == data
        # The list of this version, and that of the one before, which another server fetched.
        assert learner.num_bytes == (len(data) if version == 0 else 100_000 + 2 * 11 * 32)
