"""The list of virtual devices and their snapshots, as a table or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from distrl.cli.avd.steps import size
from distrl.workers.devices.avd import Avd
from distrl.workers.devices.errors import EmulatorError
from distrl.workers.devices.snapshots import SnapshotInfo

Rows = Sequence[tuple[Avd, Sequence[SnapshotInfo]]]
Broken = Mapping[str, EmulatorError]
"""Why each AVD that cannot be used cannot, by name."""
_HEAD = ("AVD", "SNAPSHOT", "SIZE", "SAVED", "API", "GPU", "SCREEN", "APPS")


def as_json(rows: Rows, broken: Broken) -> list[str]:
    """One JSON object for each snapshot, and for each AVD that cannot be used."""
    unusable = [{"avd": name, "snapshot": None, "problem": str(error)} for name, error in broken.items()]
    return [json.dumps(one) for one in unusable] + [
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


def as_text(rows: Rows, broken: Broken) -> list[str]:
    """A table; an AVD without snapshots has a line, too. Below it, what is wrong with the other AVDs."""
    table: list[tuple[str, ...]] = [_HEAD]
    for avd, infos in rows:
        table += [_line(avd, info) for info in infos] or [(avd.name, "-", "", "", "", "", "", "")]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ] + [f"{name}: {error}" for name, error in broken.items()]


def _line(avd: Avd, info: SnapshotInfo) -> tuple[str, ...]:
    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.saved_at))
    start = (avd.name, info.name, size(info.size_bytes), saved)
    manifest = info.manifest
    if manifest is None:
        return (*start, "?", "?", "?", "no manifest" if not info.problem else "unreadable manifest")
    screen = f"{manifest.screen.width}x{manifest.screen.height}"
    return (*start, str(manifest.api_level), manifest.gpu, screen, str(len(manifest.apps)))
