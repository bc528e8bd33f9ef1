"""The user's own code, told from distrl's: what a class or suite of theirs raised, and where, in a line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import FrameType

import distrl

ALL_OF_IT = "`distrl --debug …` shows the traceback."
MAX_TOLD = 300
"""Characters of what was raised that a line has room for."""

_OTHERS = tuple(
    {str(Path(distrl.__file__).parent)}
    | {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Where code is nobody's mistake here: distrl, Python, installed packages."""


def raised_by_own_code(error: BaseException) -> str | None:
    """What `error` is and whose, such as "my_env:Clicker.step raised ValueError: boom (my_env.py:3)".

    The name is of the first function of theirs that was called, the place is the last line of theirs.

    Returns:
        None if no line of the user's had a part in it.
    """
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_own(frame.f_code.co_filename)
    ]
    told = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())[:MAX_TOLD]
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return f"{error.filename} raised {told}"  # which tells the line
    if not frames:
        return None
    last, line = frames[-1]
    return f"{_name(frames[0][0])} raised {told} ({Path(last.f_code.co_filename).name}:{line})"


def is_own(file: str) -> bool:
    """Whether a source file is neither distrl's, nor Python's, nor an installed package's."""
    path = Path(file)
    if not path.is_absolute() or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(place) for place in _OTHERS)


def _name(frame: FrameType) -> str:
    """ "my_env:Clicker.step" of a method, "my_env:make" of a function, "my_env" of a module."""
    module, code = frame.f_globals.get("__name__", "?"), frame.f_code
    if code.co_name == "<module>":
        return f"importing {module}"
    if code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
        owner = type(frame.f_locals["self"])
        return f"{owner.__module__}:{owner.__qualname__}.{code.co_name}"
    return f"{module}:{code.co_name}"
