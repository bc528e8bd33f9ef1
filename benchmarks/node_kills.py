"""Trajectories and throughput of a run on Ray while one of its workers' nodes is killed every 20 s.

Three raylets on this machine: one has the learner and the inference server, each of the others a worker of
eight simulated phones. These two are killed in turn, with all their processes at once, and a new node takes
the place of each. Throughput is that in actions per second of stored episodes; what the share of nodes allows
is the throughput before the first kill times the share of the time for which the workers' nodes were up. Ray
notices a death within 2.5 s here, and after 15 s where its clusters keep their default.

    python benchmarks/node_kills.py            # a minute without kills, five with them; needs the extra ray
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from launch import launched, trajectories
from ray_nodes import HEAD, NODE, OTHERS, ray_nodes

KILL_S, BEFORE_S, AFTER_S, DEADLINE_S = 20.0, 60.0, 20.0, 300.0
TARGET = 0.9
OPTIONS = (
    "env.options.latency={kind: lognormal, median_s: 1, sigma: 0.3}",
    "worker.slots=8",
    "local.workers=2",
    "learner.episodes=1000000",
    "learner.updates_per_episode=0.01",
    "learner.lease_ttl_s=10",
    "learner.eval_every=0",
    "learner.demonstrations.critic_updates=0",
    f"placement.learner.resources={{'node:{HEAD}': 0.001}}",
    f"placement.inference.resources={{'node:{HEAD}': 0.001}}",
    "placement.workers.resources={emulators: 2}",
    *(f"network.{name}=tcp://{HEAD}:*" for name in ("control", "broadcast", "weights", "act")),
)


def kill(cluster: Any, host: str, run: Path) -> None:
    """Ends everything on a node at once, as a power cut would."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = any(str(run) in word for word in process.cmdline())
            if is_ours and process.environ().get("DISTRL_HOST") == host:
                process.kill()
    node = next(node for node in cluster.worker_nodes if node.node_ip_address == host)
    cluster.remove_node(node, allow_graceful=False)


def main() -> None:
    """Prints the ratio, and how many trajectories were acknowledged and stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="how long nodes are killed")
    seconds = parser.parse_args().seconds
    acknowledged, up_s = set[str](), 0.0
    with (
        tempfile.TemporaryDirectory() as name,
        ray_nodes(Path(name)) as cluster,
        launched(Path(name), "ray", os.environ, OPTIONS) as run,
    ):
        deadline = time.time() + DEADLINE_S
        while len({one.worker for one in trajectories(run)}) < len(OTHERS):
            if time.time() > deadline:
                raise SystemExit(f"no episodes of both workers within {DEADLINE_S:g} s")
            time.sleep(1.0)
        began = time.time()
        time.sleep(BEFORE_S)
        killed_from = time.time()
        since = dict.fromkeys(OTHERS, killed_from)
        while (at := time.time()) < killed_from + seconds:
            acknowledged |= {one.id for one in trajectories(run)}
            host = OTHERS[round((at - killed_from) / KILL_S) % len(OTHERS)]
            up_s += time.time() - since[host]
            kill(cluster, host, run)
            cluster.add_node(node_ip_address=host, **NODE)
            since[host] = time.time()
            time.sleep(max(0.0, at + KILL_S - time.time()))
        end = time.time()
        up_s += sum(end - one for one in since.values())
        time.sleep(AFTER_S)  # until the episodes under way have ended
        stored = trajectories(run)
    acted_at = [step.timing.started_at for one in stored for step in one.steps]
    before = sum(began <= at < killed_from for at in acted_at) / (killed_from - began)
    during = sum(killed_from <= at < end for at in acted_at) / (end - killed_from)
    share = up_s / len(OTHERS) / (end - killed_from)
    ratio, lost = during / (before * share), len(acknowledged - {one.id for one in stored})
    verdict = "met" if ratio >= TARGET and not lost else "missed"
    print(
        f"{during:.1f} actions/s, {ratio:.2f} of what {100 * share:.0f}% of the nodes allow ({before:.1f} at "
        f"first); {len(acknowledged)} trajectories acknowledged at the last kill, {lost} of them lost, "
        f"{len(stored)} stored; target {TARGET:g} and 0: {verdict}"
    )


if __name__ == "__main__":
    main()
