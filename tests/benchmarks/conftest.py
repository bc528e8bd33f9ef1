"""Benchmarks are no package: their folder is where their modules are found."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
