"""A Ray cluster of three nodes on this machine, each with a loopback address of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD, OTHERS = "127.0.0.2", ("127.0.0.3", "127.0.0.4")
_GIVEN = {"num_cpus": 4, "object_store_memory": 80 * 2**20, "include_dashboard": False}
NODE = {**_GIVEN, "resources": {"emulators": 2}}
"""Arguments of `Cluster.add_node`, for a node that is not the head."""


@contextlib.contextmanager
def ray_nodes(folder: Path) -> Iterator[Any]:
    """The cluster; the others have two emulators each. As long as it lasts, `folder` is the home directory.

    Args:
        folder: A short path, because sockets are in it.
    """
    # Ray would write a token into the user's home directory.
    ours = {"HOME": str(folder), "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    # A killed node is noticed after five checks: 2.5 s in place of 15 s.
    ours["RAY_health_check_period_ms"] = "500"
    before = {name: os.environ.get(name) for name in (*ours, "RAY_ADDRESS")}
    os.environ.update(ours)
    import ray
    from ray.cluster_utils import Cluster

    try:
        cluster = Cluster(initialize_head=True, head_node_args={"node_ip_address": HEAD, **_GIVEN})
        try:
            for host in OTHERS:
                cluster.add_node(node_ip_address=host, **NODE)
            os.environ["RAY_ADDRESS"] = cluster.address
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
