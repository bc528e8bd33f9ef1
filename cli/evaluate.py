"""`distrl evaluate`: success on held-out tasks, with intervals and a report."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import (
    GRACE_S,
    ConfigArgument,
    DryRunOption,
    SetOption,
    WaitOption,
    check_folder,
    load,
    seeds_of,
)
from distrl.core.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
    from distrl.configs.schema import Config

REPORT_EVERY = 25  # episodes that are judged again

CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", help="A checkpoint, or a run (its final or newest one)."),
]
InferenceOption = Annotated[
    list[str] | None,
    typer.Option("--inference", metavar="ENDPOINT", help="A running inference server. Repeatable."),
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        "--learner",
        metavar="ENDPOINT",
        help="Measure the policy of a running learner; ENDPOINT is its network.control.",
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="expert|random|model|prompted",
        help="An untrained baseline; model: policy.model before training.",
    ),
]
SplitOption = Annotated[
    list[str] | None, typer.Option("--split", metavar="SPLIT", help="Default: tasks.test. Repeatable.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="Default: RUNS_DIR/evaluations/NAME-SUBJECT.")
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="DIR", help="An earlier evaluation to compare with in the report."),
]
SeedsOption = Annotated[
    str | None,
    typer.Option("--seeds", metavar="0,1,2", help="Repeat with each seed; reports mean and deviation."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted evaluation.")]
RejudgeOption = Annotated[
    Path | None,
    typer.Option(
        "--rejudge",
        metavar="DIR",
        help="Run nothing; let --judge judge the stored episodes of a run or an evaluation.",
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="NAME",
        help="The kind of the judge of stored episodes; overrides judge.kind.",
    ),
]


def evaluate(
    config: ConfigArgument,
    checkpoint: CheckpointOption = None,
    inference: InferenceOption = None,
    learner: LearnerOption = None,
    agent: AgentOption = None,
    split: SplitOption = None,
    output: OutputOption = None,
    baseline: BaselineOption = None,
    seeds: SeedsOption = None,
    wait: WaitOption = None,
    resume: ResumeOption = False,
    rejudge: RejudgeOption = None,
    judge: JudgeOption = None,
    overrides: SetOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Measure a checkpoint, a served policy or a baseline on held-out tasks.

    Each task is tried once, greedily unless evaluate.temperature is set. Faulted episodes are tried again
    and listed separately. Writes results.json, episodes.jsonl, store.sqlite3 and report.html to DIR; with
    --seeds, a directory for each seed, and the results over all seeds. With appo, measures the mean return
    of 100 greedy episodes (or evaluate.episodes) instead.

    With --rejudge, runs nothing: a judge judges stored episodes and is compared with their ground truth.
    """
    from distrl.cli.health.run import check_installed
    from distrl.cli.run_kind import run_kind
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.evaluator.measure import Measured, model_of
    from distrl.evaluator.results import load_evaluation

    loaded = load(config, [*(overrides or []), *([f"judge.kind={judge}"] if judge else [])], dry_run)
    setup(role="evaluate", level="WARNING")
    if rejudge is not None:
        given = (checkpoint, inference, learner, agent, split, output, baseline, seeds, wait)
        if resume or any(value is not None for value in given):
            raise ConfigError(
                "--rejudge judges all stored episodes: options of a measurement have no effect.",
                "Remove them; use --set evaluate.episodes=N to judge fewer.",
            )
        rejudge_stored(loaded, rejudge)
        return
    if judge is not None:
        raise ConfigError("--judge judges stored episodes.", "Name them with --rejudge.")
    who = Measured(checkpoint, tuple(inference or ()), learner, agent)
    subject = who.subject(model_of(loaded, who))
    if baseline is not None:
        load_evaluation(baseline)  # a wrong directory fails now, not after the measurement
    home = Path(loaded.runs_dir).expanduser() / "evaluations"
    directory = output or home / f"{loaded.name}-{subject.label}"
    check_folder(directory)
    check_installed(loaded, is_worker=True)
    stop = install_signals(GRACE_S + loaded.devices.close_s)
    run_kind(loaded).evaluate(who, directory, stop, split, baseline, seeds_of(seeds), wait, resume)


def rejudge_stored(config: Config, place: Path) -> None:
    """Lets `config.judge` judge the episodes in `place`; at most `evaluate.episodes` of them, newest first.

    Verdicts are written next to the episodes; calling it again continues an interrupted session.
    """
    from distrl.core.process import install_signals
    from distrl.evaluator.agreement import lines
    from distrl.evaluator.rejudge import Rejudged
    from distrl.evaluator.runner import EvaluationStopped

    def report_progress(done: int) -> None:
        if done % REPORT_EVERY == 0:
            typer.echo(f"judged {done}", err=True)

    stop = install_signals(GRACE_S)
    with contextlib.closing(Rejudged(place, config.judge, config.worker.rewards)) as rejudged:
        report = rejudged.run(config.evaluate.episodes, stop, report_progress)
        for line in lines(report):
            typer.echo(line)
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
