"""An inference server beside a real learner's sockets: weights arrive, are swapped, survive its restart."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from policy_fakes import chat, png

from distrl.configs.schema import Config
from distrl.core.errors import PolicyError
from distrl.core.messages import Lease
from distrl.core.policies import build_policy, weights_io
from distrl.core.security import Client
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import Completion, Sampling, Trajectory, image_digest
from distrl.core.weights import describe
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers.act_client import ActClient
from distrl.workers.inference.serve import run_until_stopped, serve_beside_learner

MakeConfig = Callable[..., Config]
ANY = Endpoints("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
WAIT_S = 60.0
PICTURE = png(0)
DIGEST = image_digest(PICTURE)


class NoTasks:
    """A scheduler without work."""

    def grant(self, worker: str, count: int, limit: int, client: Client | None) -> Sequence[Lease]:
        return ()

    def check(self, trajectory: Trajectory) -> str:
        return ""

    def renew(self, *_: object) -> None:
        pass

    release = finish = lose = renew

    def tick(self) -> None:
        pass


@contextmanager
def learner(directory: Path, endpoints: Endpoints = ANY) -> Iterator[LearnerServer]:
    store = TrajectoryStore(directory / "store.sqlite3")
    server = LearnerServer(endpoints, None, store, NoTasks(), queue.Queue(8), run_id="run-1", heartbeat_s=0.2)
    server.start()
    try:
        yield server
    finally:
        server.close()
        store.close()


def publish(server: LearnerServer, config: Config, words: list[str], version: int) -> bytes:
    policy = build_policy(config.policy, words, 100 + version)
    data = weights_io.to_bytes(policy.published_state())
    server.publish_weights(describe(version, data, policy.published_kind()), data)  # type: ignore[arg-type]
    return bytes(data)


def network(endpoints: Endpoints) -> dict[str, str]:
    return {"control": endpoints.control, "broadcast": endpoints.broadcast, "weights": endpoints.weights}


def act_until(client: ActClient, version: int) -> Completion:
    """Acts until a completion carries `version`; versions never go back meanwhile."""
    newest, deadline = -1, time.monotonic() + WAIT_S
    while newest != version:
        assert time.monotonic() < deadline, f"version {version} did not arrive, the newest is {newest}"
        found = client.act(chat("red shoes", DIGEST), {DIGEST: PICTURE}, Sampling())
        (seen,) = set(found.weight_versions)  # a batch never mixes versions
        assert seen >= newest
        newest = seen
    return found


@pytest.mark.parametrize("policy", [{}, {"lora": {"rank": 2}}])
def test_weights_arrive_are_swapped_and_survive_a_restart(
    wire: Wire, words: list[str], make_config: MakeConfig, tmp_path: Path, policy: dict[str, object]
) -> None:
    (tmp_path / "again").mkdir()
    with ExitStack() as life:
        first = life.enter_context(learner(tmp_path))
        endpoints = first.endpoints
        config = make_config(policy, network=network(endpoints))
        publish(first, config, words, 1)
        with serve_beside_learner(config, words, "inference-0", wire) as (server, link):
            link.wait_connected(WAIT_S)
            client = ActClient(
                wire, lambda: link.status.act_endpoints if link.status else (), timeout_s=WAIT_S
            )
            assert act_until(client, 1).weight_versions
            publish(first, config, words, 2)
            act_until(client, 2)
            life.close()
            with learner(tmp_path / "again", endpoints) as second:
                publish(second, config, words, 7)
                act_until(client, 7)
                server.check()
            client.close()


@pytest.mark.parametrize("other", [{"d_ff": 20}, {"lora": {"rank": 2}}])
def test_weights_of_another_policy_end_the_server(
    wire: Wire, words: list[str], make_config: MakeConfig, tmp_path: Path, other: dict[str, object]
) -> None:
    with learner(tmp_path) as running:
        publish(running, make_config(other), words, 1)
        config = make_config(network=network(running.endpoints))
        with (
            serve_beside_learner(config, words, "inference-0", wire) as (server, link),
            pytest.raises(PolicyError, match=r"tensor|policy\.lora"),
        ):
            run_until_stopped(server, link, threading.Event())
