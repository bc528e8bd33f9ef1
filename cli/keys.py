"""`distrl keys`: makes the CURVE keys of a run, and its list of allowed clients with their roles."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="keys",
    help="Create keys for runs across machines, and manage which clients may connect and in which roles.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Role(str, Enum):
    """As `distrl.core.security.ROLES`."""

    WORKER = "worker"
    INFERENCE = "inference"
    EVALUATE = "evaluate"
    OBSERVER = "observer"
    OWNER = "owner"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The keys directory.")]
ClientName = Annotated[str, typer.Argument(metavar="NAME", help="The client, e.g. its machine's name.")]
Roles = Annotated[
    list[Role],
    typer.Option("--role", help="A role of the client. Repeat for several roles."),
]
Slots = Annotated[
    int | None,
    typer.Option("--slots", min=1, metavar="N", help="The most leases that its workers may hold together."),
]


@app.command()
def create(directory: Directory) -> None:
    """Make a server key and one client key, `client`, which has all roles.

    Both are for the machine of the learner. Give every other machine a key of its own with `keys add`.
    """
    from distrl.core.security import create_keys
    from distrl.core.sockets import new_keypair

    create_keys(directory, server=new_keypair(), client=new_keypair())
    typer.echo(f"Made {directory}/server.key and {directory}/client.key. Keep them on the learner's machine.")


@app.command()
def add(directory: Directory, name: ClientName, role: Roles = [Role.WORKER], slots: Slots = None) -> None:  # noqa: B006
    """Make a client key and allow it in the given roles."""
    from distrl.core.security import add_client
    from distrl.core.sockets import new_keypair

    add_client(directory, name, new_keypair(), role, slots)
    needed = ", server.key, server.pub and allowed/" if "inference" in role else " and server.pub"
    typer.echo(
        f"Allowed {name} as {' and '.join(role)}. Copy {name}.key{needed} from {directory} "
        f"to its machine, and set network.key_name={name} there."
    )


@app.command("set")
def change(directory: Directory, name: ClientName, role: Roles, slots: Slots = None) -> None:
    """Replace the roles and the limit of slots of a client, from its next connection on. Its key stays.

    Without --slots there is no limit.
    """
    from distrl.core.security import change_client

    change_client(directory, name, role, slots)
    typer.echo(f"Allowed {name} as {' and '.join(role)}.")


@app.command("list")
def list_clients(directory: Directory) -> None:
    """Show the allowed clients: name, public key, roles, slots."""
    from distrl.core.security import list_allowed

    for name, client in list_allowed(directory).items():
        slots = "" if client.slots is None else f"  {client.slots} slots"
        typer.echo(f"{name:<24} {client.public}  {','.join(client.roles)}{slots}")


@app.command()
def remove(directory: Directory, name: ClientName) -> None:
    """Remove a client from the list. It is refused from its next connection on."""
    from distrl.core.security import remove_client

    remove_client(directory, name)
    typer.echo(f"Removed {name}.")
