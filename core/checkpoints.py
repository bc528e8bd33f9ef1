"""Checkpoint directories on disk: written whole or not at all, named by pointer files, checked before use.

    checkpoints/step_N/      files.json (name → size, BLAKE2b), policy/, and what the learner adds
    checkpoints/latest       a pointer: the name of a directory; likewise best (with its success), and final
                             (with what the run had made by then)

No torch here: commands that need only the policy's directory (serve, evaluate) find it with `resolve`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from distrl.core.errors import CheckpointError
from distrl.core.files import write_bytes_atomically, writing
from distrl.core.rundir import RunDir

MANIFEST = "files.json"
POINTERS = ("latest", "best", "final")
_log = logging.getLogger(__name__)


def write_checkpoint(directory: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Makes `directory/name`: filled under a temporary name, flushed to disk, then renamed.

    One of the same name is replaced, if `latest` does not name it: it is left by a crash before its pointer
    was written, or the run went back to an older one. Then "best" or "final" may name it, which has other
    weights from now on, so that pointer goes. The run's evaluation of an earlier `name` goes too.
    """
    temporary, target = directory / f".{name}.tmp", directory / name
    assert pointed(directory, "latest") != name
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(target, CheckpointError):
            temporary.mkdir(parents=True)
            fill(temporary)
            files = [path for path in sorted(temporary.rglob("*")) if path.is_file()]
            entries = {
                str(path.relative_to(temporary)): {"size": path.stat().st_size, "blake2b": _digest(path)}
                for path in files
            }
            (temporary / MANIFEST).write_text(json.dumps(entries, indent=1, sort_keys=True))
            for path in [*temporary.rglob("*"), temporary]:
                _fsync(path)
            evaluation = RunDir(directory.parent).evaluations / name
            if evaluation.exists():
                _log.warning("removing %s: it measured an earlier %s", evaluation, name)
                shutil.rmtree(evaluation, ignore_errors=True)
            if target.exists():
                for pointer in POINTERS:
                    if pointed(directory, pointer) == name:
                        _log.warning("replacing %s; until then %r points to no checkpoint", name, pointer)
                        (directory / pointer).unlink()
                shutil.rmtree(target)
            temporary.rename(target)
            _fsync(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def remove_unfinished(directory: Path) -> None:
    """Removes what processes that were killed left half written. None may be at work on `directory`."""
    for path in directory.glob(".step_*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def point(directory: Path, pointer: str, name: str, note: str = "") -> None:
    """Lets `pointer` name the checkpoint `name`, atomically, with a note; RunDirectoryError if it cannot."""
    assert pointer in POINTERS
    text = f"{name}\n{note}\n" if note else f"{name}\n"
    with writing(directory / pointer):
        write_bytes_atomically(directory / pointer, text.encode(), is_durable=True)
        _fsync(directory)


def pointed(directory: Path, pointer: str) -> str | None:
    """The name that `pointer` holds, None if there is no such pointer."""
    lines = _lines(directory / pointer)
    return lines[0] if lines else None


def note_of(directory: Path, pointer: str) -> str:
    """The note that `point` was given, "" without one."""
    lines = _lines(directory / pointer)
    return lines[1] if len(lines) > 1 else ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").split()
    except FileNotFoundError:
        return []


def to_resume_from(directory: Path) -> Path | None:
    """The newest whole checkpoint, None for a run that has no checkpoint yet.

    It is the one that `latest` names. If that is missing or damaged, `latest` is moved to the newest one
    before it that is whole, which is logged, and pointers to damaged ones are removed.

    Raises:
        CheckpointError: No checkpoint is whole. Or `latest` is empty or gone: to begin from nothing would
            cost the checkpoints that there are. One alone is what a crash leaves of the first before its
            pointer is written.
    """
    latest, known = pointed(directory, "latest"), checkpoints(directory)
    if latest is None and known and (len(known) > 1 or (directory / "latest").exists()):
        raise CheckpointError(
            f"{directory / 'latest'} does not name an existing checkpoint; available: {', '.join(known)}.",
            "Write the name of the checkpoint to resume from into that file.",
        )
    if latest is None:
        return None
    try:
        return resolve(directory, latest)
    except CheckpointError as error:
        first = error
    bad, newest = {latest}, step_of(latest)
    for name in reversed(known):
        if name in bad or (newest is not None and _by_step(name) > newest):
            continue
        try:
            path = resolve(directory, name)
        except CheckpointError:
            bad.add(name)
            continue
        for pointer in POINTERS:
            if pointer != "latest" and pointed(directory, pointer) in bad:
                (directory / pointer).unlink()
        point(directory, "latest", name)
        _log.warning("%s Resuming from %s, the newest intact checkpoint.", first.message, name)
        return path
    raise first


def resolve(directory: Path, name: str = "latest") -> Path:
    """The directory of a checkpoint that is whole, by name ("step_40") or pointer; else CheckpointError."""
    real = pointed(directory, name) if name in POINTERS else name
    if real is None or not (directory / real).is_dir():
        known = ", ".join(checkpoints(directory)) or "none"
        raise CheckpointError(f"No checkpoint {name!r} in {directory}.", f"There are: {known}.")
    verify(directory / real)
    return directory / real


def checkpoints(directory: Path) -> list[str]:
    """Names of the checkpoints, by step."""
    if not directory.is_dir():
        return []
    return sorted((p.name for p in directory.iterdir() if step_of(p.name) is not None), key=_by_step)


def step_of(name: str) -> int | None:
    """40 for "step_40", None for another name."""
    number = name.removeprefix("step_")
    return int(number) if name.startswith("step_") and number.isdecimal() else None


def _by_step(name: str) -> int:
    return step_of(name) or 0


def verify(path: Path) -> None:
    """Checks every file of a checkpoint; CheckpointError names the first that is missing or damaged."""
    if (problem := _damage(path)) is not None:
        others = ", ".join(name for name in checkpoints(path.parent) if name != path.name)
        raise CheckpointError(problem, f"Use another checkpoint{f': {others}' if others else ''}.")


def _damage(path: Path) -> str | None:
    try:
        entries = json.loads((path / MANIFEST).read_text())
        expected = {str(name): (int(entry["size"]), str(entry["blake2b"])) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{path / MANIFEST} is missing or damaged."
    for name, (size, digest) in expected.items():
        file = path / name
        if not file.is_file():
            return f"{file} is missing."
        if file.stat().st_size != size:
            return f"{file} has {file.stat().st_size} bytes, not {size}."
        if _digest(file) != digest:
            return f"{file} is damaged: its checksum differs."
    return None


def remove_old(directory: Path, keep: int, protected: set[str]) -> list[str]:
    """Deletes all but the newest `keep` checkpoints, and the protected ones. Returns what was deleted.

    The newest is what `latest` names: those beyond it are of what was rolled back, and go. What a pointer
    names stays. What cannot be removed now (NFS, while another process reads) is tried again the next time.
    """
    names, latest = checkpoints(directory), pointed(directory, "latest")
    up_to = [name for name in names if latest is None or _by_step(name) <= _by_step(latest)]
    old, beyond = up_to[: max(0, len(up_to) - keep)], names[len(up_to) :]
    kept = {pointed(directory, pointer) for pointer in POINTERS} | protected
    removed = []
    for name in (name for name in (*old, *beyond) if name not in kept):
        try:
            shutil.rmtree(directory / name)
            removed.append(name)
        except OSError as error:
            _log.warning("cannot remove the old checkpoint %s yet: %s", directory / name, error.strerror)
    return removed


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
