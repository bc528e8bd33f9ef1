"""Progress: lines in a log, a bar on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

from episode_factory import make_episode, make_task

from distrl.core.terminal import Console
from distrl.core.types import Fault
from distrl.evaluator.progress import EvaluationProgress, read_counts
from distrl.evaluator.results import episode_result
from distrl.evaluator.statistics import EpisodeResult


def result(number: int, success: bool, fault: Fault = Fault.NONE) -> EpisodeResult:
    trajectory, _ = make_episode(make_task(number), success, fault=fault)
    return episode_result(trajectory)


def test_a_log_gets_whole_lines_that_another_process_can_follow(tmp_path: Path) -> None:
    log = tmp_path / "evaluate-step_0.log"
    assert read_counts(log) is None
    with log.open("w") as out:
        progress = EvaluationProgress(console=Console(file=out))
        assert read_counts(log) is None
        progress.start(3, 1)
        assert read_counts(log) == (1, 3)
        progress.add(result(0, True), is_final=True)
        progress.add(result(1, False, Fault.ENV), is_final=False)
        progress.say("one faulted; trying again")
        progress.add(result(1, False), is_final=True)
        assert read_counts(log) == (3, 3)
        progress.close()
    lines = log.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("evaluating: 1 of 3 tasks", "3 of 3 tasks, 50% solved, 1 faults")


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    progress = EvaluationProgress(console=Console(file=out, force_terminal=True, width=100))
    progress.start(2, 0)
    progress.say("waiting for [weights]")
    progress.add(result(0, True), is_final=True)
    progress.close()
    assert "1/2" in out.getvalue()
    assert "waiting for [weights]" in out.getvalue()
