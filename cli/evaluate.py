"""`distrl evaluate`: success on held-out tasks, with intervals and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.options import (
    ConfigArgument,
    DryRunOption,
    SetOption,
    WaitOption,
    check_folder,
    load,
    seeds_of,
)
from distrl.core.errors import ConfigError, MissingDependency, NothingCameIn

if TYPE_CHECKING:
    import threading

    from distrl.configs.schema import Config
    from distrl.evaluator.measure import Who
    from distrl.evaluator.results import Evaluation
    from distrl.evaluator.statistics import Summary

GRACE_S = 5.0  # from the first signal to the end of the process, besides the end of its devices

CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", help="A checkpoint, or a run (its final or newest one)."),
]
InferenceOption = Annotated[
    list[str] | None,
    typer.Option("--inference", metavar="ENDPOINT", help="An inference server that runs. Repeatable."),
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        "--learner", metavar="ENDPOINT", help="A learner's control address: whatever serves it now."
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="expert|random|model|prompted",
        help="A baseline that was not trained; model: policy.model as it is.",
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
    typer.Option(
        "--seeds", metavar="0,1,2", help="Repeat it with each of these; mean and deviation over them."
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted evaluation.")]
RejudgeOption = Annotated[
    Path | None,
    typer.Option(
        "--rejudge",
        metavar="DIR",
        help="Measure nothing: let --judge judge the stored episodes of a run or an evaluation.",
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="NAME",
        help="Who judges stored episodes: vlm, local, rules, ground_truth; overrides judge.kind.",
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

    Each task is tried once, greedily unless evaluate.temperature says otherwise. Faulted episodes are tried
    again and listed apart. DIR gets results.json, episodes.jsonl, store.sqlite3 and report.html; with --seeds
    a directory for each seed, and the results over all of them. With appo, the mean return of 100 greedy
    episodes (or evaluate.episodes) is measured instead.

    With --rejudge nothing is run: a judge says how many stored episodes are solved, and is compared with
    their ground truth.
    """
    from distrl.cli.health.run import check_installed
    from distrl.cli.run_kind import run_kind
    from distrl.core.logs import setup
    from distrl.core.process import install_signals
    from distrl.evaluator.measure import Who, model_of
    from distrl.evaluator.results import load_evaluation

    loaded = load(config, [*(overrides or []), *([f"judge.kind={judge}"] if judge else [])], dry_run)
    setup(role="evaluate", level="WARNING")
    if rejudge is not None:
        from distrl.cli.rejudge import refuse_idle, rejudge_stored

        who_and_where = {"--checkpoint": checkpoint, "--inference": inference, "--learner": learner}
        who_and_where |= {"--agent": agent, "--split": split, "--output": output, "--baseline": baseline}
        refuse_idle({**who_and_where, "--seeds": seeds, "--resume": resume, "--wait": wait is not None})
        rejudge_stored(loaded, rejudge)
        return
    if judge is not None:
        raise ConfigError("--judge judges stored episodes.", "Name them with --rejudge.")
    who = Who(checkpoint, tuple(inference or ()), learner, agent)
    subject = who.subject(model_of(loaded, who))
    if baseline is not None:
        load_evaluation(baseline)  # a wrong directory is told now, not after the measurement
    directory = output or default_output(loaded, label_of(subject.kind, subject.name))
    check_folder(directory)
    check_installed(loaded, is_worker=True)
    kind = run_kind(loaded)
    kind.check_environment()
    stop = install_signals(GRACE_S + loaded.devices.close_s)
    kind.evaluate(who, directory, stop, split, baseline, seeds_of(seeds), wait, resume)


def evaluate_tasks(
    config: Config,
    who: Who,
    directory: Path,
    stop: threading.Event,
    split: Sequence[str] | None,
    baseline: Path | None,
    seeds: Sequence[int] | None,
    wait_s: float | None,
    resume: bool,
) -> None:
    """Measures success on the splits of `config`, prints it and writes the report."""
    from distrl.evaluator.measure import measure

    evaluation = measure(config, who, directory, split, resume, stop, wait_s, seeds=seeds)
    page = write_report(config, directory, evaluation, baseline)
    print_numbers(evaluation)
    if baseline is not None:
        print_gains(directory, baseline)
    typer.echo(f"Results: {directory}")
    if page is not None:
        typer.echo(f"Report: {page}")
    check_measured(evaluation)


def check_measured(evaluation: Evaluation) -> None:
    """Ends the command if there was nothing but faults.

    Raises:
        NothingCameIn: No task has an episode that did not fault.
    """
    splits = evaluation.splits.values()
    faulted = [episode for split in splits for episode in split.faulted]
    if faulted and not any(split.overall.episodes or split.num_unjudged for split in splits):
        rule = (
            f"nothing was measured: all {len(faulted)} tasks faulted, the last by {faulted[-1].fault.value}"
        )
        detail = " ".join(faulted[-1].fault_detail.split())
        raise NothingCameIn(f"{rule} ({detail}).", "Fix the cause and continue with --resume.")


def label_of(kind: str, name: str) -> str:
    """A short name of the subject: "step_400", "served", "expert"."""
    return Path(name).name if kind == "checkpoint" else kind


def default_output(config: Config, label: str) -> Path:
    """Where results go when --output is not given."""
    return Path(config.runs_dir).expanduser() / "evaluations" / f"{config.name}-{label}"


def write_report(
    config: Config, directory: Path, evaluation: Evaluation, baseline: Path | None
) -> Path | None:
    """Writes the report next to the results; None, and a line that says why, without jinja2."""
    from distrl.evaluator.report import write_report
    from distrl.evaluator.results import load_evaluation

    label = label_of(evaluation.spec.subject.kind, evaluation.spec.subject.name)
    results: dict[str, Path] = {}
    if baseline is not None:
        before = load_evaluation(baseline).evaluation.spec.subject
        name = label_of(before.kind, before.name)
        results[name if name != label else f"{name} (baseline)"] = baseline
    results[label] = directory
    try:
        return write_report(directory, config.name, results, None, config, config.evaluate.examples)
    except MissingDependency as error:
        typer.echo(f"No report: {error}", err=True)
        return None


def describe_episodes(summary: Summary) -> str:
    """How episodes went, in a few words."""
    from distrl.evaluator.report.page import duration, percent

    ratio = "" if summary.step_ratio is None else f"steps ÷ expert's {summary.step_ratio:.2f}, "
    invalid, repeated = percent(summary.invalid_rate), percent(summary.repeat_rate)
    time = duration(summary.mean_duration_s)
    return f"{ratio}invalid actions {invalid}%, repeated {repeated}%, {time} an episode"


def print_gains(directory: Path, baseline: Path) -> None:
    """Prints how each split compares with the baseline's, in pairs where both tried the same instances.

    Where no split was measured by both, that is said.
    """
    from distrl.evaluator.report.compare import compare
    from distrl.evaluator.results import load_evaluation

    loaded = {"baseline": load_evaluation(baseline), "this": load_evaluation(directory)}
    theirs, ours = (", ".join(one.evaluation.splits) for one in loaded.values())
    blocks = compare(loaded)
    if all(block.overall.gain is None for block in blocks):
        typer.echo(f"no gain to tell: no split was measured by the baseline ({theirs}) and here ({ours})")
    for block in blocks:
        row = block.overall
        if row.gain is None or row.gain_interval is None:
            continue
        low, high = 100 * row.gain_interval.low, 100 * row.gain_interval.high
        pairs = f"; {row.paired.gained} newly solved, {row.paired.lost} lost" if row.paired else ""
        unlike = f", {row.unlike}" if row.unlike else ""
        typer.echo(
            f"{row.name} gains {100 * row.gain:+.1f} points ({low:+.1f} to {high:+.1f}){pairs}{unlike}"
        )


def print_numbers(evaluation: Evaluation) -> None:
    """Prints a line per split, level of difficulty and template."""
    from distrl.evaluator.failure_modes import MODE_WORDS
    from distrl.evaluator.report.page import percent

    def line(name: str, summary: Summary) -> str:
        if not summary.episodes:
            return f"{name:<24}  nothing measured"
        low, high = percent(summary.interval.low), percent(summary.interval.high)
        return (
            f"{name:<24}  {percent(summary.success_rate):>5}%  ({low}–{high}%)  "
            f"{summary.successes} of {summary.episodes}, {summary.mean_steps:.1f} steps"
        )

    for split, result in evaluation.splits.items():
        typer.echo(line(split, result.overall))
        if result.overall.episodes:
            typer.echo(f"  {describe_episodes(result.overall)}")
        if result.repeats is not None and result.repeats.sd is not None:
            mean, sd = 100 * result.repeats.mean, 100 * result.repeats.sd
            typer.echo(f"  {'over seeds':<22}  {mean:.1f} ± {sd:.1f}%, n = {len(result.repeats.seeds)}")
        for level, summary in result.levels.items():
            typer.echo(line(f"  level {level}", summary))
        templates: Mapping[str, Summary] = result.templates if len(result.templates) > 1 else {}
        for template, summary in templates.items():
            typer.echo(line(f"  {template}", summary))
        for mode, count in result.overall.modes.items():
            typer.echo(f"  {MODE_WORDS[mode].lower()}: {count} ({percent(count / result.overall.episodes)}%)")
        if result.spent.calls:
            typer.echo(f"  asking the model took {result.spent.describe()}, faulted tries included")
        if result.num_unjudged:
            typer.echo(f"  {result.num_unjudged} tasks without a verdict are not counted")
        if result.num_retries:
            typer.echo(f"  {result.num_retries} faulted episodes were tried again")
        if result.faulted:
            typer.echo(f"  {len(result.faulted)} tasks faulted again and again and are not counted")
