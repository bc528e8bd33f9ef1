"""A sweep's numbers: a table as text and CSV, and everything as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from distrl.configs.sweep import Sweep
from distrl.core.files import write_atomically
from distrl.evaluator.report.chart import short_number
from distrl.evaluator.sweeps.arms import ArmSummary, Mean
from distrl.evaluator.sweeps.runs import RunResult

TABLE_FILE, CSV_FILE, JSON_FILE = "table.txt", "table.csv", "results.json"
SHARES = ("success", "score", "invalid", "repeats")
"""Metrics whose last part is one of these are written in percent."""

NOTHING = "—"


def is_share(metric: str) -> bool:
    """Whether a metric is a share between 0 and 1; a part of the reward is none, whatever its name."""
    *families, number = metric.split("/")
    return number in SHARES and "reward" not in families


def percent(mean: Mean | None) -> str:
    """A share and half of its interval, both in percent."""
    if mean is None:
        return NOTHING
    half = _half(mean)
    return f"{100 * mean.value:.1f}%" + ("" if half is None else f" ± {100 * half:.1f}")


def table_text(sweep: Sweep, arms: Sequence[ArmSummary]) -> str:
    """One line per arm, columns aligned, with what the columns are below."""
    number = percent if is_share(sweep.metric) else _plain
    header = ["arm", "seeds", "before", "after", "gain"]
    if sweep.threshold is not None:
        header.append(f"time to {_level(sweep)}")
    header += ["episodes", "updates", "minutes"]
    rows = [header]
    for arm in arms:
        gain = number(arm.gain)
        cells = [arm.name, f"{len(arm.seeds)}/{arm.planned}", number(arm.before), number(arm.after)]
        cells.append(f"+{gain}" if arm.gain is not None and arm.gain.value >= 0 else gain)
        if sweep.threshold is not None:
            cells.append(_time(arm))
        rows.append([*cells, _plain(arm.episodes), _plain(arm.updates), _minutes(arm.minutes)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [_line(row, widths) for row in rows]
    notes = f"{sweep.metric}: mean over seeds ± 95% t-interval."
    if sweep.threshold is not None:
        notes += (
            f" Time: median until {sweep.curve} is {_level(sweep)} over three rounds (runs that got there)."
        )
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", notes]) + "\n"


def write_tables(sweep: Sweep, arms: Sequence[ArmSummary], results: Sequence[RunResult]) -> None:
    """Writes table.txt, table.csv and results.json into the sweep's directory."""
    sweep.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(sweep.directory / TABLE_FILE, table_text(sweep, arms))
    write_atomically(sweep.directory / CSV_FILE, table_csv(arms))
    write_atomically(sweep.directory / JSON_FILE, json.dumps(results_data(sweep, arms, results), indent=1))


def table_csv(arms: Sequence[ArmSummary]) -> str:
    """One row per arm; each mean with the ends of its interval, empty where unknown."""
    means: dict[str, Callable[[ArmSummary], Mean | None]] = {
        "before": lambda arm: arm.before,
        "after": lambda arm: arm.after,
        "gain": lambda arm: arm.gain,
        "episodes": lambda arm: arm.episodes,
        "updates": lambda arm: arm.updates,
        "minutes": lambda arm: arm.minutes,
    }
    columns = [f"{name}{suffix}" for name in means for suffix in ("", "_low", "_high")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["arm", "seeds", "planned", *columns, "reached", "reached_s"])
    for arm in arms:
        cells: list[Any] = []
        for read in means.values():
            cells += _ends(read(arm))
        reached_s = "" if arm.reached_s is None else f"{arm.reached_s:.1f}"
        writer.writerow([arm.name, len(arm.seeds), arm.planned, *cells, arm.num_reached, reached_s])
    return out.getvalue()


def results_data(sweep: Sweep, arms: Sequence[ArmSummary], results: Sequence[RunResult]) -> dict[str, Any]:
    """What results.json holds: the arms with their mean curves, and each run with its own."""
    return {
        "name": sweep.name,
        "metric": sweep.metric,
        "curve": sweep.curve,
        "threshold": sweep.threshold,
        "arms": [_arm_data(arm) for arm in arms],
        "runs": [asdict(result) | {"directory": str(result.directory)} for result in results],
    }


def _arm_data(arm: ArmSummary) -> dict[str, Any]:
    data = {name: _jsonable(value) for name, value in vars(arm).items() if name not in ("curve", "splits")}
    splits = {split: _jsonable(mean) for split, mean in arm.splits.items()}
    curve = [{"seconds": seconds, **_jsonable(mean)} for seconds, mean in arm.curve]
    return data | {"splits": splits, "curve": curve}


def _jsonable(value: Any) -> Any:
    if not isinstance(value, Mean):
        return value
    between = value.interval
    ends = {"low": None, "high": None} if between is None else {"low": between.low, "high": between.high}
    return {"mean": value.value, **ends, "n": value.n}


def _ends(mean: Mean | None) -> list[str]:
    if mean is None:
        return ["", "", ""]
    between = mean.interval
    return [f"{mean.value:.6g}", *([f"{between.low:.6g}", f"{between.high:.6g}"] if between else ["", ""])]


def _half(mean: Mean) -> float | None:
    return None if mean.interval is None else (mean.interval.high - mean.interval.low) / 2


def _plain(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    half = _half(mean)
    return short_number(mean.value) + ("" if half is None else f" ± {short_number(half)}")


def _minutes(mean: Mean | None) -> str:
    return NOTHING if mean is None else f"{mean.value:.1f}"


def _level(sweep: Sweep) -> str:
    threshold = sweep.threshold or 0.0
    return f"{100 * threshold:.0f}%" if is_share(sweep.curve) else short_number(threshold)


def _time(arm: ArmSummary) -> str:
    if not arm.seeds:
        return NOTHING
    time = NOTHING if arm.reached_s is None else f"{arm.reached_s / 60:.1f} min"
    return f"{time} ({arm.num_reached}/{len(arm.seeds)})"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *others])
