"""Reports: a run's before and after, one evaluation, or one trajectory; each one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distrl.core.rundir import RunDir
from distrl.evaluator.report.metrics import EPISODES, RunMetrics
from distrl.evaluator.report.run import write_report
from distrl.evaluator.report.viewer import write_trajectory_page
from distrl.evaluator.run_state import describe

__all__ = ["write_report", "write_run_report", "write_trajectory_page"]


def write_run_report(run_dir: Path, results: Mapping[str, Path]) -> Path:
    """Writes report.html, report.json and report.png of a training run into its directory.

    Args:
        run_dir: The run's directory, with config.yaml and metrics.jsonl.
        results: Evaluation directories by label, oldest first, e.g. {"warm start": …, "after training": …}.

    Returns:
        The path of report.html.

    Raises:
        RunDirectoryError: `run_dir` is not a run, or a directory contains no complete evaluation.
        MissingDependency: jinja2 is not installed.
    """
    from distrl.configs.load import load_config

    run = RunDir.open(run_dir)
    config = load_config(run.config)
    metrics = RunMetrics.read(run.metrics)
    notice = describe(run, config, metrics.last(EPISODES) or 0.0)
    return write_report(run.path, config.name, results, metrics, config, notice=notice)
