"""`distrl report`: writes a run's report again, from what the run left on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.configs.schema import Config
    from distrl.core.rundir import RunDir


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
) -> None:
    """Write RUN/report.html and .json again from the run's metrics and evaluations.

    It works at any time, during the run too, with what there is. All complete evaluations in RUN/evaluations
    are compared, those of earlier checkpoints first.
    """
    from distrl.cli.run_kind import run_kind
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir

    directory = RunDir.open(run.expanduser())
    config = load_config(directory.config)
    typer.echo(run_kind(config).write_report(directory, _evaluations(directory, config)))


def _evaluations(run: RunDir, config: Config) -> dict[str, Path]:
    """The complete evaluations by label, the earliest checkpoint first, others after them."""
    from distrl.core.checkpoints import step_of
    from distrl.evaluator.results import RESULTS_FILE
    from distrl.evaluator.run_state import WARM_START, arms

    labels = {WARM_START: config.goal.start} | {name: label for label, name in arms(run, config).items()}
    found = [path for path in run.evaluations.glob("*") if (path / RESULTS_FILE).is_file()]
    steps = {path: step_of(path.name) for path in found}
    found.sort(key=lambda path: (steps[path] is None, steps[path] or 0, path.name))
    return {labels.get(path.name, path.name): path for path in found}
