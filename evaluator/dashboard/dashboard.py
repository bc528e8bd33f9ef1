"""A run as people watch it: the sources of its state, joined, and what pages and terminals ask of them.

    run directory ──► RunFiles, EpisodeIndex (episodes thread) ──┐
    learner ◄──────── Observer (observer thread) ────────────────┼──► Dashboard ◄── request threads, `top`
                         ▲ what viewers want now ────────────────┘

Nothing here writes to the run.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from distrl.core.errors import DistrlError, NetworkError, NotStored
from distrl.core.messages import MAX_FOLLOWED, Watching
from distrl.core.security import Security, load_security
from distrl.core.slot_view import Hand
from distrl.core.types import Purpose
from distrl.evaluator.dashboard.curves import curves, kept
from distrl.evaluator.dashboard.index import EpisodeIndex
from distrl.evaluator.dashboard.observer import Observer
from distrl.evaluator.dashboard.player import episode_json
from distrl.evaluator.dashboard.run_files import RunFiles
from distrl.evaluator.dashboard.snapshot import (
    alarms,
    costs,
    device_counts,
    flow,
    line,
    pool,
    progress,
    slots,
)
from distrl.evaluator.progress import TimeLeft
from distrl.evaluator.stores import drawn

SNAPSHOT_S, PLAYED_S = 1.0, 0.25
"""Seconds between two snapshots: normally, and while a person plays a slot."""
MAX_HISTORY = 2000
"""Rows that are kept of a learner's broadcasts where there is no run directory."""
MAX_GROUP = 64
LEVELS: tuple[Watching, ...] = get_args(Watching)


class Dashboard:
    """Follows a run directory, a learner, or both, while it is entered. Any thread may call its methods.

    Args:
        path: The run directory; None to see only what the learner reports.
        learner: The address of its control socket; None: as the run directory names it.
        security: Keys for that address; None: those of the run's configuration.
        can_command: Whether viewers may pause the run and request checkpoints.

    Raises:
        RunDirectoryError: `path` is not a run.
        SecurityError: The address `learner` needs keys that are missing.
    """

    def __init__(
        self,
        path: Path | None,
        learner: str | None = None,
        security: Security | None = None,
        can_command: bool = False,
    ) -> None:
        self._learner, self._security, self._can_command = learner, security, can_command
        self.files = RunFiles(path)
        self._observer = Observer("", None, self._wants)
        self._viewers: list[tuple[Watching, str]] = []
        self._making, self._drawing = threading.Lock(), threading.Lock()
        self._left = TimeLeft()
        self._snapshot: dict[str, Any] = {}
        self._made_at = -math.inf
        self._curves = lru_cache(maxsize=1)(lambda num_rows: curves(self.files.rows[:num_rows]))
        self._drawn = lru_cache(maxsize=16)(self._draw)
        if learner is not None:
            self._join()
        self.index = EpisodeIndex(self.files.run.store, self.files.version_at)

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *exc: object) -> None:
        self.index.close()
        self._observer.close()

    # ---- the learner ----

    @contextlib.contextmanager
    def viewing(self, wants: Watching, follow: str = "") -> Iterator[None]:
        """While the block lasts a viewer sees the slots ("slots"), or also their pictures ("pictures").

        The picture of the slot `follow`, WORKER/SLOT, is large.
        """
        viewer = wants, follow
        self._viewers.append(viewer)
        self._observer.wake.set()
        try:
            yield
        finally:
            self._viewers.remove(viewer)

    def _wants(self) -> tuple[Watching, tuple[str, ...]]:
        viewers = list(self._viewers)
        followed = tuple(dict.fromkeys(follow for _, follow in viewers if follow))
        wants = max((wants for wants, _ in viewers), key=LEVELS.index, default=LEVELS[0])
        return wants, followed[:MAX_FOLLOWED]

    def _join(self) -> None:
        """Joins the learner at the given address, or that of the run directory, also after it has moved."""
        config, security = self.files.config, self._security
        address = self._learner or self.files.address()
        if address == self._observer.control:
            return
        if security is None and config is not None:
            security = load_security(config.network.keys_path, config.network.key_name)
        before = self._observer
        self._observer = Observer(address, security, self._wants, self.files.run_id())
        before.close()

    def picture(self, slot: str) -> bytes:
        """The newest picture (JPEG) of a slot, WORKER/SLOT; NotStored if there is none."""
        if (found := self._observer.pictures.get(slot)) is None:
            raise NotStored("There is no picture of that slot now.")
        return found[1]

    def command(self, action: str, hand: Hand | None = None) -> None:
        """Sends an owner's command, see `Command`; NetworkError if that is not possible."""
        if not self._can_command or self._observer.state != "joined":
            raise NetworkError("No learner is connected, or actions are off.", "See docs/operations.md.")
        self._observer.command(action, hand)

    # ---- what is shown ----

    @property
    def every_s(self) -> float:
        """Seconds from one snapshot to the next."""
        status = self._observer.status
        return PLAYED_S if status is not None and status.hands else SNAPSHOT_S

    def snapshot(self) -> dict[str, Any]:
        """The present state, made at most every `every_s`."""
        with self._making:
            if time.monotonic() - self._made_at >= self.every_s * 0.9:
                self._snapshot, self._made_at = self._make(), time.monotonic()
            return self._snapshot

    def _make(self) -> dict[str, Any]:
        files, index = self.files, self.index
        files.refresh()
        try:
            self._join()
        except DistrlError as error:  # keys that this machine lacks; the directory is still of use
            self._observer.note = error.message
        seen, config = self._observer, files.config
        is_joined = seen.state == "joined"
        status = seen.status if is_joined or config is None else None
        wall = seen.wall if is_joined else None
        if status is not None and config is None:
            self._remember(status.metrics)
        metrics = {**files.newest, **(status.metrics if status is not None else {})}
        phase = status.phase if status is not None else files.phase()
        name = config.name if config is not None else status.run_id if status is not None else ""
        disk = files.disk()
        is_paused = status is not None and status.is_held
        num_quarantined = len(index.quarantined) if index.store is not None else None
        return {
            "time": time.time(),
            "rows": len(files.rows),
            "indexed": len(index.rows),
            "run": {"name": name, "path": str(files.run.path) if config is not None else ""},
            "learner": {"address": seen.control, "state": seen.state, "note": seen.note},
            "line": {
                **line(config, phase, metrics, status, self._left_s(phase, metrics)),
                "alarms": alarms(config, phase, metrics, disk, num_quarantined),
            },
            "slots": slots(wall, time.monotonic() - seen.heard_at, seen.pictures) if wall is not None else [],
            "flow": flow(metrics, status),
            "devices": {
                "counts": device_counts(metrics),
                "pool": pool(wall) if wall is not None else [],
                "faults": Counter(
                    row["fault"] for row in index.rows if row["fault"] and row["purpose"] != Purpose.IMAGINED
                ),
                "postmortems": files.postmortems(),
            },
            "costs": costs(config, metrics, index.total, files.store_bytes(), disk),
            "actions": {"allowed": self._can_command and is_joined, "paused": is_paused},
        }

    def _left_s(self, phase: str, metrics: dict[str, float]) -> float:
        if phase in ("done", "stopped"):
            return math.inf
        config = self.files.config
        return self._left.left_s(phase, *progress(config, metrics), metrics, config)

    def _remember(self, metrics: dict[str, float]) -> None:
        """Without a directory the broadcasts since this process joined stand for metrics.jsonl."""
        rows, step = self.files.rows, metrics.get("updates", 0.0)
        if not rows or rows[-1]["step"] != step:
            rows.append({"time": time.time(), **kept(metrics), "step": step})
            if len(rows) > MAX_HISTORY:
                del rows[1::2]

    def metrics(self) -> dict[str, Any]:
        """The learning curves and signals, as the page draws them."""
        return self._curves(len(self.files.rows))

    def episode(self, name: str) -> dict[str, Any]:
        """An episode by its id, or the beginning of one; NotStored if there is none or it was trimmed."""
        rows, store = self.index.rows, self.index.store
        named = [row for row in rows if name and row["id"].startswith(name)]
        if store is None or len(named) != 1:
            raise NotStored(f"{len(named)} of the episodes that are read so far have the id {name[:64]!r}.")
        (row,) = named
        members = [one for one in rows if row["group"] and one["group"] == row["group"] and one is not row]
        return {
            "row": self.index.shown(row),
            "group": [self.index.shown(one) for one in members[:MAX_GROUP]],
            **episode_json(store.get(row["id"]), store, self.files.trained(row["id"])),
        }

    def image(self, digest: str, episode: str) -> bytes:
        """A stored screenshot, or one that is drawn again because its episode has none; else NotStored."""
        if self.index.store is None:
            raise NotStored("There is no store.")
        with self._drawing:  # one at a time: drawing is slow, and the others want the same episode
            found = self._drawn(episode).get(digest)
        return self.index.store.images([digest])[digest] if found is None else found

    def _draw(self, episode: str) -> dict[str, bytes]:
        assert self.index.store is not None
        return drawn(self.index.store.get(episode)) if episode else {}
