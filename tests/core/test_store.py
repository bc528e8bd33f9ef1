"""The trajectory store: durable, exactly once, readable from any thread."""

import contextlib
import random
import sqlite3

import msgpack
import pytest

from distrl.core.errors import StoreError, StoreFull
from distrl.core.packing import pack_trajectory
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Observation, Purpose, Task, TimeStep, Trajectory, image_digest

TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")


def episode(name, *pictures, purpose=Purpose.TRAIN, params=None):
    """A trajectory with one step per picture, and its images."""
    images = {image_digest(picture): picture for picture in pictures}
    steps = tuple(
        TimeStep(
            observation=Observation(image=digest, width=1, height=1),
            chats=(),
            action=ActionRecord(kind="tap", point=(0.5, 0.25)),
        )
        for digest in images
    )
    task = Task(
        id="q/t/1", suite="q", template="t", split="train", goal="Ünïcode 電話", params=params or {"n": 1}
    )
    return Trajectory(id=name, task=task, steps=steps, purpose=purpose), images


@pytest.fixture
def store(tmp_path):
    store = TrajectoryStore(tmp_path / "run" / "store.sqlite3")
    yield store
    store.close()


def test_a_duplicate_changes_nothing(store):
    trajectory, images = episode("a", b"one")
    assert store.add_many([(trajectory, images)] * 2) == [True, False]
    size = store.size_bytes
    assert not store.add(trajectory, images)
    assert store.ids() == ["a"]
    assert store.size_bytes == size


def test_an_image_is_stored_once(store):
    store.add(*episode("a", b"x" * 10_000))
    before = store.size_bytes
    store.add(episode("b", b"x" * 10_000)[0], {})
    assert store.size_bytes - before < 5_000


def test_a_missing_image_commits_nothing(store):
    good, bad = episode("good", b"here"), episode("bad", b"missing")
    with pytest.raises(StoreError, match="bad"):
        store.add_many([good, (bad[0], {})])
    assert store.ids() == []
    with pytest.raises(StoreError):
        store.images(good[1])


def test_order_and_purpose(store):
    for name, purpose in (("b", Purpose.TRAIN), ("a", Purpose.EVAL), ("c", Purpose.TRAIN)):
        store.add(*episode(name, b"picture", purpose=purpose))
    assert store.ids() == ["b", "a", "c"]
    assert store.ids(Purpose.TRAIN) == ["b", "c"]
    assert [trajectory.id for trajectory in store.iterate(Purpose.EVAL)] == ["a"]
    assert store.count(Purpose.TRAIN) == 2


def test_reading_goes_on_where_a_learner_deletes_meanwhile(store):
    for name in "abc":
        store.add(*episode(name, b"picture"))
    reader = store.iterate()
    assert next(reader).id == "a"
    store.trim(0, keep="c")
    assert [trajectory.id for trajectory in reader] == ["c"]


def test_what_came_in_after_another(store):
    for name in "abcd":
        store.add(*episode(name, b"picture"))
    assert store.ids(after="b") == ["c", "d"]
    store.trim(0, keep="acd")
    assert store.ids(after="b") == ["c", "d"], "also of one that has been trimmed"
    assert store.ids(after="never here") == store.ids() == ["a", "c", "d"]


def test_it_is_all_there_after_reopening(store, tmp_path):
    trajectory, images = episode("a", b"one")
    store.add(trajectory, images)
    again = TrajectoryStore(store.path)
    assert again.get("a") == trajectory
    assert again.images(images) == images
    assert "a" in again
    with pytest.raises(StoreError, match="nobody"):
        again.get("nobody")
    assert again.size_bytes == store.size_bytes
    assert not again.add(trajectory, images)
    again.close()


def test_trimming_deletes_the_oldest_but_what_is_kept(store):
    for name in "abcd":
        store.add(*episode(name, name.encode() * 10_000, b"shared"))
    deleted = store.trim(25_000, keep={"a"})
    assert deleted == ["b", "c"]
    assert store.ids() == ["a", "d"]
    assert store.size_bytes <= 25_000
    assert store.images([image_digest(b"shared")])
    with pytest.raises(StoreError):
        store.images([image_digest(b"b" * 10_000)])


def test_trimming_ends_before_what_has_not_been_taken(store):
    for name in "abcd":
        store.add(*episode(name, name.encode() * 10_000))
    assert store.trim(0, before="c") == ["a", "b"]
    assert store.ids() == ["c", "d"]


def test_a_resend_after_trimming_is_still_a_duplicate(store):
    trajectory, images = episode("a", b"one")
    store.add(trajectory, images)
    store.trim(0)
    assert "a" in store
    assert not store.add(trajectory, images)
    assert store.ids() == []
    assert store.size_bytes == 0


def test_params_that_are_no_plain_data_are_refused(store):
    deep = {}
    for _ in range(3000):
        deep = {"d": deep}
    for params in ({"x": object()}, deep, {"x": 2**70}):
        with pytest.raises(StoreError, match="plain data"):
            store.add(*episode("a", b"one", params=params))
    assert store.count() == 0


@pytest.mark.parametrize("content", [b"this is no database, but long enough" * 50])
def test_a_file_that_is_no_store_is_refused(tmp_path, content):
    path = tmp_path / "store.sqlite3"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a database"):
        TrajectoryStore(path)
    assert path.read_bytes() == content


def test_a_store_of_another_version_is_refused(tmp_path):
    path = tmp_path / "store.sqlite3"
    TrajectoryStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="version 99"):
        TrajectoryStore(path)


def test_a_full_disk_commits_nothing_and_ends_with_it(store, tmp_path):
    store.add(*episode("a", b"one"))
    connection = store._connection()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 20}")
    large = episode("b", *(bytes([number]) * 400_000 for number in range(40)))
    with pytest.raises(StoreFull, match=r"store.sqlite3 cannot be written: .*full.* Free some disk space"):
        store.add(*large)
    assert store.ids() == ["a"]
    connection.execute("PRAGMA max_page_count=1000000")
    assert store.add(*large)
    assert store.ids() == ["a", "b"]


def test_a_quarantine_stays(tmp_path) -> None:
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    store.quarantine("a", "first")
    store.quarantine("a", "second")
    store.close()
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    assert [(row.id, row.reason) for row in store.quarantined()] == [("a", "first")]
    store.close()


def test_bodies_are_compressed_and_plain_ones_are_read(store):
    trajectory = Trajectory(id="t", task=TASK.model_copy(update={"params": {"text": "word " * 1000}}))
    plain = msgpack.packb(trajectory.model_dump(), use_bin_type=True)
    assert len(pack_trajectory(trajectory)) < len(plain) / 3
    store.add_many([(trajectory, {})], [plain])
    assert store.get("t") == trajectory


def test_a_store_that_is_trimmed_forever_stops_growing(tmp_path, monkeypatch):
    monkeypatch.setattr("distrl.core.store._KNOWN_IDS", 50)
    store = TrajectoryStore(tmp_path / "s.sqlite3")
    for number in range(120):
        store.add(Trajectory(id=f"t{number}", task=TASK), {})
        store.trim(1000)
    assert "t119" in store
    assert "t71" in store, "trimmed, but a late resend is still a duplicate"
    assert "t10" not in store
    assert not store.add(Trajectory(id="t90", task=TASK), {})
    store.close()


def test_what_is_trimmed_gives_its_pages_back(tmp_path):
    params = {"noise": random.Random(0).randbytes(1400)}
    path = tmp_path / "s.sqlite3"
    store = TrajectoryStore(path)
    for start in range(0, 1000, 100):
        task = TASK.model_copy(update={"params": params})
        store.add_many([(Trajectory(id=f"t{start + i}", task=task), {}) for i in range(100)])
        store.trim(20_000)
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        used = connection.execute("PRAGMA page_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    assert used * size < 500_000, "1,000 ids and 20 kB of trajectories, not the pages of 1,000 bodies"
