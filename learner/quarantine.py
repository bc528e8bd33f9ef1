"""Trajectories that the learner must not touch again, and a note of those that it is at work on.

Work on a trajectory may raise, which quarantines it at once, or end the process, which leaves no time for
that. So the ids in work are noted in a file. What the note names when a learner starts was in work when the
last one died: the first time it becomes a suspect, the second time it is quarantined. A suspect whose work
ends well is none any more, so that a learner that is killed for other reasons loses nothing.

The note survives the process, not the machine: it is written without a flush to disk, in a few microseconds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distrl.core.errors import DistrlError, NotStored, PolicyError, RankError
from distrl.core.files import writing
from distrl.core.store import TrajectoryStore
from distrl.learner.episodes import Episode

NOTE = ".in_work.json"
_log = logging.getLogger(__name__)


class Quarantine:
    """The quarantined trajectories of a store. The training thread adds; the prefetch thread notes work too.

    Args:
        store: Keeps ids and reasons. The note is a file beside it.

    Attributes:
        ids: The quarantined trajectories.
    """

    def __init__(self, store: TrajectoryStore) -> None:
        self._store, self._path = store, store.path.with_name(NOTE)
        self._lock, self._tokens = threading.Lock(), itertools.count()
        self._work: dict[int, tuple[str, list[str]]] = {}
        self.ids = {row.id for row in store.quarantined()}
        with writing(self._path):
            self._path.touch()
            self._file = self._path.open("r+b", buffering=0)
        self._suspects = self._convicted(*_read(self._path))
        self._write()

    def _convicted(self, suspects: set[tuple[str, str]], died: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Quarantines what the learner died at twice. Returns the suspects that are left."""
        for kind, name in sorted(died & suspects):
            self.add(name, f"the learner died twice during its {kind}")
        first = sorted({name for _, name in died - suspects} - self.ids)
        if first:
            _log.warning(
                "the learner died at work on %s; what it dies at again is quarantined",
                ", ".join(first[:5]) + (f" and {len(first) - 5} more" if len(first) > 5 else ""),
            )
        return {(kind, name) for kind, name in died | suspects if name not in self.ids}

    def add(self, name: str, reason: Exception | str) -> None:
        """Quarantines a trajectory for good; it is logged once."""
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        text = "".join(char if char.isprintable() else " " for char in text)[:500]
        if name not in self.ids:
            self.ids.add(name)
            self._store.quarantine(name, text)
            _log.warning("trajectory %s is quarantined: %s", name, text)

    @contextlib.contextmanager
    def working(self, kind: str, names: Sequence[str]) -> Iterator[None]:
        """Notes that work on trajectories goes on inside.

        The note stays if an unforeseen error leaves the block, which ends the learner, or a rank has ended.

        Args:
            kind: "compilation", "update" and so on: a suspect of one is cleared by work of the same kind.
        """
        token = next(self._tokens)
        with self._lock:
            self._work[token] = kind, list(names)
            self._write()
        try:
            yield
        except Exception as error:
            if isinstance(error, DistrlError) and not isinstance(error, RankError):
                self._end(token)
            raise
        except BaseException:  # stopped from outside
            self._end(token)
            raise
        with self._lock:
            self._suspects -= {(kind, name) for name in names}
        self._end(token)

    def blame(
        self,
        episodes: Sequence[Episode],
        attempt: Callable[[Episode], object],
        error: Exception,
        may_all_fail: bool = False,
    ) -> list[str]:
        """After `error` quarantines those of `episodes` with which `attempt` fails on each alone.

        Args:
            attempt: What failed with all of them together.
            may_all_fail: Whether they are to blame if each fails. Else something that they share is.

        Returns:
            The ids of the quarantined ones, at least one.

        Raises:
            Exception: `error`, if none is to blame.
        """
        if isinstance(error, DistrlError) and not isinstance(error, PolicyError | NotStored):
            raise error
        alone = {episode.id: episode for episode in episodes}
        failures: dict[str, Exception] = {}
        for name, episode in alone.items():
            with self.working("batching", [name]):
                try:
                    attempt(episode)
                except Exception as found:  # noqa: BLE001 - whatever it is, it is of this trajectory
                    failures[name] = found
        if not failures or (len(failures) == len(alone) > 1 and not may_all_fail):
            raise error
        for name, failure in failures.items():
            self.add(name, failure)
        return list(failures)

    def _end(self, token: int) -> None:
        with self._lock:
            del self._work[token]
            self._write()

    def _write(self) -> None:
        """One line from the start of the file; what an earlier, longer one leaves behind it is not read."""
        note = {"suspects": sorted(self._suspects), "work": list(self._work.values())}
        with writing(self._path):
            self._file.seek(0)
            self._file.write(json.dumps(note, separators=(",", ":")).encode() + b"\n")


def _read(path: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The suspects, and what was in work; nothing from a file that is empty or damaged."""
    try:
        note = json.loads(path.read_bytes().partition(b"\n")[0] or b"{}")
        suspects = {(str(kind), str(name)) for kind, name in note.get("suspects", ())}
        return suspects, {(str(kind), str(name)) for kind, names in note.get("work", ()) for name in names}
    except (ValueError, TypeError, AttributeError):
        _log.warning("%s is damaged and starts empty", path)
        return set(), set()
