"""`distrl keys`: makes the CURVE keys of a run and its list of allowed clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="keys",
    help="Make keys for runs across machines, and say which clients may connect.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The keys directory.")]
ClientName = Annotated[str, typer.Argument(metavar="NAME", help="The client, e.g. its machine's name.")]


@app.command()
def create(directory: Directory) -> None:
    """Make a server key and one client key, `client`, which is allowed."""
    from distrl.core.security import create_keys
    from distrl.core.sockets import new_keypair

    create_keys(directory, server=new_keypair(), client=new_keypair())
    typer.echo(f"Made {directory}/server.key and {directory}/client.key. Secret keys stay on their machines.")


@app.command()
def add(directory: Directory, name: ClientName) -> None:
    """Make a client key and allow it."""
    from distrl.core.security import add_client
    from distrl.core.sockets import new_keypair

    add_client(directory, name, new_keypair())
    typer.echo(f"Allowed {name}. Copy {directory}/{name}.key and {directory}/server.pub to its machine.")


@app.command("list")
def list_clients(directory: Directory) -> None:
    """Show the allowed clients and their public keys."""
    from distrl.core.security import list_allowed

    for name, public in list_allowed(directory).items():
        typer.echo(f"{name:<24} {public}")


@app.command()
def remove(directory: Directory, name: ClientName) -> None:
    """Take a client off the list; it is refused from its next connection on."""
    from distrl.core.security import remove_client

    remove_client(directory, name)
    typer.echo(f"{name} is allowed no longer.")
