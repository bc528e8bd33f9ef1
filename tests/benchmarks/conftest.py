"""Benchmarks are programs beside each other: what they import of one another is found in their folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
