"""Runs at the start of each Python process that tests start, for tests/fakes is on its PYTHONPATH."""

import torch_companions

torch_companions.install()
