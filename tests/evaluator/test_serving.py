"""The policy that is measured: finding checkpoints, waiting for weights, serving one here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from counting_phone import counting_config, write_suite
from small_learner import SmallLearner

from distrl.configs.schema import Config, NetworkConfig
from distrl.core.checkpoints import MANIFEST, point, write_checkpoint
from distrl.core.errors import CheckpointError, InferenceUnavailable, LearnerUnreachable
from distrl.core.messages import Info, InfoRequest
from distrl.core.sockets import Received, Wire
from distrl.evaluator.evaluator import EvaluationStopped
from distrl.evaluator.measure import Who, measure
from distrl.evaluator.progress import LineProgress
from distrl.evaluator.serving import find_checkpoint, wait_for_policy

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40], "device": "cpu"}


def make_checkpoint(directory: Path, name: str = "step_4") -> Path:
    return write_checkpoint(directory, name, lambda path: (path / "weights").write_bytes(b"w" * 100))


def test_a_checkpoint_is_found_by_itself_its_pointer_or_its_run(tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    step = make_checkpoint(checkpoints)
    point(checkpoints, "latest", "step_4")
    for path in (step, checkpoints / "latest", checkpoints, tmp_path / "run"):
        assert find_checkpoint(path) == step


def test_the_final_checkpoint_of_a_run_comes_first(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "step_4")
    make_checkpoint(tmp_path, "step_8")
    point(tmp_path, "final", "step_4")
    point(tmp_path, "latest", "step_8")
    assert find_checkpoint(tmp_path).name == "step_4"


def test_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        find_checkpoint(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=f"{MANIFEST} is missing"):
        find_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=f"a model of transformers.*--set policy.model={tmp_path}"):
        find_checkpoint(tmp_path)


def test_a_truncated_checkpoint_is_an_error(tmp_path: Path) -> None:
    step = make_checkpoint(tmp_path)
    (step / "weights").write_bytes(b"w" * 60)
    with pytest.raises(CheckpointError, match="60 bytes, not 100"):
        find_checkpoint(step)


@contextmanager
def info_server(wire: Wire, versions: list[int]) -> Iterator[str]:
    """Answers info requests with these weight versions, the last one for ever."""
    channel, done = wire.bind_router("tcp://127.0.0.1:*"), threading.Event()

    def serve() -> None:
        while not done.is_set():
            received: Received | None = channel.recv(0.05)
            if received is not None and isinstance(received.message, InfoRequest):
                version = versions.pop(0) if len(versions) > 1 else versions[0]
                channel.send(Info(name="s", policy="tiny", weight_version=version), peer=received.peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield channel.endpoint
    finally:
        done.set()
        thread.join(10.0)
        channel.close()


def test_it_waits_for_weights_and_says_so() -> None:
    said: list[str] = []
    with Wire() as wire, info_server(wire, [-1, 3]) as endpoint:
        info = wait_for_policy(wire, lambda: [endpoint], 30.0, threading.Event(), said.append)
    assert info.weight_version == 3
    assert said == [f"waiting for a policy: {endpoint} has no weights yet"]


def test_waiting_has_an_end() -> None:
    with (
        Wire() as wire,
        info_server(wire, [-1]) as endpoint,
        pytest.raises(InferenceUnavailable, match="has no weights yet"),
    ):
        wait_for_policy(wire, lambda: [endpoint], 0.2, threading.Event(), lambda _: None)


def test_waiting_can_be_stopped() -> None:
    stop = threading.Event()
    stop.set()
    with Wire() as wire, pytest.raises(EvaluationStopped):
        wait_for_policy(wire, list, 30.0, stop, lambda _: None)


def test_an_unreachable_learner_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with Wire() as wire:
        channel = wire.bind_router("tcp://127.0.0.1:*")  # its port is free as soon as it is closed
        endpoint = channel.endpoint
        channel.close()
    config = counting_config(write_suite(tmp_path, [{"taps": 1}]))
    network = NetworkConfig(control=endpoint, broadcast=endpoint)
    config = config.model_copy(update={"network": network})
    with pytest.raises(LearnerUnreachable, match="No learner answered"):
        measure(config, Who(learner=endpoint), tmp_path / "out", progress=Said(), wait_s=0.3)
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_over_has_nothing_served(tmp_path: Path) -> None:
    config = counting_config(write_suite(tmp_path, [{"taps": 1}]))
    with SmallLearner([], tmp_path) as learner:
        learner.server.shutdown("all done")
        address = learner.endpoints.control
        network = NetworkConfig(control=address, broadcast="tcp://127.0.0.1:1")
        config = config.model_copy(update={"network": network})
        with pytest.raises(LearnerUnreachable, match="is over"):
            measure(config, Who(learner=address), tmp_path / "out", progress=Said())


class Said(LineProgress):
    """Says nothing."""

    def __init__(self) -> None:
        super().__init__(_Nowhere())


class _Nowhere:
    def write(self, _: str) -> int:
        return 0

    def flush(self) -> None:
        pass


@pytest.mark.needs("torch")
def test_a_checkpoint_is_served_and_measured_and_so_is_what_has_none(tmp_path: Path) -> None:
    from distrl.core.policies import build_policy

    config = counting_config(write_suite(tmp_path, [{"taps": 1}, {"taps": 2}]))
    config = Config.model_validate(config.model_dump() | {"policy": SIZES})
    policy = build_policy(config.policy, ["tap", "times"], seed=0)
    step = write_checkpoint(tmp_path, "step_0", lambda path: policy.save(path / "policy"))
    evaluation = measure(config, Who(checkpoint=step), tmp_path / "out", progress=Said())
    assert evaluation.splits["test"].overall.episodes == 2
    assert evaluation.spec.subject.name == str(step)
    assert evaluation.weight_versions == (0, 0)
    fresh = measure(config, Who(agent="model"), tmp_path / "fresh", progress=Said())
    assert fresh.splits["test"].overall.episodes == 2
    assert (fresh.spec.subject.kind, fresh.spec.subject.name) == ("model", "tiny")
