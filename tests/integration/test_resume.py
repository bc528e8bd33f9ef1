"""The learner killed in mid-training and resumed: real processes, nothing lost, nothing counted twice."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from role_processes import served, small_run, start, step_of_latest, wait_for

from distrl.core import checkpoints
from distrl.core.metrics import read_metrics
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.training import staleness_rows
from distrl.workers.spool import Spool

DEADLINE_S = 240.0
EPISODES = 36


@pytest.mark.needs("torch")
def test_a_killed_learner_goes_on_with_everything(tmp_path: Path) -> None:
    config = small_run(tmp_path, {"import_path": "counting_env:CountingEnv"}, episodes=EPISODES)
    run, spool = tmp_path / "runs" / "run", tmp_path / "spool"
    saved = run / "checkpoints"
    with served(config) as children:
        first = start(tmp_path, "first", "run-learner", str(config))
        worker = start(tmp_path, "worker", "run-worker", str(config), "--name", "w", "--spool", str(spool))
        children += [first, worker]
        wait_for(children, lambda: step_of_latest(saved) >= 6, "the checkpoint", DEADLINE_S)
        assert first.kill() == -signal.SIGKILL
        version = int((run / "weights" / "version").read_text())
        store = TrajectoryStore(run / "store.sqlite3")
        acked = store.ids()
        again = start(tmp_path, "again", "run-learner", str(config), "--resume")
        children.append(again)
        assert again.wait(DEADLINE_S) == 0, again.log_file.read_text()[-3000:]
        assert worker.wait(DEADLINE_S) == 0

    resumed_after = int(re.search(r"resumed after (\d+) updates", again.log_file.read_text())[1])
    assert resumed_after >= 6
    assert store.ids()[: len(acked)] == acked
    assert len(Spool(spool / "w.sqlite3")) == 0
    trained = [t for t in store.iterate(Purpose.TRAIN) if t.fault.value == "none"]
    state = json.loads((checkpoints.resolve(saved, "latest") / "state.json").read_text())
    assert state["scheduler"]["accounted"]["train"] == len(trained) >= EPISODES
    assert state["progress"]["updates"] == len(trained) // 2
    newest = [t.id for t in trained][-16:]
    assert sorted(filter(None, state["replay"]["ids"])) == sorted(newest)
    assert int((run / "weights" / "version").read_text()) > version
    assert checkpoints.resolve(saved, "final").is_dir()
    assert checkpoints.resolve(saved, "step_0").is_dir()
    rows = list(read_metrics(run / "metrics.jsonl"))
    assert max(row["episodes"] for row in rows if "episodes" in row) == len(trained)
    assert rows[-1]["step"] == state["progress"]["updates"]
    assert [row["step"] for row in rows if "resumed" in row] == [resumed_after]
    tables = staleness_rows(RunMetrics(rows))
    assert sum(table["trajectories"] for table in tables) == 2 * state["progress"]["updates"]
