"""`value_recompute: false`: values of when an episode was ingested are computed once, kept, and restored."""

from __future__ import annotations

from dataclasses import replace

import torch
from learning_world import build

from distrl.learner.checkpoint import restore
from distrl.learner.episodes import compile_episode


def test_each_episode_is_valued_once(toy, policy, tmp_path) -> None:
    learner, _ = build(toy, tmp_path, value_recompute=False, batch_trajectories=1)
    context, critic = learner.context, learner.context.train_step.critic
    context.batcher = batcher = toy.batcher(policy)
    cut = [toy.step(1, (1,), (-1.5,), image=k) for k in range(3)]
    won = [toy.step(4, (6,), (-2.2,), image=5, outcome=1.0)]
    trajectories = [toy.trajectory("cut", cut, truncated=True), toy.trajectory("won", won)]
    context.ingest.episodes |= {t.id: compile_episode(t, policy) for t in trajectories}
    episodes = context.ingest.episodes
    learner.updates._keep_values()
    assert [len(episode.values) for episode in episodes.values()] == [4, 2]
    assert episodes["won"].values[-1] == 0.0, "nothing is left to earn"
    batch = batcher.trajectories(list(episodes.values()))
    with torch.no_grad():
        now = critic.values(policy.states(batch.steps.prompts), batch.col).sigmoid()
        final = critic.values(policy.states(batch.final_prompts), batch.final_step).sigmoid()
        critic.value.weight.add_(1.0)
    torch.testing.assert_close(batch.old_values, now)
    torch.testing.assert_close(batch.old_bootstrap, torch.tensor([float(final), 0.0]))
    before = dict(episodes)
    episodes["later"] = replace(episodes["won"], id="later", values=())
    assert batcher.trajectories(list(episodes.values())).old_values is None, "only if all episodes have some"
    learner.updates._keep_values()
    assert episodes.pop("later").values
    assert episodes == before


def test_an_episode_between_those_that_have_values_gets_some(toy, policy, tmp_path) -> None:
    """After a restart imagined episodes, with values, come after real ones that arrived last."""
    learner, _ = build(toy, tmp_path, value_recompute=False)
    learner.context.batcher = toy.batcher(policy)
    one = compile_episode(toy.trajectory("a", [toy.step(1, (1,), (-1.5,))]), policy)
    episodes = learner.context.ingest.episodes
    episodes |= {"a": one, "b": replace(one, id="b", values=(0.5, 0.0))}
    learner.updates._keep_values()
    assert len(episodes["a"].values) == 2
    assert episodes["b"].values == (0.5, 0.0)


def test_a_run_learns_from_them_and_resumes_with_them(toy, tmp_path) -> None:
    learner, world = build(toy, tmp_path, value_recompute=False, episodes=60, eval_every=0)
    learner.run()
    assert world.over
    values = {name: e.values for name, e in learner.context.ingest.episodes.items() if e.values}
    assert values
    again, _ = build(toy, tmp_path, incarnation="i2", value_recompute=False, episodes=60, eval_every=0)
    restore(again.context, again.context.checkpointer.load())
    found = {name: e.values for name, e in again.context.ingest.episodes.items() if e.values}
    assert found == values
