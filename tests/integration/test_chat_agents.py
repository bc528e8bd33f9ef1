"""Agents that talk in chats play a simulated phone with a small Qwen-VL: the whole way, by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("jinja2", reason="needs jinja2: not installed")

import torch
from small_learner import SmallLearner
from tiny_qwen import save_qwen25_vl
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core import process
from distrl.core.policies import build_policy, weights_io
from distrl.core.policies.base import Policy
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.core.types import Prefix, Trajectory
from distrl.core.weights import describe
from distrl.evaluator.suites import load_suite
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import compile_episode
from distrl.workers.inference.serve import serve_beside_learner

WAIT_S = 60.0
NUM_STEPS = 3
MODES = ["history", "incremental"]


@pytest.fixture(autouse=True)
def no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("model")
    save_qwen25_vl(directory)
    return directory


def configure(learner: SmallLearner, model: Path, folder: Path, agent: dict[str, object]) -> Config:
    """One short task on a simulated phone, and everything that the command needs, in config.yaml."""
    task = load_suite("quickstart", "test")[0].model_copy(update={"max_steps": NUM_STEPS})
    (folder / "tasks.jsonl").write_text(task.model_dump_json())
    ends = learner.endpoints
    network = {"control": ends.control, "broadcast": ends.broadcast, "weights": ends.weights}
    policy = {"kind": "hub", "model": str(model), "device": "cpu", "max_prompt_tokens": 8192}
    config = learner.config(
        network=network,
        env={"kind": "phone"},
        agent=agent,
        policy=policy,
        tasks={"suite": str(folder / "tasks.jsonl"), "test": ["test"]},
        learner={"max_new_tokens": 12},
        evaluate={"slots": 1, "temperature": 1.0},
        worker={"act_timeout_s": 300.0},
    )
    (folder / "config.yaml").write_text(config.to_yaml())
    return config


def play(model: Path, folder: Path, agent: dict[str, object]) -> tuple[Policy, Trajectory, TrajectoryStore]:
    """An episode by `distrl evaluate`: the policy that acted, the record, and the store with its pictures."""
    with SmallLearner([], folder) as learner, Wire() as wire:
        config = configure(learner, model, folder, agent)
        policy = build_policy(config.policy, [], 5)
        data = weights_io.to_bytes(policy.published_state())
        learner.server.publish_weights(describe(5, data, policy.published_kind()), data)
        with serve_beside_learner(config, [], "inference-0", wire) as (_, link):
            link.wait_connected(WAIT_S)
            options = ["--learner", learner.endpoints.control, "--output", str(folder / "out")]
            result = CliRunner().invoke(app, ["evaluate", str(folder / "config.yaml"), *options])
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "out" / "results.json").read_text())["weight_versions"] == [5, 5]
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["mobile-use", "androidworld"])
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
