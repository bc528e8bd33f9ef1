"""`distrl evaluate --rejudge`: a judge on stored episodes: success rate and agreement with ground truth."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from distrl.core.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
    from distrl.configs.schema import Config

GRACE_S = 5.0
REPORT_EVERY = 25


def refuse_idle(options: Mapping[str, object]) -> None:
    """Raises ConfigError for options that have no effect with `--rejudge`."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"{', '.join(given)} has no effect with --rejudge, which judges all stored episodes.",
            "Remove it; use --set evaluate.episodes=N to judge fewer.",
        )


def rejudge_stored(config: Config, place: Path) -> None:
    """Lets `config.judge` judge the episodes in `place`; at most `evaluate.episodes` of them, newest first.

    Verdicts are written next to the episodes; calling it again continues an interrupted session.

    Raises:
        ConfigError: A setting of the judge, such as its key, is missing.
        StoreError: There are no episodes.
        JudgeError: The judge's files cannot be read, or it rejects every request.
        EvaluationStopped: A signal came.
    """
    from distrl.core.process import install_signals
    from distrl.evaluator.agreement import lines
    from distrl.evaluator.rejudge import Rejudged
    from distrl.evaluator.runner import EvaluationStopped

    last = (0, 0)

    def report_progress(done: int, total: int) -> None:
        nonlocal last
        if (done % REPORT_EVERY == 0 or done == total) and (done, total) != last:
            typer.echo(f"judged {done} of {total}", err=True)
            last = (done, total)

    stop = install_signals(GRACE_S)
    with contextlib.closing(Rejudged(place, config.judge, config.worker.rewards)) as rejudged:
        report = rejudged.run(config.evaluate.episodes, stop, report_progress)
        for line in lines(report):
            typer.echo(line)
        if rejudged.num_not_asked:
            typer.echo(f"  {rejudged.num_not_asked} were not judged: they faulted, or fail in any case")
        typer.echo(f"Verdicts: {rejudged.file}")
        if stop.is_set():
            raise EvaluationStopped(
                f"Interrupted; {rejudged.file} keeps the verdicts.", "Run the same command again to continue."
            )
        try:
            typer.echo(f"Report: {rejudged.write_page()}")
        except MissingDependency as error:
            typer.echo(f"No report: {error}", err=True)
        if rejudged.refusal is not None:
            raise rejudged.refusal
