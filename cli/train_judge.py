"""`distrl train-judge`: fits a judge of episodes to stored ones with ground truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from distrl.cli.options import check_folder, load
from distrl.core.errors import ConfigError, MissingDependency, RunDirectoryError

VERDICTS_FILE = "held-out.jsonl"
SHOWN = 10

SourcesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Runs or evaluations whose episodes have ground truth, or stores."),
]
OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Where the judge goes; name it in judge.path.")
]
EpisodesOption = Annotated[
    int,
    typer.Option(
        "--episodes", metavar="N", min=1, help="Largest number of episodes, drawn equally from all sources."
    ),
]
EpochsOption = Annotated[int, typer.Option("--epochs", metavar="N", min=1, help="Passes over the episodes.")]
HeldOutOption = Annotated[
    float,
    typer.Option(
        "--held-out",
        metavar="SHARE",
        min=0.02,
        max=0.6,
        help="The share of the tasks or episodes to measure on; half as many again are for calibration.",
    ),
]
HoldOutOption = Annotated[
    Literal["task", "episode"],
    typer.Option(
        "--hold-out",
        metavar="task|episode",
        help="Measure on tasks that it was not fitted to (harder), or on other episodes of any task.",
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="CONFIG",
        help="Take the encoder from the policy of this configuration. Default: a small embedded policy.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of weights and split.")]
ThreadsOption = Annotated[int, typer.Option("--threads", metavar="N", min=1, help="CPU threads.")]


def train_judge(
    sources: SourcesArgument,
    output: OutputOption,
    episodes: EpisodesOption = 5000,
    epochs: EpochsOption = 6,
    held_out: HeldOutOption = 0.2,
    hold_out: HoldOutOption = "task",
    policy: PolicyOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = 1,
) -> None:
    """Fit a small judge to stored episodes, measure it on others, and show its errors.

    Its inputs are the goal, the last actions with what they touched, the elements of the screens, which
    worker.elements must have recorded, and the last screenshot. DIR gets the judge, its verdicts on the
    held-out episodes, agreement.json and agreement.html.
    """
    from distrl.core.files import write_atomically
    from distrl.core.policies import use_threads
    from distrl.evaluator.agreement import disagreements, lines
    from distrl.evaluator.judges.local.data import stored_examples
    from distrl.evaluator.judges.local.model import CARD_FILE
    from distrl.evaluator.judges.local.training import Plan, fit_judge
    from distrl.evaluator.report.viewer import write_agreement_page

    if (output / CARD_FILE).exists():
        raise RunDirectoryError(f"{output} holds a judge already.", "Name another directory with --output.")
    check_folder(output)
    use_threads(threads)
    plan = Plan(episodes, held_out, hold_out, epochs, seed=seed)
    if policy is not None:
        loaded = load(policy)
        if loaded.policy.kind not in ("tiny", "autoui", "hub"):
            raise ConfigError(
                f"policy.kind {loaded.policy.kind} of {policy} cannot encode the screenshots that a judge is "
                "trained on.",
                "Leave out --policy, or choose a configuration with policy.kind tiny, autoui or hub.",
            )
        plan = replace(plan, policy=loaded.chat_policy)
    report, judged, examples = fit_judge(sources, output, plan, lambda line: typer.echo(line, err=True))
    write_atomically(output / VERDICTS_FILE, "".join(one.model_dump_json() + "\n" for one in judged))
    write_atomically(output / "agreement.json", report.model_dump_json(indent=2))
    for line in lines(report):
        typer.echo(line)
    for one in disagreements(judged)[:SHOWN]:
        said = "success" if one.verdict.success else "failure"
        typer.echo(f"  wrong: {said} ({one.verdict.score:.2f})  {one.goal}  {one.trajectory_id}")
    typer.echo(f"Judge: {output}")
    page = output / "agreement.html"
    try:
        write_agreement_page(page, report, judged, stored_examples(judged, examples))
        typer.echo(f"Errors: {page}")
    except MissingDependency as error:
        typer.echo(f"No page: {error}", err=True)
