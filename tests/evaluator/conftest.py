"""Makes the helpers in this folder importable: `episode_factory`, and `counting_phone` as an import path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrl.workers import worker

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def quick_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots whose environment failed try again at once."""
    monkeypatch.setattr(worker, "BACKOFF_S", (0.0,))
