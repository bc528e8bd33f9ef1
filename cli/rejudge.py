"""`distrl evaluate --rejudge`: a judge on stored episodes, its success rate and its agreement with truth."""

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
TELL_EVERY = 25


def refuse_idle(options: Mapping[str, object]) -> None:
    """Refuses options that have no say in what `--rejudge` does.

    Raises:
        ConfigError: Names those that are given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"--rejudge judges what is stored, all of it, and puts the verdicts beside it: "
            f"{', '.join(given)} would do nothing.",
            "Leave that out; --set evaluate.episodes=N asks about fewer.",
        )


def rejudge_stored(config: Config, place: Path) -> None:
    """Lets `config.judge` judge the episodes in `place`; at most `evaluate.episodes` of them, newest first.

    Verdicts go beside what is there; an interrupted session goes on when it is called again.

    Raises:
        ConfigError: The judge misses something, such as its key.
        StoreError: There are no episodes.
        JudgeError: The judge's files cannot be read, or it turns everybody away.
        EvaluationStopped: A signal came.
    """
    from distrl.core.process import install_signals
    from distrl.evaluator.agreement import lines
    from distrl.evaluator.rejudge import Rejudged
    from distrl.evaluator.runner import EvaluationStopped

    last = (0, 0)

    def tell(done: int, total: int) -> None:
        nonlocal last
        if (done % TELL_EVERY == 0 or done == total) and (done, total) != last:
            typer.echo(f"judged {done} of {total}", err=True)
            last = (done, total)

    stop = install_signals(GRACE_S)
    with contextlib.closing(Rejudged(place, config.judge, config.worker.rewards)) as rejudged:
        report = rejudged.run(config.evaluate.episodes, stop, tell)
        for line in lines(report):
            typer.echo(line)
        if rejudged.num_not_asked:
            typer.echo(
                f"  {rejudged.num_not_asked} were not asked about: faulted, or failures whatever is shown"
            )
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
