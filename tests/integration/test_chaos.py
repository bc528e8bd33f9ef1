"""Chaos on four devices: every kind of fault once; nothing is lost, learnt from or left over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import adb_programs
import pytest

ROOT = Path(__file__).parents[2]
KINDS = 7
LIMIT_S = 600.0


@pytest.mark.needs("adbutils", "isal")
@pytest.mark.skipif(
    adb_programs.bundled() is None, reason="needs an adb: adbutils brings none for this machine"
)
@pytest.mark.timeout(LIMIT_S + 30)
def test_chaos(tmp_path: Path) -> None:
    numbers = tmp_path / "chaos.json"
    small = ["--seconds", "10", "--devices", "4", "--width", "270", "--height", "600"]
    command = [sys.executable, "benchmarks/chaos.py", *small, "--json", str(numbers)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    told = result.stdout + result.stderr
    assert numbers.exists(), told
    found = json.loads(numbers.read_text())
    assert all(found["kept"].values()), told
    assert len({injection["kind"] for injection in found["injections"]}) == KINDS
    assert found["counts"]["faulted"] > 0, told  # else nothing was tested
    assert found["counts"]["episodes"] > 0
