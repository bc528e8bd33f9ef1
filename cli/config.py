"""`distrl config`: the keys of a configuration: one, all, or as a JSON schema."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(
    name="config",
    help="Explain configuration keys, and write their reference or JSON schema.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def explain(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key or a section, e.g. learner.algorithm.clip.")
    ],
) -> None:
    """Print the type, the default and the meaning of a key."""
    from distrl.configs.reference import explain

    typer.echo(explain(key))


@app.command()
def reference() -> None:
    """Print the reference of all keys, in Markdown."""
    from distrl.configs.reference import reference

    typer.echo(reference(), nl=False)


@app.command()
def schema() -> None:
    """Print the JSON schema of configuration files, for completion in editors."""
    from distrl.configs.reference import schema

    typer.echo(json.dumps(schema(), indent=1))
