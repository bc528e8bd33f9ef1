"""A worker on a pool of simulated phones, with a real learner: episodes, and the pool in heartbeats."""

from __future__ import annotations

import threading
from pathlib import Path

from small_learner import SmallLearner
from waiting import until

from distrl.cli.run_worker import work
from distrl.core.messages import Lease
from distrl.core.types import Purpose
from distrl.evaluator.suites import load_suite

DEADLINE_S = 60.0
COUNTS = ("ready", "busy", "recovering", "quarantined")


def test_demonstrations_come_from_the_devices_of_a_pool(tmp_path: Path) -> None:
    tasks = load_suite("quickstart", "train")[:6]
    leases = [Lease(id=f"lease-{n}", task=task, purpose=Purpose.DEMO) for n, task in enumerate(tasks)]
    with SmallLearner(leases, tmp_path) as learner:
        config = learner.config(
            env={"kind": "phone"},
            worker={"slots": 8},
            devices={"pool": [{"kind": "sim", "count": 2}]},
            runs_dir=str(tmp_path / "runs"),
        )
        stop = threading.Event()
        thread = threading.Thread(target=work, args=(config, "w", tmp_path / "spool", stop), daemon=True)
        thread.start()
        trajectories = learner.collect(6)
        until(lambda: counted(learner) == 2, "the pool in a heartbeat", DEADLINE_S)
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert all(trajectory.success == 1.0 for trajectory in trajectories)
    assert {trajectory.slot for trajectory in trajectories} <= {0, 1}  # as many slots as devices


def counted(learner: SmallLearner) -> float:
    """How many devices the learner knows of."""
    metrics = learner.server.peer_metrics()
    return sum(metrics.get(f"workers/devices_{name}", 0.0) for name in COUNTS)
