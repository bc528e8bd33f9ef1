"""The folder of shared weights: private, bounded, and never written to while somebody looks."""

import fcntl
import hashlib
import os
import random
from pathlib import Path

import pytest

from distrl.core import weight_share
from distrl.core.weight_share import WeightShare

ENDPOINT = "tcp://127.0.0.1:5702"
SIZE = 10_000


def weights(seed: int, size: int = SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(share: WeightShare, data: bytes) -> memoryview:
    assert share.try_lock()
    with share.reserve(name_of(data), len(data)) as slot:
        slot.write(0, memoryview(data))
        assert slot.view == data
    share.unlock()
    view = share.open(name_of(data), len(data))
    assert view is not None
    return view


def versions(root: Path) -> set[str]:
    (group,) = root.iterdir()
    return {path.name for path in group.iterdir()} - {"lock"}


@pytest.fixture
def share(tmp_path):
    made = WeightShare(ENDPOINT, tmp_path / "shared")
    yield made
    made.close()


@pytest.fixture
def other(share, tmp_path):
    made = WeightShare(ENDPOINT, tmp_path / "shared")
    yield made
    made.close()


@pytest.mark.parametrize("size", [0, 1, SIZE])
def test_what_one_puts_the_other_sees_read_only(share, other, size):
    data = weights(0, size)
    assert other.open(name_of(data), size) is None
    put(share, data)
    view = other.open(name_of(data), size)
    assert view == data
    assert view.readonly


def test_another_size_is_not_it(share):
    put(share, weights(0))
    assert share.open(name_of(weights(0)), SIZE + 1) is None


def test_one_at_a_time_fetches(share, other):
    assert share.try_lock()
    assert not other.try_lock()
    share.unlock()
    assert other.try_lock()


def test_what_fails_is_not_offered(share, other, tmp_path):
    digest = name_of(weights(0))

    def fetch() -> None:
        with share.reserve(digest, SIZE) as slot:
            slot.write(0, memoryview(weights(0)))
            assert other.is_fetching(digest)
            raise ZeroDivisionError

    assert share.try_lock()
    with pytest.raises(ZeroDivisionError):
        fetch()
    assert other.open(digest, SIZE) is None
    assert not other.is_fetching(digest)
    assert versions(tmp_path / "shared") == set()


def test_two_versions_stay_and_memory_is_used_again(share, other, tmp_path):
    root, inodes = tmp_path / "shared", set()
    for seed in range(6):
        assert put(share if seed % 2 else other, weights(seed)) == weights(seed)
        newest = {name_of(weights(number)) for number in range(max(0, seed - 1), seed + 1)}
        assert versions(root) == newest
        (group,) = root.iterdir()
        inodes |= {(group / name).stat().st_ino for name in newest}
    assert len(inodes) == 2


def test_the_newest_stays_where_file_times_are_coarse(share, tmp_path, monkeypatch):
    utime = os.utime

    def coarse(descriptor, times=None, *, ns=None):
        utime(descriptor, ns=ns or (10**18, 10**18))

    monkeypatch.setattr(os, "utime", coarse)
    for seed in range(6):
        put(share, weights(seed))
        if seed:
            assert versions(tmp_path / "shared") == {name_of(weights(seed - 1)), name_of(weights(seed))}


def test_what_somebody_looks_at_does_not_change(share, other, tmp_path):
    put(share, weights(0))
    old = other.open(name_of(weights(0)), SIZE)[5:]
    for seed in range(1, 6):
        put(share, weights(seed))
        assert len(versions(tmp_path / "shared")) == 2
    assert old == weights(0)[5:]


def test_versions_may_differ_in_size(share, other):
    for seed, size in enumerate([SIZE, SIZE * 3, 1, SIZE * 2, SIZE * 2, 7]):
        data = weights(seed, size)
        put(share, data)
        assert other.open(name_of(data), size) == data


def test_a_link_in_the_place_of_weights_is_refused(share, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(weights(0))
    (group,) = (tmp_path / "shared").iterdir()
    (group / name_of(weights(0))).symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        share.open(name_of(weights(0)), SIZE)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(PermissionError, match=f"{mode:04o}"):
        WeightShare(ENDPOINT, tmp_path)


def test_somebody_elses_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    tmp_path.chmod(0o700)
    with pytest.raises(PermissionError, match="owner"):
        WeightShare(ENDPOINT, tmp_path)


def test_a_link_to_a_folder_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(NotADirectoryError):
        WeightShare(ENDPOINT, tmp_path / "link")


def test_the_last_one_removes_the_files(tmp_path):
    first, second = (WeightShare(ENDPOINT, tmp_path / "shared") for _ in range(2))
    view = put(first, weights(0))
    first.close()
    assert second.open(name_of(weights(0)), SIZE) == weights(0)
    second.close()
    assert list((tmp_path / "shared").iterdir()) == []
    assert view == weights(0)


def test_what_killed_servers_left_is_removed(tmp_path):
    used = WeightShare("tcp://127.0.0.1:1", tmp_path / "shared")
    (left,) = (tmp_path / "shared").iterdir()
    (tmp_path / "shared" / "left").mkdir()
    (tmp_path / "shared" / "left" / "file").write_bytes(b"1")
    share = WeightShare(ENDPOINT, tmp_path / "shared")
    assert not (tmp_path / "shared" / "left").exists()
    assert left.exists()
    share.close()
    used.close()


def test_a_group_that_is_being_removed_is_not_waited_for_without_end(tmp_path, monkeypatch):
    share = WeightShare(ENDPOINT, tmp_path / "shared")
    (group,) = (tmp_path / "shared").iterdir()
    share.close()
    group.mkdir(mode=0o700)
    descriptor = os.open(group, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    monkeypatch.setattr(weight_share, "JOIN_S", 0.05)
    with pytest.raises(TimeoutError):
        WeightShare(ENDPOINT, tmp_path / "shared")
    os.close(descriptor)
    WeightShare(ENDPOINT, tmp_path / "shared").close()


def test_without_shared_memory_the_runtime_folder_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert weight_share.default_root().parent == tmp_path
