"""Errors that are the user's to fix, on one line: in their classes, options, names, packages and paths.

Calls into users' classes are checked here (`call`, `build`, `score_of`); settings are checked against a model
(`read_fields`); `user_error` turns exceptions that escape a command into errors for users.
"""

from __future__ import annotations

import errno
import inspect
import math
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, SupportsFloat, TypeVar

from pydantic import BaseModel, ValidationError

import distrl
from distrl.core.errors import (
    ConfigError,
    DistrlError,
    MissingDependency,
    OwnCodeError,
    PolicyError,
    RunDirectoryError,
)
from distrl.core.importing import did_you_mean

ALL_OF_IT = "`distrl --debug …` shows the traceback."
MAX_SHOWN = 300
"""Characters of an exception that are shown."""

_OTHERS = tuple(
    {str(Path(distrl.__file__).parent)}
    | {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Folders of code that is not the user's: distrl, Python, installed packages."""


def raised_by_own_code(error: BaseException) -> str | None:
    """One line such as "my_env:Clicker.step raised ValueError: boom (my_env.py:3)".

    It names the first function of the user's that was called, and the last line of the user's.

    Returns:
        None if the error did not pass through code of the user's.
    """
    shown = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())[:MAX_SHOWN]
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return f"{error.filename} raised {shown}"  # which names the line
    trace = traceback.walk_tb(error.__traceback__)
    frames = [(frame, line) for frame, line in trace if is_own(frame.f_code.co_filename)]
    if not frames:
        return None
    last, line = frames[-1]
    return f"{_name(frames[0][0])} raised {shown} ({Path(last.f_code.co_filename).name}:{line})"


def is_own(file: str) -> bool:
    """Whether a source file is neither distrl's, nor Python's, nor an installed package's."""
    path = Path(file)
    if not path.is_absolute() or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(place) for place in _OTHERS)


def _name(frame: FrameType) -> str:
    """ "my_env:Clicker.step" of a method, "my_env:make" of a function."""
    module, code = frame.f_globals.get("__name__", "?"), frame.f_code
    if code.co_name == "<module>":
        return f"importing {module}"
    if code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
        owner = type(frame.f_locals["self"])
        return f"{owner.__module__}:{owner.__qualname__}.{code.co_name}"
    return f"{module}:{code.co_name}"


_Model = TypeVar("_Model", bound=BaseModel)


def read_fields(model: type[_Model], fields: Mapping[str, object] | _Model | None, name: str) -> _Model:
    """The settings that `fields`, under the key `name`, give; ConfigError if one is unknown or invalid."""
    if isinstance(fields, model):
        return fields
    try:
        return model.model_validate(fields or {})
    except ValidationError as error:
        raise _explained(error.errors(include_url=False)[0], model, name) from error


def _explained(problem: Any, model: type[BaseModel], name: str) -> ConfigError:
    parts = [str(part) for part in problem["loc"] if part != "[key]"]
    path, see = ".".join((name, *parts)), f"See {model.__module__}.{model.__name__}."
    if problem["type"] == "extra_forbidden":
        hint = did_you_mean(parts[-1], model.model_fields) if len(parts) == 1 else ""
        return ConfigError(f"`{path}`: there is no such key.", f"{hint}{see}")
    expected = problem["msg"].removeprefix("Value error, ").replace("valid tuple", "valid list")
    expected = expected.replace("Input should be", "expected").replace(
        "String should", "expected a string to"
    )
    if problem["type"] in ("missing", "value_error"):
        return ConfigError(f"`{path}`: {expected}.", see)
    return ConfigError(f"`{path}` is {problem['input']!r:.80}, {expected}.", see)


def first_problem(error: ValidationError, *within: str) -> str:
    """The first problem: the path of the field, below `within`, and what its value should be."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in (*within, *first["loc"]))
    problem = "there is no such key" if first["type"] == "extra_forbidden" else first["msg"]
    return f"{path}: {problem}" if path else problem


HOW = "See docs/extending.md."
_Kind = TypeVar("_Kind")
_Takes = ParamSpec("_Takes")


def call(
    kind: type[_Kind], method: Callable[_Takes, _Kind], *given: _Takes.args, **named: _Takes.kwargs
) -> _Kind:
    """What `method` returns; OwnCodeError if it is not a `kind`, or the arguments are not accepted."""
    try:
        value = method(*given, **named)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # raised inside the method, not by the call
        raise OwnCodeError(f"{name_of(method)} cannot be called: {error}.", HOW) from error
    if isinstance(value, kind):
        return value
    what = "None" if value is None else f"a {type(value).__name__}"
    raise OwnCodeError(f"{name_of(method)} returned {what} instead of {kind.__name__}.", HOW)


def score_of(evaluate: Callable[[], float]) -> float:
    """What an environment's `evaluate` returns; OwnCodeError if it is not a number in [0, 1]."""
    value: object = call(object, evaluate)
    score = float(value) if isinstance(value, SupportsFloat) else math.nan
    if 0.0 <= score <= 1.0:
        return score
    raise OwnCodeError(f"{name_of(evaluate)} returned {repr(value)[:40]}, not a score in [0, 1].", HOW)


def check_methods(made: object, interface: type, path: str) -> None:
    """Raises ConfigError if an object made from an import path lacks methods of an interface."""
    wanted = [name for name, value in vars(interface).items() if callable(value) and name[0] != "_"]
    lacking = [name for name in wanted if not callable(getattr(made, name, None))]
    if lacking:
        raise ConfigError(f"{path} lacks the method{'s' * (len(lacking) > 1)} {', '.join(lacking)}.", HOW)


def name_of(method: Callable[..., Any]) -> str:
    """ "my_env:Clicker.step"."""
    owner = type(getattr(method, "__self__", None))
    return f"{owner.__module__}:{owner.__qualname__}.{getattr(method, '__name__', '?')}"


def check_options(make: Callable[..., Any], options: Mapping[str, Any], section: str) -> None:
    """Raises ConfigError if `make` cannot be called with `options`, without calling it; see `build`."""
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "none"
        raise _refused(make, section, error, f"Its options are: {takes}.") from error


def build(make: Callable[..., Any], options: Mapping[str, Any], section: str) -> Any:
    """Calls `make`, a class or function that the configuration chose, with `options` as keyword arguments.

    Args:
        section: The configuration section that contains them, e.g. "env".

    Raises:
        ConfigError: An option is unknown or missing, or `make` rejects a value with a ValueError.
    """
    check_options(make, options, section)
    try:
        return make(**options)
    except ValueError as error:
        raise _refused(make, section, error, "Correct the value.") from error


def _refused(make: Callable[..., Any], section: str, error: Exception, remedy: str) -> ConfigError:
    return ConfigError(f"{section}.options: {getattr(make, '__name__', make)}: {error}.", remedy)


EXTRAS = {
    package: extra
    for extra, packages in {
        "train": "torch transformers tokenizers huggingface_hub peft accelerate safetensors tensorboard",
        "serve": "starlette uvicorn",
        "data": "datasets pyarrow",
        "report": "matplotlib jinja2",
        "deepspeed": "deepspeed",
        "browser": "miniwob",
        "gym": "gymnasium",
        "vla": "metaworld",
        "trackio": "trackio",
        "wandb": "wandb",
        "mlflow": "mlflow",
    }.items()
    for package in packages.split()
}
"""Package → the extra that brings it; a worker's machine has none of them."""

# No permission, a read-only or full file system, a missing folder, a file where a directory should be.
REFUSALS = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR,
        errno.ENAMETOOLONG,
    }
)  # fmt: skip


def user_error(error: Exception) -> DistrlError | None:
    """An exception that escaped a command as an error for users; None for a fault of distrl's own."""
    kind = type(error)
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in EXTRAS:
        extra = EXTRAS[package]
        return MissingDependency(
            f"This needs the package {package}, which is not installed.",
            f'Install the extra "{extra}", e.g. pip install "distrl[{extra}]".',
        )
    if kind.__name__ == "OutOfMemoryError" and kind.__module__.startswith("torch"):  # workers have no torch
        return PolicyError(
            f"The GPU's memory is full: {error}",
            "Lower learner.micro_batch_tokens or inference.max_batch, or set policy.gradient_checkpointing; "
            "`distrl doctor --estimate CONFIG` shows what a run needs.",
        )
    if (line := raised_by_own_code(error)) is not None:
        return OwnCodeError(f"{line}.", ALL_OF_IT)
    if isinstance(error, OSError) and error.errno in REFUSALS and error.filename is not None:
        remedy = "Choose another path, or make this one readable and writable."
        return RunDirectoryError(f"{error.filename}: {error.strerror}.", remedy)
    return None


MOST = 50
"""Most names that a message lists."""


def check_known(what: str, asked: str | None, known: Iterable[str]) -> None:
    """Raises ConfigError, which suggests the nearest, if a name that a user filters by is not known."""
    names = list(dict.fromkeys(known))
    if asked is None or asked in names:
        return
    hint = did_you_mean(asked, names)
    end = ", …" if len(names) > MOST else "."
    remedy = f"{hint}Choose from: {', '.join(names[:MOST])}{end}" if names else "Leave it out."
    raise ConfigError(f"there is no {what} {asked!r} here.", remedy)
