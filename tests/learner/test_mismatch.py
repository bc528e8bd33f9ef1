"""The train–inference mismatch: its numbers, what is measured, the alarm, and a run that measures it."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch
from learning_world import build

from distrl.configs.learner import LearnerConfig
from distrl.core import checkpoints
from distrl.core.errors import MismatchError
from distrl.core.metrics import read_metrics
from distrl.core.policies import weights_io
from distrl.learner.algorithms import build_algorithm
from distrl.learner.checkpoint import restore
from distrl.learner.episodes import compile_episode
from distrl.learner.mismatch import choose, kl_of_tokens
from distrl.learner.train_step import TrainStep


@pytest.mark.parametrize("scale", [0.01, 0.1, 3.0])
def test_the_estimate_is_that_of_its_definition(scale) -> None:
    d = [*np.random.default_rng(0).normal(0.0, scale, 500), -math.inf, math.nan, 40.0]
    clamped = [max(-20.0, min(20.0, x if math.isfinite(x) else -20.0)) for x in d]
    expected = [math.exp(x) - 1.0 - x for x in clamped]
    assert kl_of_tokens(np.array(d)).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def episodes_of(toy, policy, versions):
    """One episode per list of versions, a step each."""
    return [
        compile_episode(
            toy.trajectory(f"e{i}", [toy.step(1, (2,), (-1.0,), version=v) for v in steps]), policy
        )
        for i, steps in enumerate(versions)
    ]


def test_what_is_measured_are_the_last_steps_of_the_newest_episodes(toy, policy) -> None:
    episodes = episodes_of(toy, policy, [[3] * 9, [1, 2, 3], [2, 2], [4], [3, 3], [3], [3, 4]])
    found = choose(episodes, [2, 3, 4])
    assert found[0] == 3
    assert [name for name, _ in found[1]] == ["e6", "e5", "e4", "e4", "e1"], "four episodes, not the oldest"
    assert [name for name, _ in choose(episodes[:1], [2, 3])[1]] == ["e0"] * 4, "four steps of each"
    assert choose(episodes, [7, 8]) is None
    assert choose([], [3]) is None
    assert choose(episodes_of(toy, policy, [[3], [4]]), [3, 4])[0] == 4, "of equals the newest"


def measured(path) -> list[dict[str, float]]:
    return [row for row in read_metrics(path / "metrics.jsonl") if row.get("mismatch/tokens")]


def serve_weights_of_others(world, toy, after: int, until: int = 10**6) -> None:
    """From `after` up to `until` the server acts with other weights than the version that it names."""
    load = world.acting.load_published

    def load_wrongly(state) -> None:
        is_wrong = after <= world.info.version < until
        load({name: torch.randn(t.shape) if is_wrong else t for name, t in state.items()})

    world.acting.load_published = load_wrongly


def test_a_run_measures_it_and_stays_quiet(toy, tmp_path, caplog) -> None:
    learner, _ = build(toy, tmp_path, episodes=100)
    with caplog.at_level(logging.WARNING):
        learner.run()
    rows = measured(tmp_path)
    assert len(rows) >= 8, "of 50 updates every fifth"
    assert max(row["mismatch/kl"] for row in rows) < 1e-10
    assert max(row["mismatch/outside"] for row in rows) == 0.0
    assert not any(row["mismatch/alarm"] for row in rows)
    assert "mismatch" not in caplog.text
    names = ["kl", "kl_max", "outside", "tokens", "kl_recent", "alarm"]
    assert {f"mismatch/{name}" for name in names} <= set(rows[-1])
    drifted = [row["off_policy/token_log_ratio_abs"] for row in rows]
    assert max(drifted) > 1e-3, "policy lag is no mismatch"


@pytest.mark.parametrize("is_mended", [False, True])
def test_wrong_weights_under_a_right_number_are_seen(toy, tmp_path, caplog, is_mended) -> None:
    learner, world = build(toy, tmp_path, episodes=120, mismatch={"every": 2})
    serve_weights_of_others(world, toy, after=20, until=28 if is_mended else 10**6)
    with caplog.at_level(logging.WARNING):
        learner.run()
    rows = measured(tmp_path)
    assert not rows[0]["mismatch/alarm"]
    assert any(row["mismatch/alarm"] and row["mismatch/outside"] > 0.5 for row in rows)
    assert caplog.text.count("Train-inference mismatch: tokens") == 1
    assert caplog.text.count("the alarm is over") == is_mended
    assert world.status["mismatch/alarm"] == rows[-1]["mismatch/alarm"] == 1.0 - is_mended


def test_an_alarm_can_end_the_run_which_continues_when_resumed(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, episodes=80, mismatch={"on_alarm": "stop", "every": 2})
    serve_weights_of_others(world, toy, after=20)
    with pytest.raises(MismatchError, match=r"KL .*on_alarm is 'stop'"):
        learner.run()
    assert measured(tmp_path)[-1]["mismatch/alarm"] == 1.0
    updates = learner.progress.updates
    assert checkpoints.pointed(tmp_path / "checkpoints", "latest") == f"step_{updates}"

    again, world = build(toy, tmp_path, "i2", episodes=80, mismatch={"on_alarm": "stop", "every": 2})
    world.names.seed(1)
    restore(again.context, again.context.checkpointer.load())
    again.run()
    assert again.progress.updates == 40


def test_the_policy_has_its_own_weights_back_also_after_an_error(toy, monkeypatch) -> None:
    policy, config = toy.policy(), LearnerConfig(micro_batch_tokens=4)
    engine = TrainStep(policy, toy.critic(), build_algorithm(config), config)
    batch = toy.batcher(policy).steps(episodes_of(toy, policy, [[1, 1, 1]])[0].steps)
    own = {name: tensor.clone() for name, tensor in policy.published_state().items()}
    others = {name: torch.randn_like(tensor) for name, tensor in own.items()}
    mine, lent = engine.logprobs(batch), engine.logprobs(batch, others)
    assert not torch.allclose(mine, lent)
    assert all(torch.equal(tensor, own[name]) for name, tensor in policy.published_state().items())

    def fail(*arguments):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(policy, "score", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.logprobs(batch, others)
    assert all(torch.equal(tensor, own[name]) for name, tensor in policy.published_state().items())
    policy.load_published(weights_io.from_bytes(weights_io.to_bytes(others)))
    torch.testing.assert_close(engine.logprobs(batch), lent)


def test_truncated_sampling_is_not_measured(toy, tmp_path) -> None:
    learner, _ = build(toy, tmp_path, episodes=40, algorithm="bc", top_p=0.9)
    learner.run()
    assert not any("mismatch/kl" in row for row in read_metrics(tmp_path / "metrics.jsonl"))
