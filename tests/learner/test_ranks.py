"""Ranks: sums over all of them, how they meet, and what is reported when one ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from distrl.configs.load import load_config
from distrl.core.errors import ConfigError, RankError
from distrl.learner import ranks as launch
from distrl.learner.distributed import open_train_step
from distrl.learner.ranks import Place, local_ranks, open_job, translated


def test_torchrun_s_variables_are_used() -> None:
    found = Place.given({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "h"})
    assert found == Place(3, 4, 1, "env://")
    assert Place.given({"WORLD_SIZE": "4"}) is None
    here = Place.given({"RANK": "1", "WORLD_SIZE": "2", "DISTRL_MEETING": "/tmp/m"})
    assert here == Place(1, 2, 0, "file:///tmp/m")


@pytest.mark.parametrize("environment", [{"RANK": "0"}, {"RANK": "x", "WORLD_SIZE": "2"}])
def test_half_a_launcher_is_refused(environment) -> None:
    with pytest.raises(ConfigError, match="RANK"):
        Place.given(environment)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("metaworld", ["world.model=learned", "agent.options.picture=false"]),
        ("quickstart", ["learner.algorithm.critic=q", "learner.engine=fsdp"]),
    ],
)
def test_what_one_rank_trains_is_refused_in_a_job_that_others_started(preset, changes) -> None:
    with (
        pytest.raises(ConfigError, match="is trained by one rank, not 2"),
        open_train_step(load_config(preset, changes), [], Place(0, 2, 0, "file:///nowhere")),
    ):
        pass


def test_ranks_that_do_not_come_are_missed(tmp_path) -> None:
    with (
        pytest.raises(RankError, match="did not connect within 1 s"),
        open_job(Place(0, 2, 0, f"file://{tmp_path / 'meeting'}"), timeout_s=1.0),
    ):
        pass


def test_only_errors_of_the_job_are_about_ranks() -> None:
    with pytest.raises(RankError, match="rank 3"), translated("rank 3"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer [127.0.0.1]:1")
    with pytest.raises(RuntimeError, match="out of memory"), translated("rank 3"):
        raise RuntimeError("CUDA out of memory")


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
launch.HANG_S = launch.GUARD_S = 0.1
with launch.local_ranks(["run-learner", "no-such.yaml"], 2, Path(sys.argv[1])):
    time.sleep(250)
"""


def test_a_process_that_waits_for_a_lost_rank_ends(tmp_path) -> None:
    command = [sys.executable, "-c", BLOCKED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: Rank 1 of the learner ended with exit code 2: ")
