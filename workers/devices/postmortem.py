"""Post-mortems: a folder for each fault of a device, with what is known of it. Bounded in number and size.

    postmortems/20260131-120755_emulator-5554/
      fault.json                  the error, the steps of the ladder and their ends
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
from pathlib import Path
from typing import Any

from distrl.core.errors import EnvError
from distrl.workers.devices.errors import Scope

MAX_COUNT = 100
MAX_BYTES = 256 * 2**20
"""Of all post-mortems together; beyond it the oldest are removed."""
_log = logging.getLogger(__name__)


class Bundle:
    """One post-mortem about a device's error, in a new folder below `root`. Used by one thread at a time."""

    def __init__(self, root: Path, device: str, error: EnvError, files: Mapping[str, bytes]) -> None:
        _make_room(root)
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}_{re.sub(r'[^A-Za-z0-9._-]', '_', device)}"
        self.folder, number = root / name, 1
        while self.folder.exists():
            number += 1
            self.folder = root / f"{name}-{number}"
        self._has_evidence = False
        self._record: dict[str, Any] = {
            "device": device,
            "time": round(time.time(), 3),
            "error": _describe(error),
            "ladder": [],
            "result": "under way",
        }
        self._write(files)

    def collect(self, evidence: Callable[[], Mapping[str, bytes]]) -> None:
        """Adds the device's evidence, the first time that this is called."""
        if self._has_evidence:
            return
        self._has_evidence = True
        try:
            self._write(evidence())
        except EnvError as error:
            self._write({"no-evidence.txt": str(error).encode(errors="backslashreplace")})

    def step(self, name: str, seconds: float, error: str) -> None:
        """Adds a step of the ladder; `error` is "" if it helped."""
        self._record["ladder"].append({"name": name, "seconds": round(seconds, 3), "error": error})
        self._write()

    def close(self, result: str) -> None:
        """Records how it ended: "ready", or why the device rests."""
        self._record["result"] = result
        self._write()

    def _write(self, files: Mapping[str, bytes] | None = None) -> None:
        text = json.dumps(self._record, indent=1, ensure_ascii=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, data in {**(files or {}), "fault.json": text.encode(errors="backslashreplace")}.items():
                (self.folder / name).write_bytes(data)
        except OSError as error:
            _log.warning("no post-mortem in %s: %s", self.folder, error)


def _make_room(root: Path) -> None:
    """Removes the oldest, whose names begin with the earliest times."""
    with contextlib.suppress(OSError):  # another process may be removing the same ones
        bundles = sorted(path for path in root.iterdir() if path.is_dir())
        sizes = [sum(file.stat().st_size for file in path.iterdir()) for path in bundles]
        while bundles and (len(bundles) >= MAX_COUNT or sum(sizes) > MAX_BYTES):
            shutil.rmtree(bundles.pop(0), ignore_errors=True)
            sizes.pop(0)


def _describe(error: EnvError) -> dict[str, object]:
    return {
        "type": type(error).__name__,
        "scope": getattr(error, "scope", Scope.CALL).value,
        "message": error.message,
        "remedy": error.remedy,
        "evidence": getattr(error, "evidence", ""),
        "caused_by": repr(error.__cause__) if error.__cause__ is not None else "",
    }
