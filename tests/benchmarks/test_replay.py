"""benchmarks/replay.py: a peer that cannot be used is left out, and the output says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import replay


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'torchrl'"), "pip install -c constraints.txt torchrl"),
        (ImportError("undefined symbol: _ZN5torch"), "fits one version of torch"),
    ],
)
def test_a_peer_that_does_not_load_is_left_out_with_the_reason(
    error: ImportError, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(work: Any) -> replay.Arm:
        raise error

    monkeypatch.setattr(replay, "torchrl_arm", fails)
    monkeypatch.setattr(replay, "cpprb_arm", replay.tree_arm)
    work = replay.Work(np.ones(32), [(np.arange(4), np.ones(4))], 4)

    arms = replay.build(work)

    assert "torchrl" not in arms
    assert {"tree", "replay"} <= arms.keys()
    output = capsys.readouterr().out
    assert str(error) in output
    assert told in output
    assert ("pip install" in output) == isinstance(error, ModuleNotFoundError)
