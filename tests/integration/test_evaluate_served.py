"""`distrl evaluate --learner` against a learner and an inference server that run; also of agents in chats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("jinja2", reason="needs jinja2: not installed")

import torch
from small_learner import SmallLearner
from tiny_qwen import save_qwen25_vl
from typer.testing import CliRunner, Result

from distrl.cli.main import app
from distrl.configs.schema import Config, TasksConfig
from distrl.core import process
from distrl.core.policies import build_policy, weights_io
from distrl.core.policies.base import Policy
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import Prefix, Trajectory
from distrl.core.weights import describe
from distrl.evaluator.suites import load_suite, vocabulary
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import compile_episode
from distrl.workers.inference.serve import serve_beside_learner

SUITE = "counting_suite:tasks"
SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40], "device": "cpu"}
WAIT_S = 60.0
NUM_STEPS = 3


@pytest.fixture(autouse=True)
def no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("model")
    save_qwen25_vl(directory)
    return directory


def configure(server: SmallLearner, folder: Path, **sections: object) -> Config:
    """A configuration of both, also as config.yaml."""
    ends = server.endpoints
    network = {"control": ends.control, "broadcast": ends.broadcast, "weights": ends.weights}
    config = server.config(network=network, **sections)
    (folder / "config.yaml").write_text(config.to_yaml())
    return config


def publish(learner: SmallLearner, config: Config, words: list[str]) -> Policy:
    policy = build_policy(config.policy, words, 5)
    data = weights_io.to_bytes(policy.published_state())
    learner.server.publish_weights(describe(5, data, policy.published_kind()), data)
    return policy


def evaluate(learner: SmallLearner, folder: Path, *options: str) -> Result:
    arguments = ["--learner", learner.endpoints.control, "--output", str(folder / "out"), *options]
    return CliRunner().invoke(app, ["evaluate", str(folder / "config.yaml"), *arguments])


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "results.json").read_text())


@pytest.mark.parametrize("is_published", [True, False])
def test_what_a_learner_serves_is_measured(tmp_path: Path, is_published: bool) -> None:
    words = vocabulary(TasksConfig(suite=SUITE))
    with SmallLearner([], tmp_path) as learner, Wire() as wire:
        config = configure(learner, tmp_path, policy=SIZES, tasks={"suite": SUITE}, evaluate={"slots": 2})
        if is_published:
            publish(learner, config, words)
        with serve_beside_learner(config, words, "inference-0", wire) as (server, link):
            link.wait_connected(WAIT_S)
            result = evaluate(learner, tmp_path, *([] if is_published else ["--wait", "0.5"]))
            endpoint = server.endpoint
    if not is_published:
        assert result.exit_code == 5, result.output
        assert f"No policy to measure within 0.5 s: {endpoint} has no weights yet." in result.stderr
        assert not (tmp_path / "out").exists()
        return
    assert result.exit_code == 0, result.output
    numbers = results(tmp_path)
    assert numbers["spec"]["subject"] == {"kind": "served", "name": learner.endpoints.control}
    assert numbers["weight_versions"] == [5, 5]
    assert numbers["splits"]["test"]["overall"]["episodes"] == 2
    assert (tmp_path / "out" / "report.html").is_file()


def play(model: Path, folder: Path, agent: dict[str, object]) -> tuple[Policy, Trajectory, TrajectoryStore]:
    """One short task on a phone: the policy that acted, the record, and the store with its pictures."""
    task = load_suite("quickstart", "test")[0].model_copy(update={"max_steps": NUM_STEPS})
    (folder / "tasks.jsonl").write_text(task.model_dump_json())
    with SmallLearner([], folder) as learner, Wire() as wire:
        config = configure(
            learner,
            folder,
            env={"kind": "phone"},
            agent=agent,
            policy={"kind": "hub", "model": str(model), "device": "cpu", "max_prompt_tokens": 8192},
            tasks={"suite": str(folder / "tasks.jsonl"), "test": ["test"]},
            learner={"max_new_tokens": 12},
            evaluate={"slots": 1, "temperature": 1.0},
            worker={"act_timeout_s": 300.0},
        )
        policy = publish(learner, config, [])
        with serve_beside_learner(config, [], "inference-0", wire) as (_, link):
            link.wait_connected(WAIT_S)
            result = evaluate(learner, folder)
    assert result.exit_code == 0, result.output
    assert results(folder)["weight_versions"] == [5, 5]
    store = TrajectoryStore(folder / "out" / "store.sqlite3")
    (name,) = store.ids()
    return policy, store.get(name), store


def sequences(trajectory: Trajectory) -> Iterator[tuple[Prefix, tuple[int, ...]]]:
    """What each chat went on from, and the ids that it added before its answer."""
    so_far = Prefix()
    for step in trajectory.steps:
        for chat in step.chats:
            yield so_far.before(chat), chat.completion.prompt_token_ids
            so_far = so_far.after(chat)


def check_scores(policy: Policy, trajectory: Trajectory, store: TrajectoryStore) -> None:
    """A learner gives every sampled token the log-probability that the server recorded."""
    episode = compile_episode(trajectory, policy)
    assert episode is not None
    sampled = [
        token for step in trajectory.steps for chat in step.chats for token in chat.completion.token_ids
    ]
    assert [token for step in episode.steps for token in step.tokens] == sampled
    batch = Batcher(policy, ImageCache(policy.image, store.images)).steps(episode.steps)
    with torch.no_grad():
        scores = policy.score(batch.prompts, batch.completions, batch.token_mask, batch.temperature)
    torch.testing.assert_close(scores.logprobs, batch.behaviour_logprobs, atol=1e-4, rtol=0)
    store.close()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("mobile-use", "history"), ("mobile-use", "incremental"), ("androidworld", "history")),
        *(("autoglm", "history"), ("mai-ui", "incremental")),
    ],
)
def test_an_episode_by_the_command_is_what_a_learner_scores(
    model: Path, tmp_path: Path, kind: str, mode: str
) -> None:
    policy, trajectory, store = play(model, tmp_path, {"kind": kind, "options": {"mode": mode}})
    assert len(trajectory.steps) == NUM_STEPS
    assert trajectory.outcome.value == "step-limit"
    assert all(step.action.kind == "invalid" and step.action.reason for step in trajectory.steps)
    lengths = [len(prefix.token_ids) for prefix, _ in sequences(trajectory)]
    assert [length > 0 for length in lengths] == [False, *[mode == "incremental"] * (NUM_STEPS - 1)]

    shown = [len(prefix.images) + 1 for prefix, _ in sequences(trajectory)]
    assert shown == ([1, 2, 3] if mode == "incremental" else [1, 1, 1])
    check_scores(policy, trajectory, store)
