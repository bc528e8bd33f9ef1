"""Ratio, advantage and value of each step in the newest update that used it, for viewers of an episode.

RUN/trained.jsonl has a line for each trajectory of each update; the newest line of a trajectory counts. At
`MAX_BYTES` the file becomes trained.old.jsonl, in place of the one before. Nothing is flushed to disk:
training does not depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from distrl.core.files import writing
from distrl.learner.off_policy import StepStats

MAX_BYTES = 64 * 2**20
COLUMNS = ("ratio", "advantage", "value")


class TrainedLog:
    """Appends to `path`; used by the training thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, update: int, ids: Sequence[str], steps: StepStats) -> None:
        """Writes the steps of a batch's trajectories, whose ids are `ids`; nothing for an objective of the
        user's that does not note them.

        Raises:
            RunDirectoryError: The disk is full, or the file not writable.
        """
        if "time" not in steps.columns:
            return
        columns = {name: steps.columns[name].tolist() for name in COLUMNS if name in steps.columns}
        places = zip(steps.row.tolist(), steps.columns["time"].tolist(), strict=True)
        # A step that several passes used occurs several times; the last one counts.
        last = {place: index for index, place in enumerate(places)}
        rows: dict[int, list[int]] = {}
        for (row, _), index in sorted(last.items()):
            rows.setdefault(row, []).append(index)
        lines = []
        for row, indices in rows.items():
            found = {name: [float(f"{values[i]:.4g}") for i in indices] for name, values in columns.items()}
            lines.append(json.dumps({"id": ids[row], "update": update, **found}) + "\n")
        with writing(self._path):
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                self._path.replace(self._path.with_name("trained.old.jsonl"))
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
