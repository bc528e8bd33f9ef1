"""How long a learner, and who waits for it, lets an update and its checkpoint take after a signal."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from distrl.cli import run_learner
from distrl.cli.backends.roles import Role, roles
from distrl.cli.local import programs
from distrl.cli.local import sweep as execute
from distrl.cli.local.run import AT_ONCE, STOPPING, LocalRun
from distrl.configs.placement import RolePlacement
from distrl.configs.schema import Config
from distrl.core.rundir import RunDir
from distrl.core.supervisor import Program, ProgramFailed
from distrl.core.terminal import Console
from distrl.evaluator.run_state import describe_stopped

LARGE_S = 300.0
"""What a large model's update and checkpoint may take together."""

SLEEPS = "import time; time.sleep(600)"


@pytest.mark.parametrize("folder", ["checkpoints", "warm_up"])
def test_a_stopped_run_says_what_begins_again(tmp_path: Path, folder: str) -> None:
    run = RunDir(tmp_path)
    assert "training begins again" in describe_stopped(run, "distrl train x")
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "latest").write_text("step_0\n")
    assert describe_stopped(run, "distrl train x") == "Stopped. Continue with: distrl train x"


@pytest.mark.needs("torch")
def test_a_checkpoint_of_a_large_model_has_its_time(monkeypatch) -> None:
    first = run_learner._grace_s()
    assert first >= LARGE_S
    monkeypatch.setenv("RANK", "1")
    assert run_learner._grace_s() > first, "rank 0 writes it with the others"
    monkeypatch.setenv("DISTRL_MEETING", "file")
    assert run_learner._grace_s() < LARGE_S, "rank 0 is gone"


def test_who_waits_for_a_learner_waits_longer_than_it_may_take(tmp_path: Path) -> None:
    patience_s = roles(Config(), tmp_path, {}, 0, 0)[0].patience_s
    assert patience_s > run_learner.GRACE_S
    assert patience_s < execute.PATIENCE_S


class Python(Role):
    """A role that runs Python code."""

    code: str

    def program(self, env: Mapping[str, str], ends: bool = True) -> Program:
        return Program(self.name, (sys.executable, "-c", self.code), ends)


def learner_that(code: str) -> Role:
    return Python(kind="learner", name="learner", arguments=(), needs=RolePlacement(), code=code)


def local_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *among: Role
) -> tuple[LocalRun, threading.Event, io.StringIO]:
    """A run of these roles, what stops it, and what it prints."""
    monkeypatch.setattr("distrl.cli.local.run.roles", lambda *_: list(among))
    out, stop = io.StringIO(), threading.Event()
    network, console = programs.free_addresses(Config().network), Console(file=out, width=200)
    return LocalRun(Config(), network, RunDir(tmp_path), stop, console), stop, out


@pytest.mark.parametrize("is_pressed", [True, False])
def test_train_mentions_ctrl_c_only_after_ctrl_c(tmp_path: Path, monkeypatch, is_pressed: bool) -> None:
    broken = Python(
        kind="worker", name="worker-0", arguments=(), needs=RolePlacement(), code="raise SystemExit(2)"
    )
    others = [] if is_pressed else [broken]
    local, stop, out = local_run(tmp_path, monkeypatch, learner_that(SLEEPS), *others)
    if is_pressed:
        stop.set()
        assert not local.train()
    else:
        with pytest.raises(ProgramFailed):
            local.train()
    assert STOPPING in out.getvalue()
    assert (AT_ONCE in out.getvalue()) == is_pressed
    assert not local._supervisor.pids()


def test_train_says_that_the_newest_checkpoint_is_damaged(tmp_path: Path, monkeypatch) -> None:
    """The learner's own line about it is in its log only."""
    latest = tmp_path / "checkpoints" / "latest"
    latest.parent.mkdir()
    latest.write_text("step_4\n")
    code = f"import time; open({str(latest)!r}, 'w').write('step_2'); time.sleep(1)"
    local, _, out = local_run(tmp_path, monkeypatch, learner_that(code))
    assert local.train()
    assert out.getvalue().count("step_4 is missing or damaged: resuming from step_2") == 1


def test_a_terminal_that_has_gone_leaves_no_learner_behind(tmp_path: Path, monkeypatch) -> None:
    local, stop, out = local_run(tmp_path, monkeypatch, learner_that(SLEEPS))
    stop.set()
    out.close()
    with pytest.raises(ValueError, match="closed file"):
        local.train()
    assert not local._supervisor.pids()
