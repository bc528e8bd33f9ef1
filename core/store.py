"""The trajectory store: every episode the learner has taken, with its screenshots, in one SQLite file.

One writer (the learner's network thread) and any number of reading threads, each with a connection of its
own. A commit is on disk when `add` returns. Ids of the newest `_KNOWN_IDS` trajectories stay known after
`trim`, so that a late resend is still a duplicate.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from distrl.core.errors import NotStored, StoreError, StoreFull
from distrl.core.packing import pack_trajectory, unpack_trajectory
from distrl.core.types import Purpose, Trajectory

LOCK_WAIT_S = 10.0


def open_database(path: Path, schema: str, version: int, exclusive: bool = False) -> sqlite3.Connection:
    """Opens or creates a database whose commits are durable; StoreError if it is not of this `version`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with typed_errors(path):
        wait_s = 0.0 if exclusive else LOCK_WAIT_S
        connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
        try:
            if exclusive:
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            # Larger pages suit screenshots; both settings only take effect in a new file.
            connection.execute("PRAGMA page_size=16384")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA wal_autocheckpoint=4000")  # pages: moves 64 MB at a time
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if found or tables:
                _check_version(path, found, version)
            else:
                statements = f"BEGIN IMMEDIATE; {schema} PRAGMA user_version={version:d}; COMMIT;"
                connection.executescript(statements)
        except BaseException:
            connection.close()
            raise
    return connection


def open_read_only(path: Path, version: int) -> sqlite3.Connection:
    """A database that exists, for reading, by any thread; errors as for `open_database`."""
    with typed_errors(path):
        uri = f"{path.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(
            uri, LOCK_WAIT_S, uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            _check_version(path, connection.execute("PRAGMA user_version").fetchone()[0], version)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_version(path: Path, found: int, version: int) -> None:
    if found != version:
        raise StoreError(
            f"{path} has schema version {found}, this distrl reads {version}.",
            "Use the distrl that wrote it, or another path.",
        )


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements inside are committed, durably, or none is."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has ended it already if the disk is full
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def typed_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into `StoreError` with the file's name."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            said = f"{path} is in use by another process."
            raise StoreError(said, "Stop it or use another path.") from error
        if "is full" in str(error):
            raise StoreFull(f"{path} cannot be written: {error}.", "Free some disk space.") from error
        raise StoreError(f"{path}: {error}.", "Is the disk full or the folder read-only?") from error
    except sqlite3.Error as error:
        remedy = "Restore the file or start with another path."
        raise StoreError(f"{path} cannot be used: {error}.", remedy) from error


Item = tuple[Trajectory, Mapping[str, bytes]]
_QUERY_SIZE = 500
# At a time, because the writer waits meanwhile: a commit takes long on a slow disk, and so do many pages.
_TRIM_SIZE = 16  # trajectories
_VACUUM_PAGES = 1024
_KNOWN_IDS = 1_000_000  # about 100 MB
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS trajectories (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    purpose TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS images (
    key INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS uses (
    image INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (image, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uses_of_trajectory ON uses (seq);
CREATE TABLE IF NOT EXISTS quarantined (id TEXT PRIMARY KEY, reason TEXT NOT NULL, at REAL NOT NULL);
-- The ids of trimmed trajectories: a row that is only emptied would keep its pages, 1.5 KB.
CREATE TABLE IF NOT EXISTS trimmed (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
"""


class Quarantined(NamedTuple):
    """A trajectory that is never trained on, why, and since when (Unix time)."""

    id: str
    reason: str
    at: float


class Packed(NamedTuple):
    """A stored trajectory as bytes; `seq` grows in ingest order."""

    seq: int
    id: str
    body: bytes


class TrajectoryStore:
    """Trajectories by id, in ingest order, and images by digest, in a file that is created if missing.

    With `read_only` the file must exist and is never changed, not even created: only what reads may be
    called. All threads then share one connection.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._shared = open_read_only(path, _VERSION) if read_only else None
        if self._shared is not None:
            self._connections.append(self._shared)
            self._size_bytes = 0
            return
        sizes = "SELECT LENGTH(body) AS size FROM trajectories UNION ALL SELECT LENGTH(data) FROM images"
        row = self._row(f"SELECT COALESCE(SUM(size), 0) FROM ({sizes})")
        assert row is not None
        self._size_bytes = int(row[0])

    @property
    def size_bytes(self) -> int:
        """Bytes of all stored trajectories and images (without SQLite's own overhead); 0 if read-only."""
        return self._size_bytes

    def add(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> bool:
        """Commits one trajectory; see `add_many`. Returns False for a duplicate."""
        return self.add_many([(trajectory, images)])[0]

    def add_many(self, items: Sequence[Item], bodies: Sequence[bytes] | None = None) -> list[bool]:
        """Commits trajectories, each with (at least) its new images by digest, all in one transaction.

        Args:
            bodies: The trajectories as `pack_trajectory` gives them, where they are packed already.

        Returns:
            For each whether it is new; a duplicate changes nothing.

        Raises:
            StoreError: The disk is full, an image is missing, or a trajectory is not plain data; nothing is
                committed.
        """
        packed = bodies or [pack_trajectory(trajectory) for trajectory, _ in items]
        with self._lock, typed_errors(self.path):
            connection = self._connection()
            added_bytes = 0
            is_new = []
            with transaction(connection):
                for (trajectory, images), body in zip(items, packed, strict=True):
                    size = _insert(connection, trajectory, body, images)
                    is_new.append(size is not None)
                    added_bytes += size or 0
            self._size_bytes += added_bytes
        return is_new

    def get(self, trajectory_id: str) -> Trajectory:
        """The trajectory with this id; NotStored if it never was here, or was trimmed."""
        row = self._row("SELECT body FROM trajectories WHERE id = ?", trajectory_id)
        if row is None:
            raise NotStored(f"No trajectory {trajectory_id} in {self.path}.")
        return unpack_trajectory(row[0])

    def __contains__(self, trajectory_id: str) -> bool:
        """Whether it was ever stored, trimmed or not."""
        query = "SELECT 1 FROM trajectories WHERE id = ?1 UNION SELECT 1 FROM trimmed WHERE id = ?1"
        return self._row(query, trajectory_id) is not None

    def ids(self, purpose: Purpose | None = None, after: str | None = None) -> list[str]:
        """Ids of the stored trajectories in ingest order.

        Args:
            after: Only those ingested after this one, which may have been trimmed; all if it is unknown.
        """
        query = (
            "SELECT id FROM trajectories WHERE purpose = IFNULL(?1, purpose)"
            " AND seq > COALESCE((SELECT seq FROM trajectories WHERE id = ?2),"
            " (SELECT seq FROM trimmed WHERE id = ?2), 0) ORDER BY seq"
        )
        with typed_errors(self.path):
            rows = self._connection().execute(query, (purpose.value if purpose else None, after))
            return [row[0] for row in rows]

    def iterate(self, purpose: Purpose | None = None) -> Iterator[Trajectory]:
        """The stored trajectories in ingest order, read one at a time, but for those deleted meanwhile."""
        for trajectory_id in self.ids(purpose):
            with contextlib.suppress(NotStored):
                yield self.get(trajectory_id)

    def packed(self, after: int = 0, before: int = 2**62, limit: int = 100) -> list[Packed]:
        """The newest trajectories with `after` < seq < `before`, at most `limit`, the newest first."""
        query = "SELECT seq, id, body FROM trajectories WHERE seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?"
        with typed_errors(self.path):
            return [Packed(*row) for row in self._connection().execute(query, (after, before, limit))]

    def count(self, purpose: Purpose | None = None) -> int:
        """How many trajectories are stored."""
        query = "SELECT COUNT(*) FROM trajectories WHERE purpose = IFNULL(?, purpose)"
        row = self._row(query, purpose.value if purpose else None)
        assert row is not None
        return int(row[0])

    def images(self, digests: Iterable[str]) -> dict[str, bytes]:
        """The bytes of images by digest; NotStored if one is not here."""
        wanted = list(dict.fromkeys(digests))
        found = dict(self._select("SELECT digest, data FROM images WHERE digest IN", wanted))
        missing = [digest for digest in wanted if digest not in found]
        if missing:
            raise NotStored(f"{len(missing)} images are not in {self.path}, e.g. {missing[0]}.")
        return found

    def known_images(self, digests: Iterable[str]) -> set[str]:
        """Which of these images are stored."""
        return {row[0] for row in self._select("SELECT digest FROM images WHERE digest IN", list(digests))}

    def quarantine(self, trajectory_id: str, reason: str) -> None:
        """Notes for good that a trajectory must not be used; the first reason stays."""
        with self._lock, typed_errors(self.path):
            self._connection().execute(
                "INSERT OR IGNORE INTO quarantined VALUES (?, ?, ?)", (trajectory_id, reason, time.time())
            )

    def quarantined(self) -> list[Quarantined]:
        """The trajectories that must not be used, in the order in which they were quarantined."""
        with typed_errors(self.path):
            rows = self._connection().execute("SELECT id, reason, at FROM quarantined ORDER BY rowid")
            return [Quarantined(*row) for row in rows]

    def trim(
        self, max_bytes: int, keep: Collection[str] = frozenset(), before: str | None = None
    ) -> list[str]:
        """Deletes the oldest trajectories, and unused images, until `size_bytes` fits. Returns the ids.

        Args:
            keep: Ids that stay whatever the size (what replay refers to).
            before: This trajectory and all later ones stay, too.
        """
        oldest = takewhile(lambda name: name != before, self.ids())
        spare = [name for name in oldest if name not in keep]
        deleted: list[str] = []
        for start in range(0, len(spare), _TRIM_SIZE):
            if self._size_bytes <= max_bytes:
                break
            deleted += self._delete_first(spare[start : start + _TRIM_SIZE], max_bytes)
        while deleted and self._gives_back():
            pass
        return deleted

    def hold(self) -> None:
        """Until `close`, the calling thread reads what is stored now, also if a running learner trims it.

        The learner is not delayed, but what it writes meanwhile collects in the file's write-ahead log.
        """
        with typed_errors(self.path):
            self._connection().execute("BEGIN")
        self.count()  # the first read decides what is seen

    def close(self) -> None:
        """Closes the file; no thread may use the store afterwards."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    def _connection(self) -> sqlite3.Connection:
        """The calling thread's connection."""
        connection: sqlite3.Connection | None = self._shared or getattr(self._local, "connection", None)
        if connection is None:
            connection = open_database(self.path, _SCHEMA, _VERSION)
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def _row(self, query: str, *values: str | None) -> tuple[Any, ...] | None:
        with typed_errors(self.path):
            row: tuple[Any, ...] | None = self._connection().execute(query, values).fetchone()
        return row

    def _select(self, query: str, values: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for start in range(0, len(values), _QUERY_SIZE):
            part = values[start : start + _QUERY_SIZE]
            marks = ",".join("?" * len(part))
            with typed_errors(self.path):
                yield from self._connection().execute(f"{query} ({marks})", part).fetchall()

    def _delete_first(self, names: Sequence[str], max_bytes: int) -> list[str]:
        """Deletes these in their order until `size_bytes` fits, in one commit. Returns which."""
        with self._lock, typed_errors(self.path):
            connection = self._connection()
            freed, deleted = 0, []
            with transaction(connection):
                for name in names:
                    if self._size_bytes - freed <= max_bytes:
                        break
                    freed += _delete(connection, name)
                    deleted.append(name)
                connection.execute(
                    "DELETE FROM trimmed WHERE seq <= (SELECT MAX(seq) FROM trajectories) - ?", (_KNOWN_IDS,)
                )
            self._size_bytes -= freed
        return deleted

    def _gives_back(self) -> bool:
        """Gives some of the file's free pages back to the disk. Returns whether there are more to give."""
        with self._lock, typed_errors(self.path):
            connection = self._connection()
            before = connection.execute("PRAGMA freelist_count").fetchone()[0]
            connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
            return bool(0 < connection.execute("PRAGMA freelist_count").fetchone()[0] < before)


def _insert(
    connection: sqlite3.Connection, trajectory: Trajectory, body: bytes, images: Mapping[str, bytes]
) -> int | None:
    """Inserts one trajectory; the bytes that were new, None for a duplicate."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO trajectories (id, purpose, body)"
        " SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM trimmed WHERE id = ?1)",
        (trajectory.id, trajectory.purpose.value, body),
    )
    if cursor.rowcount == 0:
        return None
    seq, size = cursor.lastrowid, len(body)
    for digest in trajectory.image_digests:
        row = connection.execute("SELECT key FROM images WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            data = images.get(digest)
            if data is None:
                raise StoreError(
                    f"Trajectory {trajectory.id} refers to the image {digest}, which is missing."
                )
            insert = "INSERT INTO images (digest, data) VALUES (?, ?)"
            row = (connection.execute(insert, (digest, data)).lastrowid,)
            size += len(data)
        connection.execute("INSERT OR IGNORE INTO uses (image, seq) VALUES (?, ?)", (row[0], seq))
    return size


def _delete(connection: sqlite3.Connection, trajectory_id: str) -> int:
    """Deletes one trajectory and those of its images that no other uses; the bytes that were freed."""
    seq, freed = connection.execute(
        "SELECT seq, LENGTH(body) FROM trajectories WHERE id = ?", (trajectory_id,)
    ).fetchone()
    connection.execute("DELETE FROM trajectories WHERE seq = ?", (seq,))
    connection.execute("INSERT INTO trimmed VALUES (?, ?)", (seq, trajectory_id))
    orphans = connection.execute(
        "SELECT key, LENGTH(data) FROM images JOIN uses ON image = key WHERE uses.seq = ?"
        " AND NOT EXISTS"
        " (SELECT 1 FROM uses AS other WHERE other.image = key AND other.seq != uses.seq)",
        (seq,),
    ).fetchall()
    connection.executemany("DELETE FROM images WHERE key = ?", [(key,) for key, _ in orphans])
    connection.execute("DELETE FROM uses WHERE seq = ?", (seq,))
    total: int = freed + sum(size for _, size in orphans)
    return total
