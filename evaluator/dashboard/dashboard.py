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
from typing import Any

from distrl.configs.schema import Config
from distrl.core.errors import DistrlError, NetworkError, NotStored
from distrl.core.security import Security, load_security
from distrl.core.slot_view import Hand
from distrl.core.types import Trajectory
from distrl.evaluator.dashboard.index import EpisodeIndex, Selection
from distrl.evaluator.dashboard.observer import Observer, Picture
from distrl.evaluator.dashboard.player import episode_json
from distrl.evaluator.dashboard.run_files import RunFiles
from distrl.evaluator.dashboard.snapshot import Sources, progress, snapshot
from distrl.evaluator.failure_modes import MODE_WORDS
from distrl.evaluator.progress import TimeLeft
from distrl.evaluator.report.chart import thin
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, RunMetrics
from distrl.evaluator.report.training import (
    FRESHNESS_SIGNALS,
    SIGNALS,
    TRAIN_SUCCESS,
    VALIDATION_SUCCESS,
    SignalSpec,
    bounds,
    learning_curve,
    signal_series,
)
from distrl.evaluator.stores import Found, drawn
from distrl.workers.episode import BLANK

SNAPSHOT_S, PLAYED_S = 1.0, 0.25  # the second while somebody plays a slot
MAX_HISTORY = 2000
"""Rows that are kept of a learner's broadcasts where there is no run directory."""
MAX_POINTS = 200
MAX_GROUP = 64
WATCHING = ("status", "slots", "pictures")
RETURNS: SignalSpec = (
    "Return",
    "Mean return of an episode",
    (("train/return", "training"), ("eval/return", "evaluation")),
)
GROUPS = (("Training", (RETURNS, *SIGNALS)), ("Freshness", FRESHNESS_SIGNALS))
"""The signals of a run's report; returns are those of continuous control."""


class Dashboard:
    """Follows a run directory, a learner, or both. Any thread may call its methods.

    Args:
        path: The run directory; None to see only what the learner reports.
        learner: The address of its control socket; None: as the run directory names it.
        security: Keys for that address; None: those of the run's configuration.
        can_command: Whether viewers may pause the run and request checkpoints.
    """

    def __init__(
        self,
        path: Path | None,
        learner: str | None = None,
        security: Security | None = None,
        can_command: bool = False,
    ) -> None:
        self.files = RunFiles(path) if path is not None else None
        self._learner, self._security, self._can_command = learner, security, can_command
        self._observer: Observer | None = None
        self._problem = ""
        self._history: list[dict[str, float]] = []
        self.index = EpisodeIndex(self.files.run.store, self.files.version_at) if self.files else None
        self._viewers: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._left, self._phase = TimeLeft(), ""
        self._snapshot: dict[str, Any] = {}
        self._made_at = -math.inf
        self._metrics: tuple[int, dict[str, Any]] = -1, {}

    def start(self) -> Dashboard:
        """Starts its threads. Raises SecurityError if the learner's address needs keys that are missing."""
        if self.files is not None:
            self.files.refresh()
        if self.index is not None:
            self.index.start()
        if self._learner is not None:
            self._join(self._learner, self._security, "")
        return self

    def close(self) -> None:
        """Ends all threads."""
        if self.index is not None:
            self.index.close()
        if self._observer is not None:
            self._observer.close()

    def __enter__(self) -> Dashboard:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- the learner ----

    @contextlib.contextmanager
    def viewing(self, wants: str, followed: tuple[str, ...] = ()) -> Iterator[None]:
        """While the block lasts a viewer sees the slots ("slots"), or also their pictures ("pictures")."""
        key = wants, followed
        with self._lock:
            self._viewers[key] += 1
        if self._observer is not None:
            self._observer.refresh()
        try:
            yield
        finally:
            with self._lock:
                self._viewers[key] -= 1

    def _wants(self) -> Any:
        with self._lock:
            active = [key for key, count in self._viewers.items() if count > 0]
        level = max((WATCHING.index(wants) for wants, _ in active), default=0)
        followed = dict.fromkeys(name for _, names in active for name in names)
        return WATCHING[level], tuple(followed)[:16]

    def _join(self, control: str, security: Security | None, run_id: str) -> None:
        observer = Observer(control, security, self._wants, run_id)
        observer.start()
        self._observer = observer

    def _find_learner(self) -> None:
        """Joins the learner that the run directory names, also after it has moved."""
        if self._learner is not None or self.files is None:
            return
        address = self.files.address()
        if self._observer is not None and address not in (None, self._observer.control):
            self._observer.close()
            self._observer = None
        if self._observer is None and address is not None:
            network = self.files.config.network
            try:
                security = self._security or load_security(network.keys_path, network.key_name)
                self._join(address, security, self.files.run_id())
                self._problem = ""
            except DistrlError as error:  # keys that this machine lacks; the directory is still of use
                self._problem = error.message

    def picture(self, worker: str, slot: int) -> Picture | None:
        """The newest picture of a slot."""
        return self._observer.picture(worker, slot) if self._observer is not None else None

    def command(self, action: str, hand: Hand | None = None) -> None:
        """Sends an owner's command, see `Command`; NetworkError if that is not possible."""
        if self._observer is None or not self._can_command:
            raise NetworkError("This dashboard cannot command the learner.", self._why())
        self._observer.command(action, hand)

    def _why(self) -> str:
        if not self._can_command:
            return "Set DISTRL_DASHBOARD_TOKEN to enable the owner's actions."
        return "" if self._observer is not None else "No learner is connected."

    # ---- what is shown ----

    def snapshot(self) -> dict[str, Any]:
        """The present state, made at most once a second."""
        with self._making:
            status = self._observer.status if self._observer is not None else None
            every_s = PLAYED_S if status is not None and status.hands else SNAPSHOT_S
            if time.monotonic() - self._made_at >= every_s * 0.9:
                self._snapshot, self._made_at = self._make(), time.monotonic()
            return self._snapshot

    def _make(self) -> dict[str, Any]:
        self._find_learner()
        files, observer, index = self.files, self._observer, self.index
        if files is not None:
            files.refresh()
        is_joined = observer is not None and observer.state == "joined"
        status = observer.status if observer is not None and is_joined else None
        config = files.config if files is not None else None
        metrics = dict(files.newest) if files is not None else {}
        if status is not None:
            metrics |= status.metrics
            self._remember(status.metrics)
        phase = status.phase if status is not None else files.phase() if files is not None else "starting"
        wall = observer.wall if observer is not None and is_joined else None
        heard_s = time.monotonic() - observer.heard_at if observer is not None else 0.0
        reports = wall.reports if wall is not None else ()
        pictures = {
            (report.worker, view.slot): found.number
            for report in reports
            for view in report.slots
            if observer is not None and (found := observer.picture(report.worker, view.slot)) is not None
        }
        return snapshot(
            Sources(
                config=config,
                path=str(files.run.path) if files is not None else "",
                phase=phase,
                metrics=metrics,
                status=status,
                wall=wall,
                wall_age_s=heard_s,
                address=observer.control if observer is not None else "",
                state=observer.state if observer is not None else "none",
                note=observer.note if observer is not None else self._problem,
                left_s=self._left_s(config, phase, metrics),
                num_quarantined=len(index.quarantined) if index is not None and index.store else None,
                num_episodes=index.total if index is not None else None,
                store_bytes=_size_of(files.run.store) if files is not None else None,
                disk=files.disk() if files is not None else None,
                faults=index.faults if index is not None else {},
                postmortems=files.postmortems() if files is not None else (),
                versions=pictures,
            ),
            time.time(),
            allowed=self._can_command and is_joined,
            why=self._why(),
        )

    def _left_s(self, config: Config | None, phase: str, metrics: dict[str, float]) -> float:
        if phase != self._phase:
            self._left.clear()
            self._phase = phase
        if phase in ("done", "stopped"):
            return math.inf
        left_s = self._left.left_s(phase, *progress(config, metrics))
        if phase == "training" and config is not None:
            left_s = self._left.training_left_s(metrics, config, left_s)
        return left_s

    def _remember(self, metrics: dict[str, float]) -> None:
        """Where there is no directory, the broadcasts since this process joined stand for metrics.jsonl."""
        if self.files is None and metrics.get("updates", -1.0) != self._last_update():
            self._history.append({"step": metrics.get("updates", 0.0), "time": time.time(), **metrics})
            if len(self._history) > MAX_HISTORY:
                self._history = self._history[::2]

    def _last_update(self) -> float:
        return self._history[-1].get("step", 0.0) if self._history else -1.0

    @property
    def num_rows(self) -> int:
        """How many rows of metrics there are."""
        return len(self._rows)

    @property
    def _rows(self) -> list[dict[str, float]]:
        return self.files.rows if self.files is not None else self._history

    def metrics(self) -> dict[str, Any]:
        """The learning curves and signals, as the page draws them."""
        num, made = self._metrics
        rows = list(self._rows)
        if num != len(rows):
            made = {"rows": len(rows), **curves(RunMetrics(rows))}
            self._metrics = len(rows), made
        return made

    def episodes(self, chosen: Selection, before: int | None, limit: int) -> dict[str, Any]:
        """A page of rows."""
        index = self.index
        if index is None:
            return {"rows": [], "more": False, "indexed": 0, "total": 0, "modes": {}, "templates": []}
        rows, more = index.select(chosen, before, limit)
        return {
            "rows": [row.as_json(index.quarantined.get(row.result.trajectory_id, "")) for row in rows],
            "more": more,
            "indexed": index.num_indexed,
            "total": index.total,
            "modes": {mode.value: words for mode, words in MODE_WORDS.items()},
            "templates": sorted({row.result.template for row in index.rows}),
        }

    def heatmap(self, bins: int) -> dict[str, Any]:
        """Episodes by template and time."""
        if self.index is None:
            return {"times": [], "rows": [], "indexed": 0, "total": 0}
        return self.index.heatmap(bins)

    def episode(self, name: str) -> dict[str, Any]:
        """An episode by its id, or the beginning of one; NotStored if there is none or it was trimmed."""
        index = self.index
        rows = index.rows if index is not None else []
        named = [row for row in rows if name and row.result.trajectory_id.startswith(name)]
        if self.files is None or index is None or index.store is None or len(named) != 1:
            raise NotStored(f"{len(named)} of the episodes that are read so far have the id {name[:64]!r}.")
        row = named[0]
        trajectory = index.store.get(row.result.trajectory_id)
        members = [one for one in rows if row.group and one.group == row.group and one.seq != row.seq]
        return {
            "row": row.as_json(index.quarantined.get(trajectory.id, "")),
            "group": [one.as_json() for one in members[:MAX_GROUP]],
            **episode_json(Found(trajectory, row.result, index.store), self.files.trained(trajectory.id)),
        }

    def image(self, digest: str, episode: str) -> bytes:
        """A stored screenshot, or one that is drawn again because its episode has none; else NotStored."""
        if self.index is None or self.index.store is None:
            raise NotStored("There is no store.")
        if episode and (found := self._drawn(episode).get(digest)) is not None:
            return found
        return self.index.store.images([digest])[digest]

    def _drawn(self, episode: str) -> dict[str, bytes]:
        assert self.index is not None
        assert self.index.store is not None
        trajectory = self.index.store.get(episode)
        first = trajectory.steps[0].observation if trajectory.steps else trajectory.final
        if first is None or first.width != BLANK[0]:
            return {}
        with _drawing:  # one at a time: drawing is slow, and the others want the same episode
            return _redrawn(_Episode(trajectory))


class _Episode:
    """A trajectory that is compared by its id."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory

    def __hash__(self) -> int:
        return hash(self.trajectory.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Episode) and self.trajectory.id == other.trajectory.id


_drawing = threading.Lock()


@lru_cache(maxsize=16)
def _redrawn(episode: _Episode) -> dict[str, bytes]:
    return drawn(episode.trajectory)


def _size_of(store: Path) -> int | None:
    """Bytes of a store and of what is not yet written into it; None if there is no store."""
    try:
        log = store.with_name(f"{store.name}-wal")
        return store.stat().st_size + (log.stat().st_size if log.exists() else 0)
    except OSError:
        return None


def curves(metrics: RunMetrics) -> dict[str, Any]:
    """Success with intervals over episodes and minutes, and the signals of a report, as plain numbers."""
    by_episodes, by_time = learning_curve(metrics, EPISODES), learning_curve(metrics, ELAPSED)
    train, validation = [], []
    # Rows before the first count of episodes have a time only.
    timed = by_time.train[len(by_time.train) - len(by_episodes.train) :]
    for (episodes, rate), (seconds, _) in zip(by_episodes.train, timed, strict=True):
        train.append((episodes, seconds / 60.0, rate, min(100, max(1, round(episodes)))))
    for (episodes, rate), (seconds, _), n in zip(
        by_episodes.validation, by_time.validation, by_episodes.counts, strict=True
    ):
        validation.append((episodes, seconds / 60.0, rate, n))
    series = [
        (TRAIN_SUCCESS, "training episodes", train),
        (metrics.find(VALIDATION_SUCCESS) or "", "validation, with 95% interval", validation),
    ]
    return {
        "success": {
            "x": ["episodes", "minutes"],
            "series": [
                {"name": name, "label": label, "points": [_with_bounds(*point) for point in _thinned(points)]}
                for name, label, points in series
                if points
            ],
        },
        "groups": [{"title": title, "signals": _signals(metrics, chosen)} for title, chosen in GROUPS],
    }


def _thinned(points: list[tuple[float, float, float, int]]) -> list[tuple[float, float, float, int]]:
    kept = thin([(float(i), 0.0) for i in range(len(points))], MAX_POINTS)
    return [points[round(i)] for i, _ in kept]


def _with_bounds(episodes: float, minutes: float, rate: float, n: int) -> list[float]:
    low, high = bounds(min(1.0, max(0.0, rate)), n)
    return [episodes, round(minutes, 4), rate, low, high, n]


def _signals(metrics: RunMetrics, chosen: Any) -> list[dict[str, Any]]:
    found = []
    for title, note, series in signal_series(metrics, chosen):
        lines = [
            {"name": name, "label": label, "points": [list(point) for point in points]}
            for name, label, points in series
            if points
        ]
        if lines:
            found.append({"title": title, "note": note, "x": "update", "lines": lines})
    return found
