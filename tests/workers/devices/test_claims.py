"""Claims of ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import sim_phones

from distrl.core.errors import ConfigError
from distrl.workers.devices.claims import Claims, claim_ports, is_free
from distrl.workers.devices.errors import PortInUse

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def first() -> int:
    """A console port that is free with its adb port."""
    while True:
        port = sim_phones.free_pair()
        if port < 60000:
            return port


def test_two_claims_never_meet_and_are_given_back(first: int) -> None:
    candidates = range(first, first + 40, 2)
    with claim_ports(candidates=candidates) as one, claim_ports(candidates=candidates) as two:
        assert one.serial == f"emulator-{one.console}"
        assert abs(one.console - two.console) >= 2
        with pytest.raises(PortInUse, match="has claimed it"):
            claim_ports(one.console)
        with pytest.raises(PortInUse, match=f"all console ports from {one.console} to {one.console}"):
            claim_ports(candidates=[one.console])
    one.release()
    claim_ports(one.console).release()


@pytest.mark.parametrize("offset", [0, 1])
def test_a_port_that_a_stranger_holds_is_passed_over(first: int, offset: int) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", first + offset))
        stranger.listen()
        assert not is_free(first + offset)
        with pytest.raises(PortInUse, match=f"port {first + offset} is in use"):
            claim_ports(first)
        with claim_ports(candidates=range(first, 60000, 2)) as ports:
            assert ports.console > first


@pytest.mark.parametrize("port", [5555, 70000, 80])
def test_odd_and_impossible_ports_are_refused(port: int) -> None:
    with pytest.raises(ConfigError):
        claim_ports(port)


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
    assert Claims(tmp_path / "none").take("")  # what has no name needs no claim
    assert not (tmp_path / "none").exists()


def test_a_process_that_is_killed_gives_its_claims_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "phone"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    assert not Claims(tmp_path).take("phone")
    process.kill()
    process.communicate()
    assert Claims(tmp_path).take("phone")
