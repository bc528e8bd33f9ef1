"""Without the packages of gRPC: nothing of it is loaded unasked, and asking is one line with the remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from distrl.core.errors import MissingDependency
from distrl.simulator.adb.host import SimHost


def test_a_host_without_grpc_loads_none_of_it() -> None:
    code = "import sys, distrl.simulator.adb.process, distrl.simulator.emulator.phone\n" + (
        "print('loaded:', *({name.partition('.')[0] for name in sys.modules} & {'grpc', 'google'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.rpartition("loaded:")[2].split() == []


@pytest.mark.parametrize("absent", ["grpc.aio", "google.protobuf"])
def test_what_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingDependency, match=r"is not installed\. .*distrl\[android-env\]"):
        SimHost(1, 90, 200, adb_server_port=0, grpc=True)
    SimHost(1, 90, 200, adb_server_port=0)
