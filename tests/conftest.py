"""Makes tests/fakes importable, here and in processes that tests start; skips what needs an absent extra."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FAKES = str(Path(__file__).parent / "fakes")
sys.path.append(FAKES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), FAKES]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test marked `needs(package, ...)` where one of the packages is not installed."""
    packages = {package for mark in item.iter_markers("needs") for package in mark.args}
    missing = sorted(package for package in packages if find_spec(package) is None)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: not installed")
