"""Publication: versions, the lag of what is announced, restarts."""

from __future__ import annotations

import hashlib
import tracemalloc
from types import SimpleNamespace

import pytest
import torch
from full_disk import full_disk
from learning_world import build

from distrl.core.errors import CheckpointError, RunDirectoryError
from distrl.core.messages import WeightInfo
from distrl.core.metrics import read_metrics
from distrl.core.policies import weights_io
from distrl.learner.publish import Publisher


class Shelf:
    """Keeps what is announced: version → the value that the weights had."""

    def __init__(self) -> None:
        self.announced: dict[int, float] = {}

    def publish_weights(self, info, data) -> None:
        assert info.version not in self.announced, "a version is announced once"
        state = weights_io.from_bytes(bytes(data))
        assert info.size_bytes == len(data)
        self.announced[info.version] = float(state["w"][0])


class Weights:
    """A policy of one number: how often it was published."""

    def __init__(self) -> None:
        self.value = 0.0

    def published_state(self):
        self.value += 1.0
        return {"w": torch.tensor([self.value])}

    def published_metadata(self) -> dict[str, str]:
        return {}

    def published_kind(self) -> str:
        return "full"


class Large(Weights):
    """A policy of many tensors, of several types."""

    def __init__(self) -> None:
        self.state = {f"w{number}": torch.randn(2**18) for number in range(16)}
        self.state |= {"half": torch.randn(7).bfloat16(), "count": torch.tensor(3), "empty": torch.ones(0)}

    def published_state(self):
        return self.state


def test_the_weights_are_copied_once_and_hashed_meanwhile(tmp_path) -> None:
    told: list[tuple[WeightInfo, bytes]] = []
    policy, server = Large(), SimpleNamespace(publish_weights=lambda *version: told.append(version))
    size = sum(tensor.nbytes for tensor in policy.state.values())
    tracemalloc.start()
    try:
        Publisher(policy, server, tmp_path / "version").publish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    ((info, data),) = told
    assert size < peak < 1.1 * size
    assert info.digest == hashlib.sha256(data).hexdigest()
    found = weights_io.from_bytes(data)
    assert all(torch.equal(found[name], tensor) for name, tensor in policy.state.items())


def publish(publisher: Publisher, times: int) -> list[int]:
    return [publisher.publish().version for _ in range(times)]


@pytest.mark.parametrize("lag", [0, 1, 4])
def test_with_a_lag_each_version_is_announced_that_much_later_with_its_own_weights(tmp_path, lag) -> None:
    shelf = Shelf()
    publisher = Publisher(Weights(), shelf, tmp_path / "version", lag)
    assert publish(publisher, 8) == [max(1, version - lag) for version in range(1, 9)]
    assert publisher.version == 8
    assert shelf.announced == {version: float(version) for version in range(1, 9 - lag)}


def test_a_restart_never_repeats_a_version(tmp_path) -> None:
    policy, shelf = Weights(), Shelf()
    publish(Publisher(policy, shelf, tmp_path / "version", 2), 5)
    assert max(shelf.announced) == 3
    again = Publisher(policy, shelf, tmp_path / "version", 2)
    assert publish(again, 4) == [6, 6, 6, 7]


def test_catching_up_announces_the_newest_and_the_lag_begins_anew(tmp_path) -> None:
    shelf = Shelf()
    publisher = Publisher(Weights(), shelf, tmp_path / "version", 3)
    publish(publisher, 5)
    assert publisher.publish(catch_up=True).version == 6
    assert publish(publisher, 4) == [6, 6, 6, 7]
    assert shelf.announced[6] == 6.0


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"seven\n"])
def test_a_version_that_a_power_cut_emptied_is_one_clear_error(tmp_path, content) -> None:
    (tmp_path / "version").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"version, which records .* does not contain a number\. Write"):
        Publisher(Weights(), Shelf(), tmp_path / "version")


def test_training_is_that_much_staler_and_the_last_round_measures_the_final_weights(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, policy_lag=5, keep_best=False)
    learner.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    fresh = [row["off_policy/ingest_staleness"] for row in rows if "off_policy/ingest_staleness" in row]
    assert min(fresh[len(fresh) // 2 :]) >= 5
    assert world.info.version == learner.context.publisher.version
    assert torch.equal(world.acting.head.weight, learner.context.train_step.policy.head.weight)


def test_a_full_disk_ends_publication_with_an_error_for_users(tmp_path) -> None:
    shelf = Shelf()
    publisher = Publisher(Weights(), shelf, tmp_path / "version")
    publisher.publish()
    with pytest.raises(RunDirectoryError, match=r"cannot be written.*Free some disk space"), full_disk(1):
        publisher.publish()
    assert publisher.version == 1
    assert list(shelf.announced) == [1]
    assert publisher.publish().version == 2
