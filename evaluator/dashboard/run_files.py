"""What a run directory says, followed while it grows: metrics, state, disk, post-mortems. Reads only."""

from __future__ import annotations

import bisect
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from distrl.configs.load import load_config
from distrl.core.checkpoints import pointed
from distrl.core.metrics import parse_rows
from distrl.core.rundir import RunDir
from distrl.evaluator.run_state import is_complete

FRESH_S = 60.0
"""A run whose metrics grew in this time is running, as far as its directory shows."""
MAX_POSTMORTEMS = 50
_MAX_POSTMORTEM_BYTES = 2**20


class RunFiles:
    """A run directory; `refresh` reads what is new. Any thread.

    Attributes:
        rows: Those of metrics.jsonl so far.
        newest: The newest value of each metric.

    Raises:
        RunDirectoryError: `path` is not a run.
    """

    def __init__(self, path: Path) -> None:
        self.run = RunDir.open(path)
        self.config = load_config(str(self.run.config))
        self.rows: list[dict[str, float]] = []
        self.newest: dict[str, float] = {}
        self._lock = threading.Lock()
        self._offset, self._rest = 0, b""
        self._versions: list[tuple[float, float]] = []  # when, and the newest weight version then

    def refresh(self) -> None:
        """Reads the rows that were added to metrics.jsonl; all of it if it was replaced by a shorter one."""
        with self._lock:
            try:
                size = self.run.metrics.stat().st_size
                if size < self._offset:
                    self._offset, self._rest, self.rows, self.newest, self._versions = 0, b"", [], {}, []
                if size == self._offset:
                    return
                with self.run.metrics.open("rb") as file:
                    file.seek(self._offset)
                    data = file.read()
            except OSError:
                return  # not there yet, or not readable now
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for row in parse_rows(line.decode("utf-8", "replace") for line in lines):
                self.rows.append(row)
                self.newest |= row
                if "versions" in row and "time" in row:
                    self._versions.append((row["time"], row["versions"]))

    def version_at(self, unix: float) -> float | None:
        """The newest weight version at a Unix time, by the learner's clock; None before the first."""
        place = bisect.bisect_right(self._versions, (unix, float("inf")))
        return self._versions[place - 1][1] if place else None

    def phase(self) -> str:
        """The phase as far as the directory shows it: "done", "stopped", or of which the newest row is."""
        if pointed(self.run.checkpoints, "final") is not None and is_complete(self.run, self.config):
            return "done"
        try:
            age_s = time.time() - self.run.metrics.stat().st_mtime
        except OSError:
            return "starting"
        if age_s > FRESH_S:
            return "stopped"
        return "training" if any(name.startswith("train/") for name in self.newest) else "warm-up"

    def address(self) -> str | None:
        """Where the learner answers from this machine; None while none is running."""
        try:
            found = self.run.address.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return found.replace("tcp://0.0.0.0:", "tcp://127.0.0.1:") or None

    def run_id(self) -> str:
        """The run's id; "" before its first learner started."""
        try:
            return (self.run.path / ".run_id").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def postmortems(self) -> list[dict[str, Any]]:
        """The newest faults of devices that workers on this machine have recorded, the newest first."""
        found = []
        folder = self.run.path / "postmortems"
        for file in sorted(folder.glob("*/fault.json"), reverse=True)[:MAX_POSTMORTEMS]:
            try:
                if file.stat().st_size > _MAX_POSTMORTEM_BYTES:
                    continue
                record = json.loads(file.read_text(encoding="utf-8"))
                error = record["error"]
                text = error.get("message", "") if isinstance(error, dict) else error
                found.append(
                    {
                        "name": file.parent.name,
                        "device": str(record["device"]),
                        "time": float(record["time"]),
                        "error": str(text),
                        "result": str(record["result"]),
                    }
                )
            except (OSError, ValueError, KeyError, TypeError):
                continue  # it is being written
        return found

    def trained(self, trajectory_id: str) -> dict[str, Any]:
        """What the newest update that used a trajectory made of its steps; {} if none is known.

        See `distrl.learner.trained`.
        """
        for name in ("trained.jsonl", "trained.old.jsonl"):
            try:
                data = (self.run.path / name).read_bytes()
                at = data.rfind(f'{{"id": "{trajectory_id}"'.encode())
                if at >= 0:
                    found = json.loads(data[at:].split(b"\n", 1)[0])
                    return found if isinstance(found, dict) else {}
            except (OSError, ValueError):
                continue
        return {}

    def disk(self) -> tuple[int, int] | None:
        """Free and total bytes of the run's disk."""
        try:
            usage = shutil.disk_usage(self.run.path)
        except OSError:
            return None
        return usage.free, usage.total
