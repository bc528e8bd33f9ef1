"""What a run directory says, followed while it grows: metrics, state, post-mortems. Reads only."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.errors import NotStored
from distrl.core.metrics import RESUMED, parse_rows
from distrl.core.rundir import RunDir
from distrl.evaluator.dashboard.curves import kept
from distrl.evaluator.run_state import is_complete

FRESH_S = 60.0
"""A run whose metrics grew in this time is running, as far as its directory shows."""
MAX_POSTMORTEMS = 50


class RunFiles:
    """A run directory; `refresh` reads what is new. Other threads may call all the rest.

    Without a path nothing is read, and the dashboard fills `rows` from what the learner broadcasts.

    Attributes:
        config: None without a path.
        rows: The rows of metrics.jsonl so far, as far as curves need them.
        newest: The newest value of each metric.

    Raises:
        RunDirectoryError: `path` is not a run.
    """

    def __init__(self, path: Path | None) -> None:
        # Without a path it is one in which nothing can be.
        self.run = RunDir(Path(os.devnull)) if path is None else RunDir.open(path)
        self.config: Config | None = None if path is None else load_config(str(self.run.config))
        self._begin()
        self.refresh()

    def _begin(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.newest: dict[str, float] = {}
        self._offset = 0
        self._versions: list[tuple[float, float]] = []  # when, and the newest weight version then

    def refresh(self) -> None:
        """Reads the rows that were added to metrics.jsonl; all of it if it was replaced by a shorter one."""
        try:
            with self.run.metrics.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._begin()
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return  # not there yet, or not readable now
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for row in parse_rows(whole.decode("utf-8", "replace").split("\n")):
            if RESUMED in row:  # perhaps with another configuration
                self.config = load_config(str(self.run.config))
            self.rows.append(kept(row))
            self.newest |= row
            if "versions" in row and "time" in row:
                self._versions.append((row["time"], row["versions"]))

    def version_at(self, unix: float) -> float | None:
        """The newest weight version at a Unix time, by the learner's clock; None before the first."""
        versions = self._versions
        place = bisect.bisect_right(versions, (unix, float("inf")))
        return versions[place - 1][1] if place else None

    def phase(self) -> str:
        """The phase as far as the directory shows it: "done", "stopped", or of which the newest row is."""
        if self.config is not None and is_complete(self.run, self.config):
            return "done"
        if not self.newest:
            return "starting"
        if not self.address() or time.time() - self.run.metrics.stat().st_mtime > FRESH_S:
            return "stopped"
        return "training" if any(name.startswith("train/") for name in self.newest) else "warm-up"

    def address(self) -> str:
        """Where the learner answers from this machine; "" while none is running."""
        return _line(self.run.address).replace("tcp://0.0.0.0:", "tcp://127.0.0.1:")

    def run_id(self) -> str:
        """The run's id; "" before its first learner started."""
        return _line(self.run.path / ".run_id")

    def disk(self) -> tuple[int, int] | None:
        """The total and the free bytes of the run's disk; None without a path."""
        return shutil.disk_usage(self.run.path)[::2] if self.config is not None else None

    def store_bytes(self) -> int:
        """The size of the store, with what is not yet written into it."""
        return sum(file.stat().st_size for file in self.run.path.glob(f"{self.run.store.name}*"))

    def postmortems(self) -> list[dict[str, Any]]:
        """The newest faults of devices that workers on this machine have recorded, the newest first."""
        found = []
        folder = self.run.path / "postmortems"
        for file in sorted(folder.glob("*/fault.json"), reverse=True)[:MAX_POSTMORTEMS]:
            # Otherwise it is being written.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(file.read_bytes())
                about = {name: str(record[name]) for name in ("device", "result")}
                about |= {"name": file.parent.name, "error": str(record["error"]["message"])}
                names = sorted(one.name for one in file.parent.iterdir())
                found.append({**about, "time": float(record["time"]), "files": names})
        return found

    def postmortem(self, name: str, file: str) -> bytes:
        """A file of a post-mortem; NotStored if there is none, or only a link."""
        folder = (self.run.path / "postmortems").resolve()
        found = {(one.parent.name, one.name): one for one in folder.glob("*/*")}.get((name, file))
        if found is None or not found.is_file() or found.resolve() != found:
            raise NotStored(f"There is no file {file[:64]!r} of a post-mortem {name[:64]!r}.")
        return found.read_bytes()

    def trained(self, trajectory_id: str) -> dict[str, Any]:
        """What the newest update that used a trajectory made of its steps; {} if none is known.

        See `distrl.learner.trained`.
        """
        for name in ("trained.jsonl", "trained.old.jsonl"):
            with contextlib.suppress(OSError, ValueError):  # it is being written
                data = (self.run.path / name).read_bytes()
                at = data.rfind(f'{{"id": "{trajectory_id}"'.encode())
                if at >= 0:
                    found: dict[str, Any] = json.loads(data[at:].split(b"\n", 1)[0])
                    return found
        return {}


def _line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
