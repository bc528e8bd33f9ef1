"""How long a learner, and who waits for it, lets an update and its checkpoint take after a signal."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from distrl.cli import run_learner
from distrl.cli.local import programs
from distrl.cli.local import sweep as execute
from distrl.cli.local.run import AT_ONCE, STOPPING, LocalRun
from distrl.configs.schema import Config
from distrl.core.rundir import RunDir
from distrl.core.supervisor import Program, ProgramFailed
from distrl.core.terminal import Console
from distrl.evaluator.run_state import describe_stopped

LARGE_S = 300.0
"""What a large model's update and checkpoint may take together."""


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
    patience_s = programs.learner(RunDir(tmp_path), Config().network).patience_s
    assert patience_s > run_learner.GRACE_S
    assert patience_s < execute.PATIENCE_S


def local_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[Program]
) -> tuple[LocalRun, threading.Event, io.StringIO]:
    """A run with these servers and workers, what stops it, and what it prints."""
    monkeypatch.setattr(programs, "servers_and_workers", lambda config, run, network: others)
    out, stop = io.StringIO(), threading.Event()
    network, console = programs.free_addresses(Config().network), Console(file=out, width=200)
    return LocalRun(Config(), network, RunDir(tmp_path), stop, console), stop, out


@pytest.mark.parametrize("is_pressed", [True, False])
def test_train_mentions_ctrl_c_only_after_ctrl_c(tmp_path: Path, monkeypatch, is_pressed: bool) -> None:
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
    monkeypatch.setattr(programs, "learner", lambda *_: Program("learner", sleeper, ends=True))
    broken = Program("worker-0", (sys.executable, "-c", "raise SystemExit(2)"))
    others = [] if is_pressed else [broken]
    local, stop, out = local_run(tmp_path, monkeypatch, others)
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
    falls_back = Program("learner", (sys.executable, "-c", code), ends=True)
    monkeypatch.setattr(programs, "learner", lambda *_: falls_back)
    local, _, out = local_run(tmp_path, monkeypatch, [])
    assert local.train()
    assert out.getvalue().count("step_4 is missing or damaged: resuming from step_2") == 1


def test_a_terminal_that_has_gone_leaves_no_learner_behind(tmp_path: Path, monkeypatch) -> None:
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
    monkeypatch.setattr(programs, "learner", lambda *_: Program("learner", sleeper, ends=True))
    local, stop, out = local_run(tmp_path, monkeypatch, [])
    stop.set()
    out.close()
    with pytest.raises(ValueError, match="closed file"):
        local.train()
    assert not local._supervisor.pids()
