"""Every benchmark starts: what it imports from the project is still there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = sorted(Path(__file__).resolve().parents[2].glob("benchmarks/*.py"))


@pytest.mark.parametrize("name", [file.stem for file in BENCHMARKS])
def test_a_benchmark_can_be_imported(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "distrl" or package in {file.stem for file in BENCHMARKS}:
            raise
        pytest.skip(f"needs {package}: not installed")
