"""The numbers of a run's stored episodes: read in the background, kept in memory, filtered and counted.

    episodes thread ── store, read-only ──► rows, the newest first ──► any thread: select, heatmap, since

What is new comes first, what is older follows in small portions, so that a large run is usable at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from distrl.core.errors import StoreError
from distrl.core.messages import unpack
from distrl.core.store import Packed, TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.evaluator.failure_modes import MODE_WORDS
from distrl.evaluator.report.episodes import ended
from distrl.evaluator.results import episode_result
from distrl.evaluator.statistics import EpisodeResult

MAX_ROWS = 100_000
FIRST, PORTION = 60, 10
"""Episodes that are read at once, and then at a time; between two portions other threads have their turn."""
POLL_S, QUIET_S = 0.5, 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One episode; `staleness` in weight versions at its end, None if no policy acted or it is not known."""

    seq: int
    started_at: float
    purpose: str
    worker: str
    slot: int
    group: str
    staleness: int | None
    result: EpisodeResult

    def as_json(self, quarantined: str = "") -> dict[str, Any]:
        """The row as pages get it."""
        one = self.result
        low, high = one.oldest_version, one.newest_version
        versions = "" if low < 0 else f"v{low}" if low == high else f"v{low}–v{high}"
        return {
            "seq": self.seq,
            "id": one.trajectory_id,
            "short": one.trajectory_id[:12],
            "task": one.task_id,
            "template": one.template,
            "goal": one.goal[:1000],
            "split": one.split,
            "purpose": self.purpose,
            "ended": ended(one.fault, one.success, one.outcome),
            "outcome": one.outcome.value,
            "fault": "" if one.fault is Fault.NONE else one.fault.value,
            "mode": one.mode.value if one.mode else "",
            "mode_words": MODE_WORDS[one.mode] if one.mode else "",
            "steps": one.num_steps,
            "reward": round(one.reward, 4),
            "duration_s": one.duration_s,
            "started_at": self.started_at,
            "worker": self.worker,
            "slot": self.slot,
            "group": self.group,
            "versions": versions,
            "staleness": self.staleness,
            "quarantined": quarantined,
        }


@dataclass(frozen=True)
class Selection:
    """Filters for rows; "" and None match all. `fault` may be "any" or "none"; `task` a template or an id."""

    outcome: str = ""
    fault: str = ""
    mode: str = ""
    task: str = ""
    group: str = ""
    purpose: str = ""
    min_staleness: float | None = None
    after: float | None = None
    until: float | None = None

    def fits(self, row: Row) -> bool:
        """Whether the row matches."""
        one = row.result
        faulted = one.fault is not Fault.NONE
        return (
            self.outcome in ("", one.outcome.value if not faulted else "")
            and self.fault in ("", one.fault.value, "any" if faulted else "none")
            and self.mode in ("", one.mode.value if one.mode else None)
            and self.task in ("", one.template, one.task_id)
            and self.group in ("", row.group)
            and self.purpose in ("", row.purpose)
            and (self.min_staleness is None or (row.staleness or 0) >= self.min_staleness)
            and (self.after is None or row.started_at >= self.after)
            and (self.until is None or row.started_at < self.until)
        )


class EpisodeIndex:
    """The rows of the store at `path`, which may appear later.

    Args:
        version_at: Returns the newest weight version at a Unix time, None if it is not known.

    Attributes:
        total: How many episodes the store has, read or not.
        quarantined: The reasons by trajectory.
        has_read: Set once the newest episodes are read, or there are none.
    """

    def __init__(self, path: Path, version_at: Callable[[float], float | None]) -> None:
        self._path, self._version_at = path, version_at
        self._lock = threading.Lock()
        self._rows: deque[Row] = deque()  # the newest first
        self._faults: Counter[str] = Counter()
        self.store: TrajectoryStore | None = None
        self.total = 0
        self.quarantined: dict[str, str] = {}
        self._oldest, self._newest = 2**62, 0
        self._stop, self.has_read = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="episodes", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self) -> None:
        """Ends reading and closes the store."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        if self.store is not None:
            self.store.close()

    @property
    def rows(self) -> list[Row]:
        """All rows so far, the newest first."""
        with self._lock:
            return list(self._rows)

    @property
    def num_indexed(self) -> int:
        """How many rows there are so far."""
        return len(self._rows)

    @property
    def faults(self) -> dict[str, int]:
        """Faulted episodes by fault."""
        return dict(self._faults)

    def select(self, chosen: Selection, before: int | None, limit: int) -> tuple[list[Row], bool]:
        """At most `limit` rows older than the row `before`, the newest first, and whether there are more."""
        found: list[Row] = []
        for row in self.rows:
            if (before is None or row.seq < before) and chosen.fits(row):
                if len(found) == limit:
                    return found, True
                found.append(row)
        return found, False

    def since(self, seq: int) -> list[Row]:
        """Rows newer than the row `seq`, oldest first."""
        with self._lock:
            found = [row for row in self._rows if row.seq > seq]
        return found[::-1]

    def heatmap(self, bins: int) -> dict[str, Any]:
        """Real episodes, successes and faults by template and time; see `counted`."""
        real = [row for row in self.rows if row.purpose != Purpose.IMAGINED.value]
        return {**counted(real, bins), "indexed": self.num_indexed, "total": self.total}

    # ---- episodes thread ----

    def _run(self) -> None:
        quiet_until = time.monotonic() + QUIET_S  # a browser that opens the page now comes first
        while not self._stop.is_set():
            started, is_behind = time.monotonic(), False
            try:
                is_behind = self._read(started > quiet_until)
            except StoreError as error:  # a store that is being made or restored
                _log.warning("the episodes cannot be read now: %s", error)
            self.has_read.set()
            self._stop.wait(0.5 * (time.monotonic() - started) if is_behind else POLL_S)

    def _read(self, may_read_older: bool) -> bool:
        """Reads what is new, and a portion of what is older. Returns whether more remains."""
        if self.store is None:
            if not self._path.is_file() or not self._path.stat().st_size:
                return False
            self.store = TrajectoryStore(self._path, read_only=True)
        store = self.store
        self.total = store.count()
        self.quarantined = {one.id: one.reason for one in store.quarantined()}
        is_first = not self._newest
        new = store.packed(after=self._newest, limit=FIRST if is_first else 100_000_000)
        self._add(new, is_new=True)
        if not may_read_older or len(self._rows) >= MAX_ROWS:
            return False
        older = store.packed(before=self._oldest, limit=PORTION)
        self._add(older, is_new=False)
        return bool(older)

    def _add(self, packed: Sequence[Packed], is_new: bool) -> None:
        """Adds rows, given the newest first, before or behind those that are there."""
        if not packed:
            return
        read = [row for row in map(self._row, packed) if row is not None]
        with self._lock:
            if is_new:
                self._rows.extendleft(reversed(read))
            else:
                self._rows.extend(read)
            while len(self._rows) > MAX_ROWS:
                self._rows.pop()
        self._faults.update(row.result.fault.value for row in read if row.result.fault is not Fault.NONE)
        self._newest = max(self._newest, packed[0].seq)
        self._oldest = min(self._oldest, packed[-1].seq)

    def _row(self, packed: Packed) -> Row | None:
        try:
            trajectory, low, high = light(packed.body)
        except (ValueError, ValidationError, LookupError, TypeError, AttributeError):
            return None  # of an earlier version, or damaged: `distrl inspect` says what is wrong
        result = episode_result(trajectory)
        update: dict[str, Any] = {"oldest_version": low, "newest_version": high}
        if trajectory.verdict is not None:  # the judge's word counts here, as it did in training
            solved = trajectory.outcome is Outcome.SUCCESS
            update |= {"success": solved, "mode": None if solved else result.mode}
        result = result.model_copy(update=update)
        at = self._version_at(trajectory.started_at + trajectory.duration_s) if low >= 0 else None
        return Row(
            seq=packed.seq,
            started_at=trajectory.started_at,
            purpose=trajectory.purpose.value,
            worker=trajectory.worker,
            slot=trajectory.slot,
            group=trajectory.group_id,
            staleness=None if at is None else max(0, round(at) - low),
            result=result,
        )


def light(body: bytes) -> tuple[Trajectory, int, int]:
    """A stored trajectory without chats and elements, which take most of the time to read, and the oldest and
    the newest weight version that acted (-1 without a policy)."""
    raw = cast("dict[str, Any]", unpack(body))
    versions: set[int] = set()
    for step in raw["steps"]:
        for chat in step["chats"]:
            versions.update(chat["completion"]["weight_versions"])
        step["chats"], step["observation"]["elements"] = (), None
    if raw["final"] is not None:
        raw["final"]["elements"] = None
    return Trajectory.model_validate(raw), min(versions, default=-1), max(versions, default=-1)


def counted(rows: Sequence[Row], bins: int) -> dict[str, Any]:
    """Episodes in `bins` equal spans of time, by template: how many, how many solved and how many faulted."""
    times = [row.started_at for row in rows]
    start, end = min(times, default=0.0), max(times, default=0.0)
    span = max(end - start, 1e-3)
    cells: dict[str, list[list[int]]] = {}
    for row in rows:
        of_task = cells.setdefault(row.result.template, [[0, 0, 0] for _ in range(bins)])
        cell = of_task[min(bins - 1, int(bins * (row.started_at - start) / span))]
        cell[0] += 1
        cell[1] += row.result.counts and row.result.success
        cell[2] += row.result.fault is not Fault.NONE
    sums = {task: sum(cell[0] for cell in of_task) for task, of_task in cells.items()}
    ordered = sorted(cells, key=lambda task: (-sums[task], task))
    # The last edge is exclusive, as `Selection.until` is.
    edges = [start + span * i / bins for i in range(bins)] + [end + 1e-3]
    return {
        "times": edges,
        "rows": [{"task": task, "episodes": sums[task], "cells": cells[task]} for task in ordered],
    }
