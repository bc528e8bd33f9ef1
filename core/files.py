"""Text files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Writes `text` so that readers see the old or the new file, never a part.

    A process that is killed meanwhile may leave a hidden file beside it.

    Raises:
        OSError: It cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, file)
