"""`distrl tasks`: lists of tasks, task files, and what is measured and trained on, split by split."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.core.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from distrl.core.types import Task

app = typer.Typer(no_args_is_help=True, help="List tasks, show one, import others, look for leakage.")
MOST_SHOWN = 10

SplitOption = Annotated[str | None, typer.Option("--split", metavar="SPLIT", help="Only this split.")]
TemplateOption = Annotated[
    str | None, typer.Option("--template", metavar="TEMPLATE", help="Only this template.")
]


@app.command("list")
def list_tasks(
    suite: Annotated[
        str, typer.Argument(metavar="[SUITE]", help="A suite, a task file, or pkg.mod:Name.")
    ] = "quickstart",
    split: SplitOption = None,
    template: TemplateOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the tasks of a suite: id, step limit, goal."""
    from distrl.cli.inspect import print_table
    from distrl.core.user_errors import check_known
    from distrl.evaluator.suites import load_suite

    tasks = load_suite(suite, split)
    check_known("template", template, (task.template for task in tasks))
    tasks = [task for task in tasks if template in (None, task.template)]
    if as_json:
        for task in tasks:
            typer.echo(task.model_dump_json())
        return
    rows = [[task.id, str(task.max_steps), " ".join(task.goal.split())] for task in tasks]
    print_table([["task", "steps", "goal"], *rows], texts=1)
    typer.echo(_counts(tasks), err=True)


@app.command("show")
def show_task(
    task_id: Annotated[
        str, typer.Argument(metavar="ID", help="A task's id, as `distrl tasks list` shows it.")
    ],
    suite: Annotated[
        str | None, typer.Option("--suite", metavar="SUITE", help="Default: the suite that ID names.")
    ] = None,
) -> None:
    """Show one task with all its parameters, as JSON."""
    from distrl.evaluator.suites import get_task

    task = get_task(task_id, suite)
    typer.echo(json.dumps(task.model_dump(mode="json"), indent=2, ensure_ascii=False))


@app.command("import")
def import_tasks(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="A new .jsonl or .yaml file.")
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPLIT=FILE|NAME]...",
            help="Lists of instructions; with --androidworld task names, all when none is given.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help="Of lists: the tasks' suite. Default: FILE's name."),
    ] = None,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=1, metavar="N", help="Of lists: the step limit.")
    ] = 15,
    androidworld: Annotated[
        bool, typer.Option("--androidworld", help="Tasks of the installed package android_world.")
    ] = False,
    family: Annotated[
        str, typer.Option("--family", metavar="FAMILY", help="A family of that package's registry.")
    ] = "android_world",
    train_seeds: Annotated[
        str, typer.Option("--train-seeds", metavar="A:B", help="Seeds of the split `train`, without B.")
    ] = "100:120",
    eval_seeds: Annotated[
        str, typer.Option("--eval-seeds", metavar="C:D", help="Seeds of the split `eval`, without D.")
    ] = "30:31",
) -> None:
    """Write a task file of instruction lists, or of AndroidWorld's tasks.

    Lists, e.g. train=general_train.txt test=general_test.txt: an instruction a line, or CSV, or JSON
    lines. Instructions are normalised; repeated ones are left out, and so are those that a later list
    has too, which are shown. AndroidWorld: each task at each seed; the two splits share no seed.
    """
    from distrl.evaluator.suites import androidworld as world
    from distrl.evaluator.suites.files import LEAKED, check_file, import_lists, write_file

    if not androidworld and not names:
        raise ConfigError("no list to import was given.", "Name lists as SPLIT=FILE, or add --androidworld.")
    for name in ("suite", "max_steps") if androidworld else ("family", "train_seeds", "eval_seeds"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option, how = f"--{name.replace('_', '-')}", "with" if androidworld else "without"
            raise ConfigError(f"{option} has no effect {how} --androidworld.", f"Remove {option}.")
    check_file(output)
    if not androidworld:
        tasks, left_out = import_lists(names or [], suite or output.stem, max_steps)
        write_file(tasks, output)
        typer.echo(f"{output}: {_counts(tasks)}", err=True)
        for (of, why), count in Counter((one.split, one.why) for one in left_out).items():
            texts = [one.text.strip() or "(empty)" for one in left_out if (one.split, one.why) == (of, why)]
            shown = texts if why == LEAKED else []
            typer.echo(f"left out {count} of {of} that {why}{':' if shown else ''}", err=True)
            for text in shown:
                typer.echo(f"  {text}", err=True)
        return
    train, evaluation = world.parse_seeds(train_seeds), world.parse_seeds(eval_seeds)
    tasks = world.import_tasks(names or [], train, evaluation, family)
    write_file(tasks, output)
    typer.echo(f"{output}: {_counts(tasks)}", err=True)


def _counts(tasks: Sequence[Task]) -> str:
    splits = Counter(task.split for task in tasks)
    parts = ", ".join(f"{count} {split}" for split, count in splits.items())
    return f"{len(tasks)} task{'s' if len(tasks) != 1 else ''}: {parts}"


@app.command("check")
def check_tasks(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite, a task file, or pkg.mod:Name.")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="OTHER",
            help="What was trained on. Default: SUITE's own splits to train on.",
        ),
    ] = None,
) -> None:
    """Look for tasks of the other splits that are trained on; exit code 6 when there are any."""
    from distrl.cli.inspect import print_table
    from distrl.core.logs import one_line
    from distrl.evaluator.suites import promises
    from distrl.evaluator.suites.leakage import RULES, find

    promised = promises(suite)
    rules = promised.rules
    where, trained, measured = _sides(suite, against)
    other = promises(suite if where == "train" else where)
    by_task = {(task.suite, task.id): promised for task in measured}
    by_task |= {(task.suite, task.id): other for task in trained}
    found = find(
        trained,
        measured,
        lambda task: by_task[task.suite, task.id].phrasing(task),
        lambda task: by_task[task.suite, task.id].names(task),
    )
    columns = {f"{rule}{'' if rule in rules else '*'}": found[rule] for rule in RULES}
    rows = [["split", "of", *columns]]
    for name, total in Counter(task.split for task in measured).items():
        counts = [sum(task.split == name for task, _ in pairs) for pairs in columns.values()]
        rows.append([name, str(total), *map(str, counts)])
    print_table(rows, texts=1)
    typer.echo(f"Tasks that share with {where}:")
    for rule, words in RULES.items():
        typer.echo(f"  {rule}: {words}{'' if rule in rules else ' (* allowed)'}")
    broken = [rule for rule in rules if found[rule]]
    for rule in broken:
        typer.echo(f"{rule}:")
        for task, trained_on in found[rule][:MOST_SHOWN]:
            typer.echo(one_line(f"  {task.id}: {task.goal}"))
            typer.echo(one_line(f"    {trained_on.id}: {trained_on.goal}"))
        if len(found[rule]) > MOST_SHOWN:
            typer.echo(f"  ... and {len(found[rule]) - MOST_SHOWN} more")
    if broken:
        raise TaskError(f"{suite} shares {', '.join(broken)} with {where}.", "Remove the tasks listed above.")


def _sides(suite: str, against: str | None) -> tuple[str, list[Task], list[Task]]:
    """The name of what is trained on, its tasks, and those to be measured."""
    from distrl.evaluator.suites import is_trained_on, load_suite

    tasks = load_suite(suite)
    if against is not None:
        return against, load_suite(against), tasks
    trained = [task for task in tasks if is_trained_on(task.split)]
    measured = [task for task in tasks if not is_trained_on(task.split)]
    if not trained or not measured:
        only = ", ".join(dict.fromkeys(task.split for task in tasks))
        raise TaskError(
            f"{suite} has only {only}, so there is nothing to compare.", "Name the other with --against."
        )
    return "train", trained, measured
