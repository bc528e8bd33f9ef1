"""Sweeps: what their runs came to, over seeds, as a table and a plot."""

from __future__ import annotations

from pathlib import Path

from distrl.configs.sweep import Sweep
from distrl.core.errors import MissingDependency
from distrl.evaluator.sweeps.arms import ArmSummary, summarise_arms
from distrl.evaluator.sweeps.metric import not_measured
from distrl.evaluator.sweeps.runs import read_run
from distrl.evaluator.sweeps.table import TABLE_FILE, table_text, write_tables

__all__ = ["ArmSummary", "write_sweep_report"]

PLOT_FILE = "curves.png"


def write_sweep_report(sweep: Sweep) -> tuple[str, Path, str]:
    """Writes table.txt, table.csv, results.json and, when matplotlib is there, curves.png of a sweep.

    Returns:
        The table as text, with what a run lacks of the metric below; the file of the plot (or of the table
        without one); and what hindered the plot.
    """
    results = [read_run(run, sweep) for run in sweep.runs]
    arms = summarise_arms(results, sweep.arms)
    write_tables(sweep, arms, results)
    text, hint = table_text(sweep, arms), ""
    lacking = next(filter(None, (not_measured(sweep, result) for result in results)), None)
    if lacking is not None:
        text += f"\n{lacking}\n"
    try:
        from distrl.evaluator.sweeps.plot import draw_curves

        draw_curves(sweep.directory / PLOT_FILE, sweep, arms)
    except MissingDependency as error:
        hint = str(error)
    return text, sweep.directory / (TABLE_FILE if hint else PLOT_FILE), hint
