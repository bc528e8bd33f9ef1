"""Text files that are written whole or not at all, and files of records, one a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from distrl.core.errors import RunDirectoryError

_Model = TypeVar("_Model", bound=BaseModel)


def write_atomically(file: Path, text: str) -> None:
    """Writes `text` so that readers see the old or the new file, never a part.

    A process that is killed meanwhile may leave a hidden file beside it.

    Raises:
        OSError: It cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, file)


def read_records(file: Path, model: type[_Model], remedy: str) -> list[_Model]:
    """The records of a file of JSON lines; a last line that a crash tore off, anywhere, is left out.

    Only a line feed ends a line: what a model or a user wrote may hold other signs that split text.

    Args:
        file: One that is not there has no records.
        model: What each line is.
        remedy: What to do about a damaged file.

    Raises:
        RunDirectoryError: Another line is damaged.
    """
    if not file.is_file():
        return []
    lines = file.read_bytes().removesuffix(b"\n").split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(model.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            raise RunDirectoryError(f"line {number} of {file} is damaged.", remedy) from error
    return records
