"""`distrl report`: writes a run's report again, from what the run left on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.core.rundir import RunDir


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory, with its evaluations.")],
) -> None:
    """Write RUN/report.html, .json and .png again from the run's metrics and evaluations.

    All complete evaluations in RUN/evaluations are compared, those of earlier checkpoints first.
    """
    from distrl.core.errors import RunDirectoryError
    from distrl.core.rundir import RunDir
    from distrl.evaluator.report import write_run_report

    directory = RunDir.open(run.expanduser())
    results = _evaluations(directory)
    if not results:
        raise RunDirectoryError(
            f"{directory.evaluations} holds no complete evaluation.",
            f"Measure a checkpoint first: distrl evaluate {directory.config} --checkpoint {run} "
            f"--output {directory.evaluations}/NAME.",
        )
    typer.echo(write_run_report(directory.path, results))


def _evaluations(run: RunDir) -> dict[str, Path]:
    """The complete evaluations by label, the earliest checkpoint first, others after them."""
    from distrl.cli.local.run import EVALUATIONS
    from distrl.core.checkpoints import POINTERS, pointed, step_of
    from distrl.evaluator.results import RESULTS_FILE

    labels = {
        pointed(run.checkpoints, name) if name in POINTERS else name: label
        for label, name in EVALUATIONS.items()
    }
    found = [path for path in run.evaluations.glob("*") if (path / RESULTS_FILE).is_file()]
    steps = {path: step_of(path.name) for path in found}
    found.sort(key=lambda path: (steps[path] is None, steps[path] or 0, path.name))
    return {labels.get(path.name, path.name): path for path in found}
