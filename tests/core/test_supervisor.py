"""Keeping programs alive, with real child processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from distrl.core import supervisor as module
from distrl.core.errors import CheckpointError, ConfigError, DistrlError, NothingCameIn, StoreFull
from distrl.core.supervisor import Program, ProgramFailed, Supervisor, last_error


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "logs", {"FLAVOUR": "salt"}, backoff_s=0.01)
    yield supervisor
    supervisor.stop()


def python(name: str, code: str, ends: bool = False) -> Program:
    return Program(name, (sys.executable, "-c", code), ends)


SLEEP = "import time; time.sleep(600)"


def test_a_killed_child_is_replaced(kept: Supervisor) -> None:
    kept.start(python("sleeper", SLEEP))
    first = kept.pids()["sleeper"]
    os.kill(first, signal.SIGKILL)
    deaths = []
    until(lambda: kept.restarts == 1, meanwhile=lambda: deaths.extend(kept.check()))
    assert [(death.name, death.exit_code) for death in deaths] == [("sleeper", -signal.SIGKILL)]
    assert kept.pids()["sleeper"] != first


def test_a_clean_exit_is_replaced_unless_the_program_ends(kept: Supervisor) -> None:
    kept.start(python("again", "pass"))
    kept.start(python("once", "pass", ends=True))
    until(lambda: kept.is_done("once") and kept.restarts >= 2, meanwhile=kept.check)


def test_while_closing_only_programs_that_end_are_replaced(kept: Supervisor, tmp_path: Path) -> None:
    kept.closing = True
    mark = tmp_path / "mark"
    fail_once = (
        f"import pathlib, sys; m = pathlib.Path({str(mark)!r}); n = m.exists(); m.touch(); sys.exit(not n)"
    )
    kept.start(python("leaves", "pass"))
    kept.start(python("ends", fail_once, ends=True))
    until(lambda: kept.is_done("ends") and "leaves" not in kept.pids(), meanwhile=kept.check)
    assert kept.restarts == 1


def test_a_child_that_keeps_dying_fails_with_its_last_error(kept: Supervisor) -> None:
    kept.start(python("broken", "import sys; print('error: no luck', file=sys.stderr); sys.exit(1)"))
    with pytest.raises(
        ProgramFailed, match=r"broken died 6 times in a row .* exit code 1: no luck"
    ) as caught:
        until(lambda: False, meanwhile=kept.check)
    assert "broken.log" in str(caught.value)
    assert kept.restarts == module.MAX_DEATHS


def test_a_death_without_a_word_is_not_explained_by_an_earlier_one(kept: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "broken.log").write_text("error: yesterday's\n")
    kept.start(python("broken", "import sys; sys.exit(1)"))
    with pytest.raises(ProgramFailed, match="exit code 1: it wrote nothing"):
        until(lambda: False, meanwhile=kept.check)


def test_a_child_that_ends_slowly_but_always_alike_fails_too(kept: Supervisor, monkeypatch) -> None:
    monkeypatch.setattr(module, "QUICK_S", 0.0)
    kept.start(python("loads", "import sys; print('error: no memory'); sys.exit(1)"))
    with pytest.raises(ProgramFailed, match=r"died 6 times in a row within 600 s .*: no memory"):
        until(lambda: False, meanwhile=kept.check)


@pytest.mark.parametrize(
    "code",
    ["import os; print('error: pid', os.getpid()); exit(1)", "import os; os.abort()", "print('error: bye')"],
    ids=["another error each time", "a signal", "a clean exit"],
)
def test_a_child_that_ends_slowly_and_otherwise_is_replaced(kept: Supervisor, monkeypatch, code) -> None:
    monkeypatch.setattr(module, "QUICK_S", 0.0)
    kept.start(python("dies", code))
    until(lambda: kept.restarts > module.MAX_DEATHS + 1, meanwhile=kept.check)


@pytest.mark.parametrize(
    ("error", "is_explained"),
    [(ConfigError, True), (CheckpointError, True), (StoreFull, True), (NothingCameIn, False)],
)
def test_how_long_a_slow_machine_took_to_a_user_error_says_nothing(
    kept: Supervisor, monkeypatch, error: type[DistrlError], is_explained: bool
) -> None:
    monkeypatch.setattr(module, "QUICK_S", 0.0)
    kept.start(python("fails", f"import sys; print('error: why'); sys.exit({error.exit_code})"))
    with pytest.raises(ProgramFailed, match="fails stopped: why") as caught:
        until(lambda: False, meanwhile=kept.check)
    assert (caught.value.exit_code, caught.value.is_explained) == (error.exit_code, is_explained)
    assert kept.restarts == 0


def test_a_program_may_have_variables_of_its_own(kept: Supervisor, tmp_path: Path) -> None:
    talker = python("talker", "import os; print(os.environ['FLAVOUR'], os.environ['TASTE'])", ends=True)
    kept.start(replace(talker, env={"FLAVOUR": "pepper", "TASTE": "hot"}))
    until(lambda: kept.is_done("talker"), meanwhile=kept.check)
    assert (tmp_path / "logs" / "talker.log").read_text() == "pepper hot\n"


def test_stop_ends_even_those_that_ignore_sigterm(kept: Supervisor, tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
    code = stubborn + "time.sleep(600)"
    kept.start(Program("stubborn", (sys.executable, "-c", code), patience_s=0.1))
    kept.start(python("sleeper", SLEEP))
    until(lambda: "up" in (tmp_path / "logs" / "stubborn.log").read_text())
    pids = kept.pids()
    kept.stop()
    assert kept.pids() == {}
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_last_error_prefers_an_error_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x\nerror: this\nnoise\n\n")
    assert last_error(log) == "this"
    log.write_text("x\nnoise\n\n")
    assert last_error(log) == "noise"
    log.write_text("")
    assert last_error(log) == "it wrote nothing"


def test_a_log_that_a_full_disk_cuts_off_is_not_taken_for_an_error(tmp_path: Path, monkeypatch) -> None:
    log = tmp_path / "log"
    log.write_text("2026-01-01 INFO wor")
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: used._replace(free=0))
    assert "disk of its log is full" in last_error(log)
    log.write_text("error: this\n")
    assert last_error(log) == "this"


def test_a_log_that_was_cleared_away_does_not_end_the_others(kept: Supervisor, tmp_path: Path) -> None:
    kept.start(python("sleeper", SLEEP))
    (tmp_path / "logs" / "sleeper.log").unlink()
    os.kill(kept.pids()["sleeper"], signal.SIGKILL)
    until(lambda: kept.restarts == 1, meanwhile=kept.check)
    assert (tmp_path / "logs" / "sleeper.log").exists()
