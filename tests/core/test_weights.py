"""Weights arrive whole and verified, or not at all."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import until

from distrl.core import weights
from distrl.core.errors import NetworkError, ProtocolError
from distrl.core.files import try_lock
from distrl.core.messages import ChunkRequest, WeightInfo
from distrl.core.sockets import Received, Wire
from distrl.core.weights import ChunkServer, HostFetcher, WeightFetcher, describe

DATA = random.Random(0).randbytes(1_000_003)
WAIT_S = 30.0


class FakeLearner(ChunkServer):
    """Drops, doubles or spoils some of the chunks on demand; `dropped` is set once one was dropped."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.channel = wire, wire.bind_router("tcp://127.0.0.1:0")
        super().__init__(self.channel)
        self.asked: list[int] = []
        self.drop_after, self.doubled, self.spoil = 10**9, False, False
        self.dropped = threading.Event()
        self.start()

    def _handle(self, received: Received) -> None:
        request = received.message
        assert isinstance(request, ChunkRequest)
        self.asked.append(request.offset)
        if len(self.asked) > self.drop_after:
            self.dropped.set()
            return
        for _ in range(2 if self.doubled else 1):
            super()._handle(received)

    def chunk(self, digest: str, offset: int, length: int) -> memoryview:
        data = super().chunk(digest, offset, length)
        return memoryview(bytes(len(data))) if self.spoil else data

    def offer(self, data: bytes, version: int = 1) -> WeightInfo:
        """Publishes `data` in chunks of 100,000 bytes."""
        info = describe(version, data, chunk_bytes=100_000)
        self.publish(info, data)
        return info


@pytest.fixture
def learner():
    with Wire() as wire:
        learner = FakeLearner(wire)
        yield learner
        learner.close()


@pytest.fixture
def fetcher(learner):
    return WeightFetcher(learner.wire, learner.channel.endpoint)


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000, 100_001, len(DATA)])
def test_all_sizes_arrive(learner, fetcher, size):
    info = learner.offer(DATA[:size])
    assert fetcher.fetch(info, 10.0) == DATA[:size]


def test_memory_is_used_again_when_no_view_of_it_is_left(learner, fetcher, monkeypatch):
    datas = [bytes([fill]) * len(DATA) for fill in range(3)]
    views = [fetcher.fetch(learner.offer(data, version), 10.0) for version, data in enumerate(datas[:2])]
    assert views == datas[:2]  # the second did not overwrite the first
    views.clear()
    monkeypatch.setattr(weights.np, "empty", None)  # no other memory
    assert fetcher.fetch(learner.offer(datas[2], 2), 10.0) == datas[2]


def test_doubled_chunks_do_no_harm(learner, fetcher):
    learner.doubled = True
    for version in range(2):
        assert fetcher.fetch(learner.offer(DATA[version:], version), 10.0) == DATA[version:]


def test_a_fetch_that_ended_early_goes_on_where_it_was(learner, fetcher):
    info = learner.offer(DATA)
    learner.drop_after = 5
    with pytest.raises(NetworkError, match="did not arrive"):
        fetcher.fetch(info, 0.5)
    learner.drop_after, learner.asked = 10**9, []
    assert fetcher.fetch(info, 10.0) == DATA
    assert sorted(set(learner.asked)) == list(range(500_000, len(DATA), 100_000))


def test_lost_chunks_are_asked_for_again(learner, fetcher, monkeypatch):
    monkeypatch.setattr(weights, "RESEND_S", 0.1)
    info = learner.offer(DATA)
    learner.drop_after = 5
    threading.Timer(0.3, setattr, (learner, "drop_after", 10**9)).start()
    assert fetcher.fetch(info, 20.0) == DATA


def test_spoiled_bytes_are_never_returned(learner, fetcher):
    info = learner.offer(DATA)
    learner.spoil = True
    with pytest.raises(ProtocolError) as caught:
        fetcher.fetch(info, 10.0)
    assert caught.value.code == "digest"
    learner.spoil = False
    assert fetcher.fetch(info, 10.0) == DATA


def test_a_version_that_is_gone_fails_at_once(learner, fetcher):
    with pytest.raises(NetworkError, match="no longer has"):
        fetcher.fetch(describe(1, DATA), 60.0)


def test_a_stop_ends_a_fetch(learner, fetcher):
    learner.drop_after = 0
    with pytest.raises(NetworkError):
        fetcher.fetch(learner.offer(DATA), 60.0, is_stopping=lambda: bool(learner.asked))


def test_without_a_learner_a_fetch_ends_at_its_deadline():
    with Wire() as wire, pytest.raises(NetworkError):
        WeightFetcher(wire, "tcp://127.0.0.1:1").fetch(describe(1, DATA), 0.1)


def test_the_newest_three_versions_are_kept(learner):
    infos = [learner.offer(bytes([version]), version) for version in range(4)]
    assert [bytes(learner.chunk(info.digest, 0, 1)) for info in infos[1:]] == [b"\1", b"\2", b"\3"]
    with pytest.raises(ProtocolError):
        learner.chunk(infos[0].digest, 0, 1)


def test_a_version_that_is_being_fetched_stays_until_it_has_been(learner, monkeypatch):
    infos = []
    for version in range(8):
        infos.append(learner.offer(bytes([version]), version))
        learner.chunk(infos[0].digest, 0, 1)
        learner.chunk(infos[max(0, version - 2)].digest, 0, 1)  # of others that are fetched, none stays
    monkeypatch.setattr(weights, "IN_USE_S", 0.0)
    infos.append(learner.offer(bytes([8]), 8))
    for info in infos[:6]:
        with pytest.raises(ProtocolError):
            learner.chunk(info.digest, 0, 1)
    assert [bytes(learner.chunk(info.digest, 0, 1)) for info in infos[6:]] == [b"\6", b"\7", b"\x08"]


# ---- servers of one host ----

# Fetches what it is given, and would never end.
HOLDER = """
import sys
from pathlib import Path
from distrl.core.messages import WeightInfo
from distrl.core.sockets import Wire
from distrl.core.weights import HostFetcher, WeightFetcher
endpoint, root, info = sys.argv[1:]
with Wire() as wire:
    fetcher = HostFetcher(WeightFetcher(wire, endpoint), endpoint, Path(root))
    fetcher.fetch(WeightInfo.model_validate_json(info), 600.0)
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def make(learner, root, monkeypatch):
    monkeypatch.setattr(weights, "RESEND_S", 600.0)  # a slow machine must not be served twice
    made = []

    def build():
        endpoint = learner.channel.endpoint
        made.append(HostFetcher(WeightFetcher(learner.wire, endpoint), endpoint, root))
        return made[-1]

    yield build
    for fetcher in made:
        fetcher.close()
    assert not list(root.glob("*/*"))


@pytest.fixture
def pool():
    with ThreadPoolExecutor() as pool:
        yield pool


def files(root: Path) -> set[str]:
    return {path.name for path in root.glob("*/*") if path.name != "lock"}


def test_one_copy_leaves_the_learner_and_memory_is_used_again(learner, make, root, pool):
    fetchers, inodes = [make() for _ in range(4)], set()
    for version in range(6):
        data = DATA[version:]
        info = learner.offer(data, version)
        learner.num_bytes = 0
        for future in [pool.submit(fetcher.fetch, info, WAIT_S) for fetcher in fetchers]:
            assert future.result(WAIT_S) == data
        assert learner.num_bytes == len(data)
        assert info.digest in files(root)
        inodes |= {path.stat().st_ino for path in root.glob("*/*")}
    assert len(inodes) == 3  # the lock, and two versions


def test_bytes_that_are_in_use_do_not_change(learner, make, root):
    first, second = make(), make()
    kept = first.fetch(learner.offer(DATA), WAIT_S)
    for version in range(1, 5):
        assert second.fetch(learner.offer(DATA[version:], version), WAIT_S) == DATA[version:]
        assert len(files(root)) == 2
    assert kept == DATA


def test_damaged_bytes_are_never_shared(learner, make, root):
    info = learner.offer(DATA)
    learner.spoil = True
    with pytest.raises(ProtocolError) as caught:
        make().fetch(info, WAIT_S)
    assert caught.value.code == "digest"
    assert files(root) == set()
    learner.spoil = False
    assert make().fetch(info, WAIT_S) == DATA


def test_a_killed_server_blocks_none(learner, make, root, pool):
    info = learner.offer(DATA)
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
    assert files(root) == {info.digest}


def test_a_server_that_stalls_is_not_waited_for(learner, make, root):
    fetcher = make()
    assert fetcher.fetch(learner.offer(DATA), WAIT_S) == DATA
    (group,) = root.iterdir()
    with try_lock(group / "lock"):
        assert fetcher.fetch(learner.offer(DATA[1:], 2), 0.2) == DATA[1:]


def test_a_slow_server_is_waited_for_as_long_as_it_goes_on(learner, make, pool, monkeypatch):
    info, gate, chunk = learner.offer(DATA), threading.Event(), learner.chunk
    monkeypatch.setattr(learner, "chunk", lambda *asked: gate.wait(WAIT_S) and chunk(*asked))
    first = pool.submit(make().fetch, info, WAIT_S)
    until(lambda: learner.asked, "the first request")
    patience_s = 1.0
    gate_at = time.monotonic() + 1.5 * patience_s

    def is_stopping() -> bool:
        if time.monotonic() > gate_at:
            gate.set()
        return False

    assert make().fetch(info, patience_s, is_stopping) == DATA
    assert first.result(WAIT_S) == DATA
    assert learner.num_bytes == len(DATA)


def test_superseded_weights_are_taken_only_while_they_are_fetched(learner, make, root):
    info, fetcher = learner.offer(DATA), make()
    assert fetcher.fetch(info, WAIT_S, is_superseded=lambda: True) is None
    (group,) = root.iterdir()
    with try_lock(group / "lock"):
        assert fetcher.fetch(info, WAIT_S, is_superseded=lambda: True) is None
        part, polls = group / f"{info.digest}.part", []
        part.write_bytes(DATA)

        def is_superseded() -> bool:
            polls.append(len(polls))
            if len(polls) == 3:
                part.rename(group / info.digest)
            return len(polls) < 3

        assert fetcher.fetch(info, WAIT_S, is_superseded=is_superseded) == DATA
        with pytest.raises(NetworkError, match="stopped"):
            fetcher.fetch(learner.offer(DATA[1:], 2), WAIT_S, is_stopping=lambda: True)
    assert learner.asked == []


@pytest.mark.parametrize("problem", ["open to others", "link", "no room"])
def test_without_a_usable_folder_each_fetches_on_its_own(learner, make, root, tmp_path, monkeypatch, problem):
    if problem == "open to others":
        root.mkdir()
        root.chmod(0o755)
    elif problem == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        root.symlink_to(tmp_path / "real")
    else:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", fail)
    fetchers = [make(), make()]
    for version in range(2):
        info = learner.offer(DATA[version:], version)
        assert [fetcher.fetch(info, WAIT_S) for fetcher in fetchers] == [DATA[version:]] * 2
    assert not any(fetcher.is_sharing for fetcher in fetchers)
    assert learner.num_bytes == 2 * (len(DATA) + len(DATA) - 1)


def test_the_next_server_removes_what_killed_ones_left(make, root):
    root.mkdir(mode=0o700)
    (root / "left").mkdir()
    (root / "left" / "file").touch()
    os.utime(root / "left", (0, 0))
    (root / "fresh").mkdir()
    (root / "gone").symlink_to(root / "meanwhile")
    assert make().is_sharing
    assert {path.name for path in root.iterdir()} == {"fresh", "gone"}


def test_a_digest_that_is_none_becomes_no_file_name(learner, make, tmp_path):
    info = learner.offer(DATA).model_copy(update={"digest": "../../file"})
    learner.publish(info, DATA)
    with pytest.raises(ProtocolError):
        make().fetch(info, WAIT_S)
    assert list(tmp_path.glob("file*")) == []
