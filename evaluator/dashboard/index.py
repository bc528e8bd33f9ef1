"""The numbers of a run's stored episodes: read in the background, kept in memory, filtered and counted.

    episodes thread ── store, read-only ──► rows, the newest first ──► any thread: select, heatmap

What is new comes first, what is older follows in small portions, so that a large run is usable at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, ValidationError

from distrl.core.errors import StoreError
from distrl.core.packing import unpack
from distrl.core.store import Packed, TrajectoryStore
from distrl.core.types import Fault, Number, Outcome, Purpose, Record, Trajectory
from distrl.evaluator.failure_modes import MODE_WORDS
from distrl.evaluator.report.episodes import ended
from distrl.evaluator.results import episode_result

MAX_ROWS = 100_000
FIRST, PORTION = 60, 10
"""Episodes that are read at once, and then at a time; between two portions other threads have their turn."""
POLL_S = 0.5
_log = logging.getLogger(__name__)

Row = dict[str, Any]
"""An episode as pages get it; see `row_of` and `EpisodeIndex.shown`."""


class Selection(Record):
    """Filters for rows, of which at most `limit` are wanted, older than the row `before`; None matches all.

    `fault` may be "any" or "none", `task` a template or an id, `purpose` "own": neither demonstrated nor
    imagined.
    """

    outcome: str | None = None
    fault: str | None = None
    mode: str | None = None
    task: str | None = None
    group: str | None = None
    purpose: str | None = None
    min_staleness: Number | None = None
    after: Number | None = None
    until: Number | None = None
    before: int = 2**62
    limit: Annotated[int, Field(ge=1, le=200)] = 50

    def fits(self, row: Row) -> bool:
        """Whether the row matches."""
        fault = row["fault"]
        return (
            row["seq"] < self.before
            and self.outcome in (None, None if fault else row["outcome"])
            and self.fault in (None, fault or "none", "any" if fault else "none")
            and self.mode in (None, row["mode"])
            and self.task in (None, row["template"], row["task"])
            and self.group in (None, row["group"])
            and self.purpose in (None, row["purpose"], "own" if is_own(row) else None)
            and (self.min_staleness is None or (row["staleness"] or 0) >= self.min_staleness)
            and (self.after is None or row["started_at"] >= self.after)
            and (self.until is None or row["started_at"] < self.until)
        )


class EpisodeIndex:
    """The rows of the store at `path`, which may appear later.

    Args:
        version_at: Returns the newest weight version at a Unix time, None if it is not known.

    Attributes:
        rows: Those that are read so far, the newest first; replaced as a whole.
        total: How many episodes the store has, read or not.
        quarantined: The reasons by trajectory.
        has_read: Set once the newest episodes are read, or there are none.
    """

    def __init__(self, path: Path, version_at: Callable[[float], float | None]) -> None:
        self._path, self._version_at = path, version_at
        self.store: TrajectoryStore | None = None
        self.rows: list[Row] = []
        self.total = 0
        self.quarantined: dict[str, str] = {}
        self._oldest, self._newest = 2**62, 0
        self._stop, self.has_read = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="episodes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends reading and closes the store."""
        self._stop.set()
        self._thread.join(5.0)
        if self.store is not None:
            self.store.close()

    def shown(self, row: Row) -> Row:
        """The row with what may still change: versions published since its oldest action, and quarantine."""
        low, at = row["oldest_version"], self._version_at(row["started_at"] + row["duration_s"])
        staleness = None if low < 0 or at is None else max(0, round(at) - low)
        return {**row, "staleness": staleness, "quarantined": self.quarantined.get(row["id"], "")}

    def select(self, chosen: Selection) -> dict[str, Any]:
        """The rows that match, the newest first, whether there are more, and what can be chosen."""
        found: list[Row] = []
        rows = self.rows
        for row in map(self.shown, rows):
            if chosen.fits(row):
                found.append(row)
                if len(found) > chosen.limit:
                    break
        return {
            "rows": found[: chosen.limit],
            "more": len(found) > chosen.limit,
            "indexed": len(rows),
            "total": self.total,
            "modes": {mode.value: words for mode, words in MODE_WORDS.items()},
            "templates": sorted({row["template"] for row in rows}),
        }

    def heatmap(self, bins: int) -> dict[str, Any]:
        """Own episodes by template in `bins` equal spans of time: how many, solved, faulted and judged."""
        rows = [row for row in self.rows if is_own(row)]
        times = [row["started_at"] for row in rows]
        start, end = min(times, default=0.0), max(times, default=0.0)
        span = max(end - start, 1e-3)
        cells: dict[str, list[list[int]]] = {}
        for row in rows:
            of_task = cells.setdefault(row["template"], [[0, 0, 0, 0] for _ in range(bins)])
            cell = of_task[min(bins - 1, int(bins * (row["started_at"] - start) / span))]
            cell[0] += 1
            cell[1] += row["solved"]
            cell[2] += bool(row["fault"])
            cell[3] += not row["fault"] and row["outcome"] != Outcome.UNJUDGED.value
        sums = {task: sum(cell[0] for cell in of_task) for task, of_task in cells.items()}
        ordered = sorted(cells, key=lambda task: (-sums[task], task))
        # The last edge is exclusive, as `Selection.until` is.
        edges = [start + span * i / bins for i in range(bins)] + [end + 1e-3]
        found = [{"task": task, "episodes": sums[task], "cells": cells[task]} for task in ordered]
        return {"times": edges, "rows": found}

    # ---- episodes thread ----

    def _run(self) -> None:
        while not self._stop.is_set():
            started, is_behind = time.monotonic(), False
            try:
                is_behind = self._read()
            except StoreError as error:  # a store that is being made or restored
                _log.warning("the episodes cannot be read now: %s", error)
            self.has_read.set()
            self._stop.wait(0.5 * (time.monotonic() - started) if is_behind else POLL_S)

    def _read(self) -> bool:
        """Reads what is new, and a portion of what is older. Returns whether more remains."""
        if self.store is None:
            if not self._path.is_file() or not self._path.stat().st_size:
                return False
            self.store = TrajectoryStore(self._path, read_only=True)
        store = self.store
        self.total = store.count()
        self.quarantined = {one.id: one.reason for one in store.quarantined()}
        is_first, is_full = not self._newest, len(self.rows) >= MAX_ROWS
        new = store.packed(after=self._newest, limit=FIRST if is_first else 100_000_000)
        older = [] if is_first or is_full else store.packed(before=self._oldest, limit=PORTION)
        for packed in filter(None, (new, older)):
            self._newest = max(self._newest, packed[0].seq)
            self._oldest = min(self._oldest, packed[-1].seq)
        if new or older:
            self.rows = (_rows(new) + self.rows + _rows(older))[:MAX_ROWS]
        return bool(older)


def is_own(row: Row) -> bool:
    """Whether the agent acted in the real environment."""
    return row["purpose"] in (Purpose.TRAIN.value, Purpose.EVAL.value)


def _rows(packed: Iterable[Packed]) -> list[Row]:
    """The rows of stored trajectories, without those of an earlier version and those that are damaged."""
    found = []
    for one in packed:
        # `distrl inspect` says what is wrong.
        with contextlib.suppress(ValueError, ValidationError, LookupError, TypeError, AttributeError):
            found.append(row_of(one))
    return found


def row_of(packed: Packed) -> Row:
    """The row of a stored trajectory, without what may still change; an error if it cannot be read."""
    trajectory, low, high = light(packed.body)
    one = episode_result(trajectory)
    return {
        "seq": packed.seq,
        "id": one.trajectory_id,
        "task": one.task_id,
        "template": one.template,
        "goal": one.goal[:1000],
        "purpose": trajectory.purpose.value,
        "ended": ended(one.fault, one.success, one.outcome),
        "outcome": one.outcome.value,
        "solved": one.counts and one.success,
        "fault": "" if one.fault is Fault.NONE else one.fault.value,
        "mode": one.mode.value if one.mode else "",
        "mode_words": MODE_WORDS[one.mode] if one.mode else "",
        "steps": one.num_steps,
        "reward": round(one.reward, 4),
        "duration_s": one.duration_s,
        "started_at": trajectory.started_at,
        "worker": trajectory.worker,
        "slot": trajectory.slot,
        "group": trajectory.group_id,
        "versions": "" if low < 0 else f"v{low}" if low == high else f"v{low}–v{high}",
        "oldest_version": low,
    }


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
