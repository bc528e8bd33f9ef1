"""`distrl tasks check`: what is measured and trained on, split by split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distrl.core.types import Task
    from distrl.evaluator.suites.leakage import Leakage

NEAR = "near"


def check_tasks(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite, a task file, or pkg.mod:Name.")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="OTHER",
            help="What was trained on. Default: SUITE's `train`; without one, the suite it goes with.",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", metavar="SPLIT", help="Only this split of SUITE; repeat it. Default: all."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="RULE",
            help="tasks, goals, params or phrasings must not be shared; repeat it. By default what the suite "
            "promises; of a file, tasks and goals.",
        ),
    ] = None,
    similar: Annotated[
        float,
        typer.Option("--similar", metavar="S", min=0.01, max=1.0, help="Report goals at least so alike."),
    ] = 0.9,
) -> None:
    """Look for tasks of the other splits that are trained on; exit code 6 when there are any."""
    from distrl.core.errors import TaskError
    from distrl.evaluator.suites import promises
    from distrl.evaluator.suites.leakage import RULES, find

    unknown = sorted(set(require or ()) - set(RULES))
    if unknown:
        raise TaskError(f"there is no rule {unknown[0]!r}.", f"Rules: {', '.join(RULES)}.")
    promised = promises(suite)
    rules = tuple(require) if require else promised.rules
    where, trained, measured = _sides(suite, against, split)
    other = promises(suite if where == "train" else where)
    wordings = {(task.suite, task.id): promised.phrasing(task) for task in measured}
    wordings |= {(task.suite, task.id): other.phrasing(task) for task in trained}
    found = find(trained, measured, similar, lambda task: wordings[task.suite, task.id])
    _show_table(found, measured, where, rules, similar)
    for rule in found.broken(rules):
        typer.echo(f"{rule}:")
        _show_pairs([(pair.measured, pair.trained, "") for pair in found.shared[rule]])
    if found.near:
        typer.echo(f"{NEAR}:")
        _show_pairs([(pair.measured, pair.trained, f"{pair.similarity:.2f} ") for pair in found.near])
    if broken := found.broken(rules):
        raise TaskError(f"{suite} shares {', '.join(broken)} with {where}.", "Take out what is listed.")


def _sides(
    suite: str, against: str | None, splits: Sequence[str] | None
) -> tuple[str, list[Task], list[Task]]:
    """How what is trained on is called, its tasks, and those to be measured."""
    from distrl.core.errors import TaskError
    from distrl.evaluator.suites import load_suite, promises

    tasks = load_suite(suite)
    asked = [task for split in splits for task in load_suite(suite, split)] if splits else tasks
    trained = [task for task in tasks if task.split == "train"]
    if against is None and not trained:
        against = promises(suite).trained_on
    if against is not None:
        return against, load_suite(against), asked
    measured = [task for task in asked if task.split not in ("train", "drift")]
    if not trained or not measured:
        only = ", ".join(dict.fromkeys(task.split for task in asked))
        raise TaskError(
            f"{suite} has only {only}, so there is nothing to compare.", "Name the other with --against."
        )
    return "train", trained, measured


def _show_table(
    found: Leakage, measured: Sequence[Task], where: str, rules: Sequence[str], similar: float
) -> None:
    """A line for each split: how many of its tasks share what with those that are trained on."""
    from distrl.evaluator.suites.leakage import RULES

    columns = {f"{rule}{'' if rule in rules else '*'}": found.shared[rule] for rule in RULES} | {
        NEAR: found.near
    }
    splits = list(dict.fromkeys(task.split for task in measured))
    width = max(len("split"), *map(len, splits))
    typer.echo("  ".join([f"{'split':<{width}}", f"{'of':>5}", *(f"{name:>10}" for name in columns)]))
    for split in splits:
        counts = [sum(pair.measured.split == split for pair in pairs) for pairs in columns.values()]
        total = sum(task.split == split for task in measured)
        typer.echo("  ".join([f"{split:<{width}}", f"{total:>5}", *(f"{count:>10}" for count in counts)]))
    typer.echo(f"Tasks that share with {where}:")
    for rule, words in RULES.items():
        typer.echo(f"  {rule}: {words}{'' if rule in rules else ' (* allowed)'}")
    typer.echo(f"  {NEAR}: a goal that is not the same but at least {similar:g} alike (allowed)")


def _show_pairs(pairs: Sequence[tuple[Task, Task, str]], most: int = 10) -> None:
    from distrl.core.logs import one_line

    for measured, trained, note in pairs[:most]:
        typer.echo(one_line(f"  {note}{measured.id}: {measured.goal}"))
        typer.echo(one_line(f"    {trained.id}: {trained.goal}"))
    if len(pairs) > most:
        typer.echo(f"  ... and {len(pairs) - most} more")
