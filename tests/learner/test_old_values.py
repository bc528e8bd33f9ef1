"""Values as they were when an episode came in: taken once, kept, and brought back by a resume."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from learning_world import build

from distrl.learner import old_values
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.engine import Engine
from distrl.learner.episodes import compile_episode


@pytest.fixture
def parts(toy, policy, critic, load_images, tmp_path):
    learner, _ = build(toy, tmp_path, value_recompute=False)
    episodes = [
        compile_episode(
            toy.trajectory("cut", [toy.step(1, (1,), (-1.5,), image=k) for k in range(3)], truncated=True),
            policy,
        ),
        compile_episode(toy.trajectory("won", [toy.step(4, (6,), (-2.2,), image=5, outcome=1.0)]), policy),
    ]
    engine: Engine = learner.parts.engine
    batcher = Batcher(engine.policy, ImageCache(policy.image, load_images))
    yield {episode.id: episode for episode in episodes}, engine, batcher
    learner.updates.close()


def test_each_episode_is_valued_once(parts) -> None:
    episodes, engine, batcher = parts
    assert old_values.note(episodes, engine, batcher, batch_size=1) == 2
    assert [len(episode.values) for episode in episodes.values()] == [4, 2]
    assert episodes["won"].values[-1] == 0.0, "nothing is left to earn"
    batch = batcher.trajectories(list(episodes.values()))
    with torch.no_grad():
        now = engine.critic.values(engine.policy.states(batch.steps.prompts), batch.col).sigmoid()
        final = engine.critic.values(engine.policy.states(batch.final_prompts), batch.final_step).sigmoid()
        engine.critic.value.weight.add_(1.0)
    torch.testing.assert_close(batch.old_values, now)
    torch.testing.assert_close(batch.old_bootstrap, torch.tensor([float(final), 0.0]))
    before = dict(episodes)
    assert old_values.note(episodes, engine, batcher, batch_size=8) == 0
    assert episodes == before


def test_those_that_came_in_since_get_theirs(parts) -> None:
    episodes, engine, batcher = parts
    late = episodes.pop("won")
    assert old_values.note(episodes, engine, batcher, batch_size=8) == 1
    kept = episodes["cut"]
    episodes |= {"won": late, "again": replace(late, id="again")}
    assert old_values.note(episodes, engine, batcher, batch_size=8) == 2
    assert episodes["cut"] is kept
    assert episodes["won"].values == episodes["again"].values != ()


def test_a_batch_has_them_only_if_all_of_its_episodes_do(parts) -> None:
    episodes, engine, batcher = parts
    one = {"cut": episodes["cut"]}
    old_values.note(one, engine, batcher, 4)
    assert batcher.trajectories([one["cut"], episodes["won"]]).old_values is None
    assert batcher.trajectories([one["cut"]]).old_values.shape == (3,)


def test_a_checkpoint_keeps_them_bit_for_bit(parts) -> None:
    episodes, engine, batcher = parts
    old_values.note(episodes, engine, batcher, 4)
    anew = dict(episodes)
    kept = old_values.saved(episodes)
    for name in anew:
        anew[name] = type(anew[name])(**{**vars(anew[name]), "values": ()})
    old_values.restore(anew, {**kept, "gone": [1.0]})
    assert anew == episodes


def test_an_objective_without_a_critic_notes_none(toy, tmp_path) -> None:
    options = {"algorithm": "filtered-bc", "value_recompute": False, "episodes": 60, "eval_every": 0}
    learner, _ = build(toy, tmp_path, **options)
    learner.run()
    assert learner.progress.updates > 0
    assert not any(episode.values for episode in learner.parts.ingest.episodes.values())


def test_a_run_learns_from_them_and_resumes_with_them(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, value_recompute=False, episodes=60, eval_every=0)
    learner.run()
    assert world.over
    values = {name: e.values for name, e in learner.parts.ingest.episodes.items() if e.values}
    assert values
    again, _ = build(toy, tmp_path, incarnation="i2", value_recompute=False, episodes=60, eval_every=0)
    again.parts.load_state_dict(again.parts.checkpointer.load())
    again.updates.close()
    found = {name: e.values for name, e in again.parts.ingest.episodes.items() if e.values}
    assert found == values
