"""Makes tests/fakes importable, in this process and in those that tests start."""

import os
import sys
from pathlib import Path

FAKES = str(Path(__file__).parent / "fakes")
sys.path.append(FAKES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), FAKES]))
