"""The few lines at the end of `distrl train`: success before and after, and where the report is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from distrl.core.terminal import Console
from distrl.evaluator.control.measure import load_control
from distrl.evaluator.report.compare import Arm, compare
from distrl.evaluator.results import load_evaluation


def print_returns(console: Console, results: Mapping[str, Path], elapsed: str, report: Path | None) -> None:
    """Prints one row per evaluation of continuous control. Arguments as for `print_summary`."""
    table = Table("", "mean return (95% interval)", "episodes", title_justify="left")
    for label, path in results.items():
        result = load_control(path)
        low, high = (result.interval.low, result.interval.high) if result.interval else (result.mean,) * 2
        numbers = f"{result.mean:.1f} ({low:.1f} to {high:.1f})"
        table.add_row(label, numbers, str(len(result.returns)))
    console.print(table)
    _end(console, elapsed, report)


def print_summary(console: Console, results: Mapping[str, Path], elapsed: str, report: Path | None) -> None:
    """Prints one row per split.

    Args:
        console: Where to.
        results: Evaluation directories by label, oldest first.
        elapsed: How long the run took.
        report: The report, if one was written.
    """
    blocks = compare({label: load_evaluation(path) for label, path in results.items()})
    is_compared = len(results) > 1
    headings = ["split", *results, *(["gain"] if is_compared else [])]
    table = Table(*headings, title="Success rate (95% interval)", title_justify="left")
    for block in blocks:
        arms = {arm.label: arm for arm in block.overall.arms}
        gain, between = block.overall.gain, block.overall.gain_interval
        gained = ""
        if gain is not None and between is not None:
            gained = f"{100 * gain:+.0f} ({100 * between.low:+.0f} to {100 * between.high:+.0f})"
        rates = [_rate(arms.get(label)) for label in results]
        table.add_row(block.overall.name, *rates, *([gained] if is_compared else []))
    console.print(table)
    _end(console, elapsed, report)


def _end(console: Console, elapsed: str, report: Path | None) -> None:
    console.print(f"Took {elapsed}.")
    if report is not None:
        console.print(f"Report: {report}", soft_wrap=True)


def _rate(arm: Arm | None) -> str:
    if arm is None or not arm.summary.episodes:
        return "not measured"
    summary = arm.summary
    low, high = 100 * summary.interval.low, 100 * summary.interval.high
    return f"{100 * summary.success_rate:.0f}% ({low:.0f} to {high:.0f}), n = {summary.episodes}"
