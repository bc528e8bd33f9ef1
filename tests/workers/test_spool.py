"""The spool keeps what is not acked, on disk, in order."""

import threading

import pytest
from waiting import until

from distrl.core.errors import StoreError
from distrl.core.rundir import RunLock
from distrl.core.types import Task, Trajectory
from distrl.workers.spool import Spool, left_behind

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
    stored = [again.get(name)[:2] for name in "bac"]
    assert stored == [(episode(name), IMAGES) for name in "bac"]
    again.delete("b", "c", "unknown")
    assert (again.ids(), len(again)) == (["a"], 1)
    with pytest.raises(StoreError, match="No trajectory b"):
        again.get("b")
    again.close()


def test_runs_are_told_apart(spool):
    spool.put(episode("a"), IMAGES, run_id="one")
    spool.put(episode("b"), IMAGES, run_id="two")
    assert spool.ids("two") == ["b"]
    assert spool.ids() == ["a", "b"]


def test_refused_ones_wait_no_longer_but_stay(spool):
    spool.put(episode("a"), IMAGES)
    spool.refuse("a", "malformed: no")
    assert spool.ids() == []
    assert spool.refused() == {"a": "malformed: no"}
    assert spool.get("a")[1] == IMAGES


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


def test_what_workers_of_another_host_left_behind_is_found(tmp_path):
    for name in ("old-0", "old-1", "old-2", "here-0"):
        RunLock(tmp_path / f".{name}.lock", "worker").release()
    Spool(tmp_path / "old-0.sqlite3").close()
    for name, count in (("old-1", 2), ("old-2", 1), ("here-0", 1), ("named", 1)):
        spool = Spool(tmp_path / f"{name}.sqlite3")
        for number in range(count):
            spool.put(episode(str(number)), IMAGES)
        spool.close()
    with RunLock(tmp_path / ".old-2.lock", "worker"):
        assert left_behind(tmp_path, "here") == {"old-1": 2}
    assert left_behind(tmp_path, "here") == {"old-1": 2, "old-2": 1}
    assert left_behind(tmp_path / "none", "here") == {}


def put_together(spool, names, images):
    """Puts from one thread each while a commit waits for the disk; returns the errors by name."""
    failed = {}

    def put(name):
        try:
            spool.put(episode(name), images)
        except StoreError as error:
            failed[name] = str(error)

    threads = [threading.Thread(target=put, args=(name,)) for name in names]
    with spool._lock:
        for thread in threads:
            thread.start()
        until(lambda: len(spool._entries) == len(threads))
    for thread in threads:
        thread.join()
    return failed


def test_threads_that_put_meanwhile_share_a_commit(spool):
    commits = []
    spool._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    assert put_together(spool, "abcd", IMAGES) == {}
    assert sorted(spool.ids()) == list("abcd")
    assert len(commits) == 1


def test_a_full_disk_is_reported_to_every_thread_that_put(spool):
    spool._connection.execute("PRAGMA max_page_count=1")
    failed = put_together(spool, "ab", {"d": bytes(100_000)})
    assert sorted(failed) == ["a", "b"]
    assert "full" in failed["a"]
