"""metrics.jsonl: one object a line, safe against crashes and odd numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.core.errors import RunDirectoryError
from distrl.core.metrics import VERSIONS, MetricsWriter, read_metrics


class Memory:
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def log(self, step, metrics) -> None:
        self.rows.append((step, dict(metrics)))

    def resume(self, step) -> None:
        self.rows = [row for row in self.rows if row[0] <= step]

    def finish(self) -> None:
        self.closed = True


def test_rows_come_back_and_trackers_get_them(tmp_path: Path) -> None:
    tracker = Memory()
    writer = MetricsWriter(tmp_path / "m.jsonl", [tracker], clock=lambda: 12.5)
    writer.write(3, {"reward/total": 0.1, "odd": float("nan")})
    writer.close()
    row = json.loads((tmp_path / "m.jsonl").read_text())
    assert row == {"step": 3, "time": 12.5, "reward/total": 0.1, "odd": None}
    assert list(read_metrics(tmp_path / "m.jsonl")) == [{"step": 3, "time": 12.5, "reward/total": 0.1}]
    assert tracker.rows == [(3, {"reward/total": 0.1})]
    assert tracker.closed


def test_a_line_cut_by_a_crash_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a"')
    writer = MetricsWriter(path)
    writer.write(3, {"a": 3.0})
    writer.close()
    assert [row["step"] for row in read_metrics(path)] == [1, 3]


def test_where_a_run_goes_on_is_a_row_unless_it_only_begins(tmp_path: Path) -> None:
    for step in (0, 7):
        writer = MetricsWriter(tmp_path / "m.jsonl", clock=lambda: 1.0)
        writer.resume(step)
        writer.write(9, {"a": 1.0})
        writer.close()
    row = {"step": 9, "time": 1.0, "a": 1.0}
    assert list(read_metrics(tmp_path / "m.jsonl")) == [row, {"step": 7, "time": 1.0, "resumed": 1.0}, row]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs Linux: /dev/full")
def test_a_full_disk_is_an_error_for_users() -> None:
    writer = MetricsWriter(Path("/dev/full"))
    with pytest.raises(RunDirectoryError, match=r"No space left on device\. Free some disk space"):
        writer.write(1, {"a": 1.0})
    with pytest.raises(RunDirectoryError, match="No space left"):
        writer.close()


def test_versions_fall_into_powers_of_two() -> None:
    assert VERSIONS.labels == ["0", "1", "2-3", "4-7", "8-15", "16-31", "32+"]
    edges = {0: "0", 1: "1", 2: "2-3", 3: "2-3", 4: "4-7", 7: "4-7", 8: "8-15", 15: "8-15", 16: "16-31"}
    edges |= {31: "16-31", 32: "32+", 10**6: "32+", -1: "0"}
    assert [VERSIONS.labels[i] for i in VERSIONS.index(list(edges))] == list(edges.values())
