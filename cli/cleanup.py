"""`distrl cleanup`: ends what earlier commands started and left behind, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.core.errors import DistrlError

if TYPE_CHECKING:
    from distrl.workers.devices.processes import Entry, Registry


class LeftOver(DistrlError):
    """Something could not be ended or removed."""


def cleanup(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")] = False,
    in_use: Annotated[
        bool, typer.Option("--all", help="Also end emulators of commands that are still running.")
    ] = False,
) -> None:
    """End emulators that this tool started and left; remove unfinished clones and folders.

    Emulators are identified by distrl's records and checked against running processes. Nothing that another
    program started is touched.
    """
    import shutil

    from distrl.core.files import abandoned, reclaim
    from distrl.workers.devices.avd import AvdStore, partial_clones
    from distrl.workers.devices.processes import Registry

    registry = Registry()
    entries = registry.entries()
    problems = [_deal_with(registry, entry, dry_run, in_use) for entry in entries]
    clones, folders = partial_clones(AvdStore().home), abandoned()
    problems += [_remove(path, "an unfinished clone", shutil.rmtree, dry_run) for path in clones]
    problems += [_remove(path, "a folder of a process that is gone", reclaim, dry_run) for path in folders]
    if not (entries or clones or folders):
        typer.echo("Nothing to clean up.")
    remaining = [problem for problem in problems if problem]
    if remaining:
        raise LeftOver(f"Could not clean up {len(remaining)}: {'; '.join(remaining)}.", "See above.")


def _deal_with(registry: Registry, entry: Entry, dry_run: bool, in_use: bool) -> str:
    """Ends the process of one entry, or says why not. Returns what went wrong, "" if nothing."""
    from distrl.workers.devices.processes import end_process

    what = f"{entry.what} (process {entry.key.pid})"
    problem, is_over = "", False
    if not entry.is_running:
        said, is_over = "is gone.", not dry_run
    elif not entry.is_orphan and not in_use:
        assert entry.owner is not None
        said = f"is in use by process {entry.owner.pid}; left alone, --all ends it."
    elif dry_run:
        said = "would be ended."
    else:
        try:
            how = end_process(entry.key, entry.console_port)
            problem, is_over = "" if how else "does not end", bool(how)
        except PermissionError:
            problem = "belongs to another user"
        said = f"{problem}." if problem else f"ended ({how})."
    typer.echo(f"{what} {said}")
    if is_over:
        registry.remove(entry)
    return f"{what} {problem}" if problem else ""


def _remove(path: Path, what: str, remove: Callable[[Path], object], dry_run: bool) -> str:
    """Removes a folder that was left. Returns what went wrong, "" if nothing."""
    problem = ""
    try:
        if not dry_run:
            remove(path)
    except OSError as error:
        problem = f"cannot be removed: {error}"
    typer.echo(f"{path}, {what}, {problem or ('would be removed' if dry_run else 'was removed')}.")
    return f"{path} {problem}" if problem else ""
