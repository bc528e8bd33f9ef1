"""`distrl inspect`: what an agent did, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.core.store import TrajectoryStore


def inspect(
    place: Annotated[
        Path, typer.Argument(metavar="RUN|STORE", help="A run, an evaluation or a store.sqlite3.")
    ],
    trajectory: Annotated[
        str | None,
        typer.Option("--trajectory", metavar="ID", help="Show this one; a prefix of its id will do."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The HTML file. Default: trajectory-ID.html."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the HTML file.")] = False,
    template: Annotated[
        str | None, typer.Option("--template", metavar="TEMPLATE", help="List only this template.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome", metavar="WORD", help="List only this ending, e.g. success or device-fault."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="List the newest N.")] = 50,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="List the run's training tasks instead: success, steps, faults.")
    ] = False,
) -> None:
    """List stored trajectories or training tasks, or write one trajectory as an HTML file.

    The file shows every screenshot with the agent's touch marked, the prompt, the tokens with their
    log-probabilities, the weight versions, the parts of the reward and the verdict. It opens offline.
    """
    from distrl.core.errors import ConfigError
    from distrl.evaluator.stores import ENDINGS, open_store

    if tasks:
        _list_tasks(place.expanduser(), template)
        return
    if outcome is not None and outcome not in ENDINGS:
        raise ConfigError(f"--outcome {outcome!r} is unknown.", f"Use one of {', '.join(ENDINGS)}.")
    store = open_store(place.expanduser())
    try:
        if trajectory is None:
            _list(store, template, outcome, limit)
        else:
            typer.echo(_write_page(store, trajectory, output, force))
    finally:
        store.close()


def _list(store: TrajectoryStore, template: str | None, outcome: str | None, limit: int) -> None:
    from distrl.evaluator.stores import ending, matching

    typer.echo(f"{'trajectory':<12}  {'ended':<18}  {'steps':>5}  {'reward':>7}  {'for':<5}  task")
    listed = list(matching(store, template, outcome, limit))
    for one in listed:
        typer.echo(
            f"{one.id[:12]:<12}  {ending(one):<18}  {len(one.steps):>5}  {one.total_reward:>7.2f}  "
            f"{one.purpose.value:<5}  {one.task.id}"
        )
    typer.echo(f"{len(listed)} of {store.count()} trajectories, newest first", err=True)


def _list_tasks(run: Path, template: str | None) -> None:
    """What became of each training task, as the learner wrote it with its newest checkpoint."""
    from distrl.core.rundir import TASKS_FILE
    from distrl.learner.task_statistics import read_table

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    table = read_table(run / TASKS_FILE)
    listed = {name: row for name, row in table.items() if template in (None, row.template)}
    typer.echo(
        f"{'episodes':>8}  {'success':>7}  {'steps':>5}  {'seconds':>7}  {'faults':>6}  {'expired':>7}  "
        f"{'given up':>8}  task"
    )
    for name, row in listed.items():
        typer.echo(
            f"{row.episodes:>8}  {shown(row.mean_success, '.2f'):>7}  {shown(row.mean_steps, '.1f'):>5}  "
            f"{shown(row.mean_seconds, '.1f'):>7}  {row.faults:>6}  {row.expired:>7}  {row.abandoned:>8}  "
            f"{name}"
        )
    typer.echo(f"{len(listed)} of {len(table)} training tasks that were tried", err=True)


def _write_page(store: TrajectoryStore, prefix: str, output: Path | None, force: bool) -> Path:
    from distrl.core.errors import RunDirectoryError
    from distrl.evaluator.judges.ground_truth import GroundTruthJudge
    from distrl.evaluator.report import write_trajectory_page
    from distrl.evaluator.stores import find_trajectory
    from distrl.evaluator.token_names import find_token_names, places_of

    found = find_trajectory(store, prefix)
    file = output or Path(f"trajectory-{found.id[:12]}.html")
    if file.exists() and not force:
        raise RunDirectoryError(f"{file} exists already.", "Name another with --output, or add --force.")
    images = store.images(store.known_images(found.image_digests))
    names = find_token_names(places_of(store.path))
    try:
        write_trajectory_page(file, found, images, GroundTruthJudge().judge(found, images), names)
    except OSError as error:
        raise RunDirectoryError(
            f"{file} cannot be written: {error.strerror or error}.", "Name another with --output."
        ) from error
    return file
