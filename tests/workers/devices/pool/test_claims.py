"""Claims: one process has a device at a time, and gives it back by ending."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from distrl.workers.devices.claims import Claims

HOLDER = """
import sys
from pathlib import Path
from distrl.workers.devices.claims import Claims
claims = Claims(Path(sys.argv[1]))
print(claims.take(sys.argv[2]), flush=True)
sys.stdin.read()
"""


def test_a_claim_is_exclusive_until_it_is_released(tmp_path: Path) -> None:
    ours, theirs = Claims(tmp_path / "c"), Claims(tmp_path / "c")
    assert ours.take("adb-5037-host:1")
    assert ours.take("adb-5037-host:1")  # again
    assert not theirs.take("adb-5037-host:1")
    assert theirs.take("adb-5037-host:2")
    ours.release("adb-5037-host:1")
    assert theirs.take("adb-5037-host:1")
    theirs.release_all()
    assert ours.take("adb-5037-host:2")


def test_what_has_no_name_needs_no_claim(tmp_path: Path) -> None:
    assert Claims(tmp_path / "c").take("")
    assert not (tmp_path / "c").exists()


def test_a_process_that_is_killed_gives_its_claims_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "phone"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    assert not Claims(tmp_path).take("phone")
    process.kill()
    process.communicate()
    assert Claims(tmp_path).take("phone")
