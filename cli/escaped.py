"""What may escape a command besides errors of our own, and is no fault of distrl's: as an error for users."""

from __future__ import annotations

import errno

from distrl.core.errors import (
    DistrlError,
    MissingDependency,
    OwnCodeError,
    PolicyError,
    RunDirectoryError,
)

# Package → the extra that brings it; a worker's machine has none of them.
EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "peft": "train",
    "deepspeed": "deepspeed",
    "safetensors": "train",
    "tensorboard": "train",
    "miniwob": "browser",
    "datasets": "data",
    "pyarrow": "data",
    "gymnasium": "gym",
    "matplotlib": "report",
    "jinja2": "report",
}

# No permission, a read-only or full file system, a missing folder, a file where a directory should be.
REFUSALS = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR,
        errno.ENAMETOOLONG,
    }
)  # fmt: skip


def known(error: Exception) -> DistrlError | None:
    """The error for users; None for a fault of distrl's own."""
    return _missing_extra(error) or _out_of_memory(error) or _own_code(error) or _refused(error)


def _missing_extra(error: Exception) -> MissingDependency | None:
    """A module that belongs to one of our extras is not installed."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in EXTRAS:
        return None
    extra = EXTRAS[package]
    return MissingDependency(
        f"This needs the package {package}, which is not installed.",
        f'Install the extra "{extra}", e.g. pip install "distrl[{extra}]".',
    )


def _out_of_memory(error: Exception) -> PolicyError | None:
    """A GPU is full. torch, which workers do not have, is not imported for it."""
    kind = type(error)
    if kind.__name__ != "OutOfMemoryError" or not kind.__module__.startswith("torch"):
        return None
    return PolicyError(
        f"The GPU's memory is full: {error}",
        "Lower learner.micro_batch_tokens or inference.max_batch, or set policy.gradient_checkpointing; "
        "`distrl doctor --estimate CONFIG` says what a run takes.",
    )


def _own_code(error: Exception) -> OwnCodeError | None:
    """A class of the user's raised it."""
    from distrl.core.own_code import ALL_OF_IT, raised_by_own_code

    told = raised_by_own_code(error)
    return OwnCodeError(f"{told}.", ALL_OF_IT) if told is not None else None


def _refused(error: Exception) -> RunDirectoryError | None:
    """The system refuses to read or write a path that the command was given."""
    if not isinstance(error, OSError) or error.errno not in REFUSALS or error.filename is None:
        return None
    return RunDirectoryError(
        f"{error.filename}: {error.strerror}.", "Choose another path, or make this one readable and writable."
    )
