"""What `make` leaves when the set-up fails, so that it works once the cause is gone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make: not installed")
def test_an_environment_without_pip_is_made_again(tmp_path: Path) -> None:
    python = tmp_path / "python"  # as Debian's without the package python3-venv
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        f'mkdir -p "$3/bin" && ln -s {sys.executable} "$3/bin/python"\nexit 1\n'
    )
    python.chmod(0o755)
    venv = tmp_path / "venv"
    command = ["make", "-C", str(ROOT), f"{venv}/bin/python", f"VENV={venv}", f"PYTHON={python}"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    assert not (venv / "bin" / "python").is_symlink()
