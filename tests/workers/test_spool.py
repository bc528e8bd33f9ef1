"""The spool keeps what is not acked, on disk, in order."""

import threading

import pytest
from waiting import until

from distrl.core.errors import StoreError
from distrl.core.packing import unpack_trajectory
from distrl.core.types import Task, Trajectory
from distrl.workers.spool import Spool

TASK = Task(
    id="q/t/1", suite="q", template="t", split="train", goal="Do it", params={"list": [1, {"a": None}]}
)
IMAGES = {"d1": b"\x00\xff" * 100, "d2": b""}


def episode(name):
    return Trajectory(id=name, task=TASK)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spool.sqlite3"


@pytest.fixture
def spool(path):
    spool = Spool(path)
    yield spool
    spool.close()


def test_what_is_put_is_kept_oldest_first_until_it_is_deleted(spool, path):
    for name in "bac":
        spool.put(episode(name), IMAGES)
    spool.put(episode("a"), {})  # once more, which changes nothing
    assert spool.ids() == ["b", "a", "c"]
    spool.close()
    again = Spool(path)
    stored = [(unpack_trajectory(body), images) for body, images, _ in map(again.packed, "bac")]
    assert stored == [(episode(name), IMAGES) for name in "bac"]
    again.delete("b", "c", "unknown")
    assert (again.ids(), len(again)) == (["a"], 1)
    with pytest.raises(StoreError, match="No trajectory b"):
        again.packed("b")
    again.close()


def test_only_the_newest_refused_ones_stay_beside_all_that_wait(spool, monkeypatch):
    monkeypatch.setattr("distrl.workers.spool.MAX_REFUSED", 2)
    for name in "abcdef":
        spool.put(episode(name), IMAGES)
    for name in "bacd":
        spool.refuse(name, "limit: no")
    assert list(spool.refused()) == ["c", "d"]
    assert spool.ids() == ["e", "f"]


def test_a_second_process_is_refused(spool, path):
    spool.put(episode("a"), IMAGES)
    with pytest.raises(StoreError, match="in use by another process"):
        Spool(path)


@pytest.mark.parametrize("is_full", [False, True])
def test_threads_that_put_meanwhile_share_a_commit_and_its_failure(spool, is_full):
    commits, failed = [], []
    spool._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    if is_full:
        spool._connection.execute("PRAGMA max_page_count=1")

    def put(name):
        try:
            spool.put(episode(name), {"d": bytes(100_000)})
        except StoreError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=put, args=(name,)) for name in "abc"]
    with spool._lock:
        for thread in threads:
            thread.start()
        until(lambda: len(spool._entries) == len(threads))
    for thread in threads:
        thread.join()
    assert (len(spool), len(failed), len(commits)) == ((0, 3, 0) if is_full else (3, 0, 1))
    assert all("full" in reason for reason in failed)
