"""How SQLite files are opened here: durable commits, typed errors."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from distrl.core.errors import StoreError, StoreFull

LOCK_WAIT_S = 10.0


def open_database(path: Path, schema: str, version: int, exclusive: bool = False) -> sqlite3.Connection:
    """Opens (and creates) a database whose commits are on disk when they return.

    Args:
        path: The file; its folder is created.
        schema: Statements that create missing tables.
        version: The schema's version; a file of another version is refused.
        exclusive: Whether this process wants the file for itself alone.

    Raises:
        StoreError: Not a database of this version, not accessible, or in use when exclusive.
    """
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
            if not _has_version(connection, path, version):
                connection.executescript(
                    f"BEGIN IMMEDIATE; {schema} PRAGMA user_version={version:d}; COMMIT;"
                )
        except BaseException:
            connection.close()
            raise
    return connection


def _has_version(connection: sqlite3.Connection, path: Path, version: int) -> bool:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
    if found != version and (found or tables):
        raise StoreError(
            f"{path} has schema version {found}, this distrl reads {version}.",
            "Use the distrl that wrote it, or another path.",
        )
    return bool(found == version)


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
            raise StoreError(
                f"{path} is in use by another process.", "Stop it or use another path."
            ) from error
        if "is full" in str(error):
            raise StoreFull(f"{path} cannot be written: {error}.", "Free some disk space.") from error
        raise StoreError(f"{path}: {error}.", "Is the disk full or the folder read-only?") from error
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be used: {error}.", "Restore the file or start with another path."
        ) from error
