"""Ranks as child processes: their end is noticed and said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from distrl.core.errors import RankError
from distrl.learner import ranks as launch
from distrl.learner.ranks import LocalRanks, local_ranks

pytest.importorskip("torch", reason="needs torch: not installed")


def test_the_end_of_a_rank_is_said_with_its_last_words(tmp_path, monkeypatch) -> None:
    with local_ranks(["run-learner", "no-such.yaml"], 2, tmp_path) as ranks:
        assert ranks.place.size == 2
        monkeypatch.setattr(launch, "NOTICE_S", 60.0)
        with pytest.raises(RankError, match=r"Rank 1 of the learner ended with exit code 2: .*no-such\.yaml"):
            ranks.watch(RankError("silence"))
        with pytest.raises(RankError, match="Rank 1") as raised:
            ranks.watch(None)
        assert raised.value.exit_code == 2, "what another start cannot mend is told as it is"


BLOCKED = """
import sys, time
from pathlib import Path
from distrl.learner import ranks as launch
launch.HANG_S = 0.1
with launch.local_ranks(["run-learner", "no-such.yaml"], 2, Path(sys.argv[1])):
    time.sleep(250)
"""


def test_who_waits_for_a_rank_that_is_gone_is_ended(tmp_path) -> None:
    command = [sys.executable, "-c", BLOCKED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: Rank 1 of the learner ended with exit code 2: ")


def test_ranks_end_with_the_block(tmp_path) -> None:
    def interrupted() -> None:
        with local_ranks(["tasks", "list"], 3, tmp_path) as ranks:
            found.append(ranks)
            raise KeyError

    found: list[LocalRanks] = []
    with pytest.raises(KeyError):
        interrupted()
    for pid in found[0].pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
