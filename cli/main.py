"""The `distrl` command: its table of subcommands, each imported when it is used, and how errors are shown.

A `DistrlError` becomes one line on standard error and its exit code; `--debug` adds the traceback.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import importlib
import inspect
import os
import sys
import traceback
import warnings
from typing import IO, Annotated, Any

import typer
import typer.core
import typer.main

from distrl import __version__
from distrl.core.errors import DistrlError

# Command → module, attribute: a function, or a typer app with subcommands.
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("distrl.cli.train", "train"),
    "launch": ("distrl.cli.launch", "app"),
    "simulate": ("distrl.cli.simulate", "simulate"),
    "run-learner": ("distrl.cli.run_learner", "run_learner"),
    "serve-inference": ("distrl.cli.serve_inference", "serve_inference"),
    "run-worker": ("distrl.cli.run_worker", "run_worker"),
    "evaluate": ("distrl.cli.evaluate", "evaluate"),
    "table": ("distrl.cli.table", "table"),
    "sweep": ("distrl.cli.sweep", "sweep"),
    "train-judge": ("distrl.cli.train_judge", "train_judge"),
    "collect": ("distrl.cli.collect", "collect"),
    "report": ("distrl.cli.report", "report"),
    "dashboard": ("distrl.cli.dashboard", "dashboard"),
    "top": ("distrl.cli.top", "top"),
    "inspect": ("distrl.cli.inspect", "inspect"),
    "trace": ("distrl.cli.trace", "trace"),
    "world": ("distrl.cli.world", "world"),
    "export": ("distrl.cli.export", "export"),
    "config": ("distrl.cli.config", "app"),
    "tasks": ("distrl.cli.tasks", "app"),
    "keys": ("distrl.cli.keys", "app"),
    "snapshot-avd": ("distrl.cli.snapshot_avd", "app"),
    "sim-sdk": ("distrl.simulator.cli", "sim_sdk"),
    "doctor": ("distrl.cli.doctor", "doctor"),
    "cleanup": ("distrl.cli.cleanup", "cleanup"),
    "sim-host": ("distrl.simulator.cli", "sim_host"),
}


class LazyGroup(typer.core.TyperGroup):
    """A command group that imports a subcommand's module only when that subcommand is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module_name, attribute = COMMANDS[cmd_name]
            found = getattr(importlib.import_module(module_name), attribute)
            if isinstance(found, typer.Typer):
                command: Any = typer.main.get_group(found)
            else:
                single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
                single.command(cmd_name)(found)
                command = typer.main.get_command(single)
            command.name = cmd_name
            _let_lines_flow(command)
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class; a wrong name is compared with the whole table."""
        for name in difflib.get_close_matches(args[0], COMMANDS):
            self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the subcommand and turns what escapes it into an exit code."""
        try:
            return super().invoke(ctx)
        except DistrlError as error:
            raise _shown(error, ctx.params.get("debug", False)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except Exception as error:
            from distrl.core.user_errors import user_error

            if (explained := user_error(error)) is None:
                raise
            raise _shown(explained, ctx.params.get("debug", False)) from error


def _let_lines_flow(command: Any) -> None:
    """Lets lines of help texts end where the terminal does: typer keeps the line ends of docstrings."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _let_lines_flow(below)


def _shown(error: DistrlError, debug: bool) -> typer.Exit:
    """Prints the error; the exit that follows."""
    from distrl.core.logs import with_pages

    if debug:
        typer.echo(traceback.format_exc(), err=True, nl=False)
    with contextlib.suppress(OSError):  # a log on a full disk; the exit code remains
        typer.echo(f"error: {with_pages(' '.join(str(error).split()))}", err=True)
    return typer.Exit(error.exit_code)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"distrl {__version__}")
        raise typer.Exit


_echo = typer.echo


def _echo_printable(
    message: Any | None = None,
    file: IO[Any] | None = None,
    nl: bool = True,
    err: bool = False,
    color: bool | None = None,
) -> None:
    """Prints what a command says; names and texts in it come from files and from other machines."""
    from distrl.core.logs import printable

    _echo(printable(str(message)) if message is not None else None, file, nl, err, color)


typer.echo = _echo_printable  # here once, so that no command can forget it


_format_warning = warnings.formatwarning


def _format_printable(*args: Any, **options: Any) -> str:
    """A library's warning; matplotlib's quote characters that a font lacks, control characters too."""
    from distrl.core.logs import printable

    return printable(_format_warning(*args, **options))


warnings.formatwarning = _format_printable


app = typer.Typer(
    name="distrl",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="DISTRL_DEBUG", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Asynchronous, distributed reinforcement learning for GUI agents."""
    if debug:
        os.environ["DISTRL_DEBUG"] = "1"  # the processes that a command starts show theirs too


def main() -> None:
    """The console script: runs the command and ends the process.

    A command has closed all it opened when it returns, and what is registered with `atexit` still runs. Only
    the interpreter's own teardown is left out: after torch it takes seconds, which Ctrl-C does not have.
    """
    # Before torch is loaded. Threads that spin while they wait for each other take the cores from the one
    # they wait for: beside other processes, two threads that spin are many times slower than one.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        atexit._run_exitfuncs()
        # The reader of the output may have left, or its disk may be full.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
