"""The spool: finished trajectories on the worker's disk, from before they are sent until they are acked."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgpack

from distrl.core.errors import StoreError
from distrl.core.packing import pack_trajectory
from distrl.core.store import open_database, transaction, typed_errors
from distrl.core.types import Trajectory

MAX_REFUSED = 100  # rejected trajectories that are kept for inspection, the newest
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spooled (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,           -- only delivered to the learner of this run
    body BLOB NOT NULL,
    images BLOB NOT NULL,
    refused TEXT NOT NULL DEFAULT ''
);
"""


@dataclass(eq=False)
class _Entry:
    """A trajectory that is being spooled: its row and the result."""

    row: tuple[str, str, bytes, bytes]
    is_done: bool = False
    error: StoreError | None = None


class Spool:
    """A durable queue of trajectories, oldest first, in an SQLite file. Raises StoreError. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._connection = open_database(path, _SCHEMA, _VERSION, exclusive=True)

    def put(self, trajectory: Trajectory, images: Mapping[str, bytes], run_id: str = "") -> None:
        """Stores a finished trajectory, durably on return. Storing it again changes nothing."""
        row = trajectory.id, run_id, pack_trajectory(trajectory), msgpack.packb(dict(images))
        entry = _Entry(row)
        self._entries.append(entry)
        with self._lock:
            if not entry.is_done:  # else another thread has committed it
                self._commit_entries()
        if entry.error is not None:
            raise entry.error

    def _commit_entries(self) -> None:
        """Commits everything that threads added while the last commit waited for the disk."""
        entries = [self._entries.popleft() for _ in range(len(self._entries))]
        query = "INSERT OR IGNORE INTO spooled (id, run_id, body, images) VALUES (?, ?, ?, ?)"
        try:
            with typed_errors(self._path), transaction(self._connection):
                self._connection.executemany(query, [entry.row for entry in entries])
        except StoreError as error:
            for entry in entries:
                entry.error = error
        finally:
            for entry in entries:
                entry.is_done = True

    def ids(self, run_id: str | None = None) -> list[str]:
        """Ids of the trajectories (of one run, or all) that wait for an ack, oldest first."""
        query = "SELECT id FROM spooled WHERE refused = '' AND run_id = IFNULL(?, run_id) ORDER BY seq"
        with self._lock, typed_errors(self._path):
            rows = self._connection.execute(query, (run_id,))
            return [row[0] for row in rows.fetchall()]

    def packed(self, trajectory_id: str) -> tuple[bytes, dict[str, bytes], str]:
        """A trajectory as `pack_trajectory` packs it, the bytes of its images by digest, and its run."""
        query = "SELECT body, images, run_id FROM spooled WHERE id = ?"
        with self._lock, typed_errors(self._path):
            row = self._connection.execute(query, (trajectory_id,)).fetchone()
        if row is None:
            raise StoreError(f"No trajectory {trajectory_id} in {self._path}.")
        body, images, run_id = row
        return body, msgpack.unpackb(images, raw=False), run_id

    def delete(self, *trajectory_ids: str) -> None:
        rows = [(trajectory_id,) for trajectory_id in trajectory_ids]
        with self._lock, typed_errors(self._path), transaction(self._connection):
            self._connection.executemany("DELETE FROM spooled WHERE id = ?", rows)

    def refuse(self, trajectory_id: str, reason: str) -> None:
        """Sets a trajectory aside that the learner never accepts; the newest `MAX_REFUSED` are kept."""
        with self._lock, typed_errors(self._path), transaction(self._connection):
            self._connection.execute(
                "UPDATE spooled SET refused = ? WHERE id = ?", (reason or "refused", trajectory_id)
            )
            self._connection.execute(
                "DELETE FROM spooled WHERE seq IN (SELECT seq FROM spooled WHERE refused != '' "
                "ORDER BY seq DESC LIMIT -1 OFFSET ?)",
                (MAX_REFUSED,),
            )

    def refused(self) -> dict[str, str]:
        with self._lock, typed_errors(self._path):
            return dict(self._connection.execute("SELECT id, refused FROM spooled WHERE refused != ''"))

    def __len__(self) -> int:
        return len(self.ids())

    def close(self) -> None:
        with self._lock:
            self._connection.close()
