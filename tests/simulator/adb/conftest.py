"""A simulated Android system, and its files."""

from __future__ import annotations

import pytest

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.files import Files


@pytest.fixture
def system() -> AndroidSystem:
    """A small phone, freshly booted."""
    return AndroidSystem(width=540, height=1200)


@pytest.fixture
def phone_files(system: AndroidSystem) -> Files:
    """The files of a phone, seen by the shell's user."""
    return system.files
