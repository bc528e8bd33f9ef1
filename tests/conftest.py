"""Makes tests/fakes importable, here and in started processes; skips what needs an absent extra."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run, however long each takes: a failure is the change's, not the day's.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

FAKES = str(Path(__file__).parent / "fakes")
sys.path.append(FAKES)
import slurm_cluster
import torch_companions

from distrl.core.errors import MissingDependency
from distrl.workers.envs.chromium import BROWSER_NAMES, DRIVER_NAMES
from distrl.workers.envs.libero import find_assets

torch_companions.install()  # in started processes sitecustomize.py does it
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), FAKES]))


def _libero_assets() -> Path | None:
    try:
        return find_assets()
    except MissingDependency:
        return None


PROGRAMS = {"slurm": slurm_cluster.find, "libero-assets": _libero_assets}
"""What `needs` looks for that is not a package."""


@pytest.fixture(autouse=True, scope="session")
def _state_dir(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests, and the processes that they start, leave nothing in the user's own state directory."""
    os.environ["DISTRL_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """What a command in this process does at a signal ends with its test: it would end a later one."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts files first whose tests start processes: each takes long, and none should be left for the end."""
    slow = {"e2e", "integration", "benchmarks"}
    items.sort(key=lambda item: item.path.parent.name not in slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test marked `needs(name, ...)` or `browser` where a package or program is not installed."""
    packages = {package for mark in item.iter_markers("needs") for package in mark.args}
    missing = sorted(
        name for name in packages if PROGRAMS.get(name, lambda name=name: find_spec(name))() is None
    )
    if item.get_closest_marker("browser") is not None:
        missing += [names[0] for names in (BROWSER_NAMES, DRIVER_NAMES) if not any(map(shutil.which, names))]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: not installed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports the folders that are not collected without torch."""
    if find_spec("torch") is None:
        folders = "tests/learner and tests/core/policies"
        terminalreporter.write_line(f"SKIPPED {folders}: needs torch: not installed")
