"""The spool keeps what is not acked, on disk, in order."""

import pytest

from distrl.core.errors import StoreError
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
    stored = [again.get(name)[:2] for name in "bac"]
    assert stored == [(episode(name), IMAGES) for name in "bac"]
    again.delete("b", "c", "unknown")
    assert (again.ids(), len(again)) == (["a"], 1)
    with pytest.raises(StoreError, match="No trajectory b"):
        again.get("b")
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


def test_a_full_disk_is_reported(spool):
    spool._connection.execute("PRAGMA max_page_count=1")
    with pytest.raises(StoreError, match="full"):
        spool.put(episode("a"), {"d": bytes(100_000)})
