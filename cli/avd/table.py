"""The list of snapshots, as a table or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from distrl.cli.avd.steps import size
from distrl.workers.devices.emulator.avd import Avd
from distrl.workers.devices.emulator.snapshots import SnapshotInfo

Rows = Sequence[tuple[Avd, Sequence[SnapshotInfo]]]
_HEAD = ("AVD", "SNAPSHOT", "SIZE", "SAVED", "API", "GPU", "SCREEN", "APPS")


def as_json(rows: Rows) -> list[str]:
    """One JSON object for each snapshot."""
    return [
        json.dumps(
            {
                "avd": avd.name,
                "snapshot": info.name,
                "size_bytes": info.size_bytes,
                "saved_at": info.saved_at,
                "has_manifest": info.manifest is not None,
                "problem": info.problem,
                "api_level": info.manifest.api_level if info.manifest else None,
                "image": info.manifest.image if info.manifest else None,
                "gpu": info.manifest.gpu if info.manifest else None,
                "emulator": info.manifest.emulator if info.manifest else None,
                "apps": info.manifest.apps if info.manifest else None,
            }
        )
        for avd, infos in rows
        for info in infos
    ]


def as_text(rows: Rows) -> list[str]:
    """A table; an AVD without snapshots has a line, too."""
    table: list[tuple[str, ...]] = [_HEAD]
    for avd, infos in rows:
        table += [_line(avd, info) for info in infos] or [(avd.name, "-", "", "", "", "", "", "")]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def _line(avd: Avd, info: SnapshotInfo) -> tuple[str, ...]:
    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.saved_at))
    start = (avd.name, info.name, size(info.size_bytes), saved)
    manifest = info.manifest
    if manifest is None:
        return (*start, "?", "?", "?", "no manifest" if not info.problem else "unreadable manifest")
    screen = f"{manifest.screen.width}x{manifest.screen.height}"
    return (*start, str(manifest.api_level), manifest.gpu, screen, str(len(manifest.apps)))
