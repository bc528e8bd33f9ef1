"""Makes the helpers in this folder importable: `episode_factory`, and `counting_phone` as an import path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrl.evaluator import runner

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def quick_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots whose environment failed try again at once."""
    monkeypatch.setattr(runner, "BACKOFF_S", (0.0,))
