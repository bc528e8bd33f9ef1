"""Post-mortems: a folder for each fault of a device, with what is known of it. Bounded in number and size.

    postmortems/20260131-120755_emulator-5554/
      fault.json                  the error, timings, the slot's past, the steps of the ladder and their ends
      screen-0.jpg …              the last screenshots of the episode
      logcat.txt, emulator.log …  evidence from the device

A bundle is written by the thread that repairs the device. A full disk costs the post-mortem, not the device.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from distrl.core.errors import EnvError
from distrl.workers.devices.errors import Scope
from distrl.workers.devices.health import StepOutcome, Transition

MAX_FILES = 16
MAX_FILE_BYTES = 2 * 2**20
"""Of longer files the end is kept."""
MAX_STEPS = 200
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Facts:
    """The facts about a device that fails.

    Attributes:
        device, kind: Which one.
        error: What happened.
        is_host: Whether it was attributed to the machine.
        busy_s: How long it had been leased, None if it was idle.
        silent_s: How long ago its last sign of life was.
        history: Its states before.
    """

    device: str
    kind: str
    error: EnvError
    is_host: bool = False
    busy_s: float | None = None
    silent_s: float = 0.0
    history: tuple[Transition, ...] = ()


class Bundle:
    """One post-mortem. Used by one thread at a time.

    Attributes:
        folder: Where it is.
        wants_evidence: The device's evidence has not been collected yet.

    Args:
        folder: To be made.
        facts: What is known so far.
        wall: Unix time.
    """

    def __init__(self, folder: Path, facts: Facts, wall: Callable[[], float]) -> None:
        self.folder = folder
        self.wants_evidence = True
        self._wall, self._began = wall, wall()
        self._num_files = 0
        self._steps: list[StepOutcome] = []
        self._facts = _describe(facts, self._began)
        self._end: dict[str, Any] = {"result": "under way"}
        self._write()

    def add(self, files: Mapping[str, bytes]) -> None:
        """Adds files; the end of long ones, and the first `MAX_FILES`."""
        for name, data in files.items():
            if self._num_files >= MAX_FILES:
                return
            self._num_files += 1
            self._put(_safe(name), data[-MAX_FILE_BYTES:])

    def step(self, outcome: StepOutcome) -> None:
        """Adds a step of the ladder."""
        if len(self._steps) < MAX_STEPS:
            self._steps.append(outcome)
        self._write()

    def close(self, result: str) -> None:
        """Records how it ended: "ready", or why the device rests."""
        self._end = {"result": result, "after_s": round(self._wall() - self._began, 3)}
        self._write()

    def _write(self) -> None:
        ladder = [{**asdict(step), "seconds": round(step.seconds, 3)} for step in self._steps]
        record = {**self._facts, "ladder": ladder, **self._end}
        text = json.dumps(record, indent=1, ensure_ascii=False)
        self._put("fault.json", text.encode(errors="backslashreplace"))

    def _put(self, name: str, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh = self.folder / f".{name}.new"
            fresh.write_bytes(data)
            fresh.replace(self.folder / name)
        except OSError as error:
            _log.warning("no post-mortem of %s: %s", self._facts["device"], error)


@dataclass
class Postmortems:
    """The folder of bundles. Several processes may share it.

    Attributes:
        folder: Returns where it is; called for each bundle, because a run's directory may be created later.
        max_count, max_bytes: Beyond these the oldest bundles are removed.
        wall: Unix time.
    """

    folder: Callable[[], Path]
    max_count: int = 100
    max_bytes: int = 256 * 2**20
    wall: Callable[[], float] = field(default=time.time)

    def begin(self, facts: Facts) -> Bundle:
        """A new bundle; old ones make room."""
        root = self.folder()
        self._make_room(root)
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.wall()))
        name = f"{when}_{_safe(facts.device)}"
        folder, number = root / name, 1
        while folder.exists():
            number += 1
            folder = root / f"{name}-{number}"
        return Bundle(folder, facts, self.wall)

    def _make_room(self, root: Path) -> None:
        """Names begin with their time, so the oldest come first."""
        with contextlib.suppress(OSError):  # another process may be removing the same ones
            bundles = sorted(path for path in root.iterdir() if path.is_dir())
            sizes = [_size(path) for path in bundles]
            while bundles and (len(bundles) >= self.max_count or sum(sizes) > self.max_bytes):
                shutil.rmtree(bundles.pop(0), ignore_errors=True)
                sizes.pop(0)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _safe(name: str) -> str:
    """`name` as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:80] or "device"


def _describe(facts: Facts, now: float) -> dict[str, Any]:
    error = facts.error
    return {
        "device": facts.device,
        "kind": facts.kind,
        "time": round(now, 3),
        "error": {
            "type": type(error).__name__,
            "scope": getattr(error, "scope", Scope.CALL).value,
            "retryable": getattr(error, "retryable", False),
            "message": error.message,
            "remedy": error.remedy,
            "evidence": getattr(error, "evidence", "")[-MAX_FILE_BYTES:],
            "caused_by": repr(error.__cause__) if error.__cause__ is not None else "",
        },
        "taken_for": "host" if facts.is_host else "device",
        "busy_s": None if facts.busy_s is None else round(facts.busy_s, 3),
        "silent_s": round(facts.silent_s, 3),
        "history": [asdict(change) for change in facts.history],
    }
