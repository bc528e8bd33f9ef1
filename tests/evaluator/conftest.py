"""Makes the helpers in this folder importable: `episode_factory`, and `counting_phone` as an import path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
