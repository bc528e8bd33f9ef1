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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import EnvError
from distrl.workers.devices.errors import Scope

MAX_FILES = 16
MAX_FILE_BYTES = 2 * 2**20
"""Of longer files the end is kept."""
MAX_BYTES = 256 * 2**20
"""Of all post-mortems together; beyond it the oldest are removed."""
_log = logging.getLogger(__name__)


class Bundle:
    """One post-mortem, in a new folder. Used by one thread at a time; `facts` are JSON values."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self._began = time.time()
        self._num_files = 0
        self._has_evidence = False
        self._record = {**facts, "time": round(self._began, 3), "ladder": [], "result": "under way"}
        self._write()

    def add(self, files: Mapping[str, bytes]) -> None:
        """Adds files; the end of long ones, and the first `MAX_FILES`."""
        for name, data in files.items():
            if self._num_files < MAX_FILES:
                self._num_files += 1
                self._put(_safe(name), data[-MAX_FILE_BYTES:])

    def collect(self, evidence: Callable[[], Mapping[str, bytes]]) -> None:
        """Adds the device's evidence, the first time that this is called."""
        if self._has_evidence:
            return
        self._has_evidence = True
        try:
            self.add(evidence())
        except EnvError as error:
            self.add({"no-evidence.txt": str(error).encode(errors="backslashreplace")})

    def step(self, name: str, seconds: float, error: str) -> None:
        """Adds a step of the ladder; `error` is "" if it helped."""
        self._record["ladder"].append({"name": name, "seconds": round(seconds, 3), "error": error})
        self._write()

    def close(self, result: str) -> None:
        """Records how it ended: "ready", or why the device rests."""
        self._record |= {"result": result, "after_s": round(time.time() - self._began, 3)}
        self._write()

    def _write(self) -> None:
        text = json.dumps(self._record, indent=1, ensure_ascii=False)
        self._put("fault.json", text.encode(errors="backslashreplace"))

    def _put(self, name: str, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh = self.folder / f".{name}.new"
            fresh.write_bytes(data)
            fresh.replace(self.folder / name)
        except OSError as error:
            _log.warning("no post-mortem in %s: %s", self.folder, error)


@dataclass
class Postmortems:
    """The folder of bundles. Several processes may share it; beyond `max_count` the oldest are removed.

    `folder` returns where it is, for each bundle, because a run's directory may be created later.
    """

    folder: Callable[[], Path]
    max_count: int = 100

    def begin(self, device: str, error: EnvError, facts: Mapping[str, Any]) -> Bundle:
        """A new bundle about a device's error; old ones make room. `facts` are more JSON values."""
        root = self.folder()
        self._make_room(root)
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}_{_safe(device)}"
        folder, number = root / name, 1
        while folder.exists():
            number += 1
            folder = root / f"{name}-{number}"
        return Bundle(folder, {"device": device, "error": _describe(error), **facts})

    def _make_room(self, root: Path) -> None:
        """Names begin with their time, so the oldest come first."""
        with contextlib.suppress(OSError):  # another process may be removing the same ones
            bundles = sorted(path for path in root.iterdir() if path.is_dir())
            sizes = [sum(file.stat().st_size for file in path.iterdir()) for path in bundles]
            while bundles and (len(bundles) >= self.max_count or sum(sizes) > MAX_BYTES):
                shutil.rmtree(bundles.pop(0), ignore_errors=True)
                sizes.pop(0)


def _safe(name: str) -> str:
    """`name` as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:80] or "device"


def _describe(error: EnvError) -> dict[str, object]:
    return {
        "type": type(error).__name__,
        "scope": getattr(error, "scope", Scope.CALL).value,
        "retryable": getattr(error, "retryable", False),
        "message": error.message,
        "remedy": error.remedy,
        "evidence": getattr(error, "evidence", "")[-MAX_FILE_BYTES:],
        "caused_by": repr(error.__cause__) if error.__cause__ is not None else "",
    }
