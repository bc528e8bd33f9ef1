"""`distrl evaluate --learner` against a learner and an inference server that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from small_learner import SmallLearner
from typer.testing import CliRunner, Result

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core import process
from distrl.core.policies import build_policy, weights_io
from distrl.core.sockets import Wire
from distrl.core.weights import describe
from distrl.evaluator.suites import vocabulary
from distrl.workers.inference.serve import serve_beside_learner

SUITE = "counting_suite:tasks"
SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40], "device": "cpu"}
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())


def configure(learner: SmallLearner, directory: Path) -> Config:
    """A configuration of both, also as config.yaml."""
    ends = learner.endpoints
    network = {"control": ends.control, "broadcast": ends.broadcast, "weights": ends.weights}
    config = learner.config(network=network, policy=SIZES, tasks={"suite": SUITE}, evaluate={"slots": 2})
    (directory / "config.yaml").write_text(config.to_yaml())
    return config


def publish(learner: SmallLearner, config: Config, version: int) -> None:
    policy = build_policy(config.policy, vocabulary(SUITE), version)
    data = weights_io.to_bytes(policy.published_state())
    learner.server.publish_weights(describe(version, data, policy.published_kind()), data)


def evaluate(learner: SmallLearner, directory: Path, *options: str) -> Result:
    arguments = ["--learner", learner.endpoints.control, "--output", str(directory / "out"), *options]
    return CliRunner().invoke(app, ["evaluate", str(directory / "config.yaml"), *arguments])


def test_what_a_learner_serves_is_measured(tmp_path: Path) -> None:
    with SmallLearner([], tmp_path) as learner, Wire() as wire:
        config = configure(learner, tmp_path)
        publish(learner, config, 5)
        with serve_beside_learner(config, vocabulary(SUITE), "inference-0", wire) as (_, link):
            link.wait_connected(WAIT_S)
            result = evaluate(learner, tmp_path)
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "out" / "results.json").read_text())
    assert numbers["spec"]["subject"] == {"kind": "served", "name": learner.endpoints.control}
    assert numbers["weight_versions"] == [5, 5]
    assert numbers["splits"]["test"]["overall"]["episodes"] == 2
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_learner_whose_servers_have_no_weights_is_an_error(tmp_path: Path) -> None:
    with SmallLearner([], tmp_path) as learner, Wire() as wire:
        config = configure(learner, tmp_path)
        with serve_beside_learner(config, vocabulary(SUITE), "inference-0", wire) as (server, link):
            link.wait_connected(WAIT_S)
            result = evaluate(learner, tmp_path, "--wait", "0.5")
            endpoint = server.endpoint
    assert result.exit_code == 5, result.output
    assert f"No policy to measure within 0.5 s: {endpoint} has no weights yet." in result.stderr
    assert not (tmp_path / "out").exists()
