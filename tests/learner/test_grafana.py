"""The Grafana board asks for metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from learning_world import build

from distrl.core.messages import Heartbeat
from distrl.core.prometheus import exposition
from distrl.learner.peers import COUNTERS, GAUGES, RATES, TOTALS, Peers
from distrl.workers.inference.server import ServerStats
from distrl.workers.worker import Tally

BOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def names(values: dict[str, float], prefix: str, role: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", exposition(values, prefix, COUNTERS[role], {}), re.MULTILINE))


def test_queries_name_only_metrics_that_exist(toy, tmp_path) -> None:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"\bdistrl_\w+", query)}

    learner, _ = build(toy, tmp_path, episodes=60, eval_every=10)
    learner.run()
    peers = Peers(60.0, clock=iter(range(100)).__next__)
    for role in ("worker", "inference"):
        stats = {stat: 1.0 for its_role, stat in (*RATES, *TOTALS, *GAUGES) if its_role == role}
        peers.register(Heartbeat(role=role, name=role, stats=stats))
    now = {**learner.context.server.status, **peers.metrics()}
    now |= {"weights/sent_bytes": 1.0, "rejected/limit": 1.0}
    known = names(now, "distrl_", "learner")
    known |= names(ServerStats().snapshot(), "distrl_inference_server_", "inference")
    known |= names(Tally().counts, "distrl_worker_", "worker")
    assert sorted(asked - known) == []
    assert len(asked) > 20
