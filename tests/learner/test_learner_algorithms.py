"""Every objective through the whole training loop: warm start, the critic's warm-up if it has one, replay."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from learning_world import build

from distrl.core.metrics import read_metrics
from distrl.learner.algorithms import ALGORITHMS
from distrl.learner.checkpoint import restore

OPTIONS = {
    "grpo": {"group_size": 8},
    "ppo": {"decoupled": True, "epochs": 2, "minibatches": 2},
    "digirl": {"top_fraction": 0.3},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_with_every_algorithm(toy, tmp_path, name) -> None:
    more = {"episodes": 600} if name == "grpo" else {}  # at first few groups tell anything apart
    own = {"kind": name, **OPTIONS.get(name, {})}
    learner, world = build(toy, tmp_path, algorithm=own, eval_every=0, **more)
    learner.run()
    assert world.over
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    success = [row["train/success"] for row in rows if "train/success" in row]
    if name == "bc":  # of its own actions: nothing tells good ones from bad ones
        assert learner.progress.updates == 150
    else:
        assert success[-1] > success[0] + 0.4, f"from {success[0]:.2f} to {success[-1]:.2f}"
    names = set().union(*rows)
    has_critic = learner.context.train_step.algorithm.has_critic
    assert has_critic == ("loss/critic_warm_up" in names) == ("value/grad_norm" in names)
    assert {"loss/policy", "policy/entropy", "off_policy/ess", "policy/grad_norm"} <= names


@pytest.mark.parametrize(
    "first",
    [{"algorithm": {"kind": "grpo", "group_size": 2}}, {"algorithm": "ppo", "updates_enabled": False}],
)
def test_a_run_that_gets_a_critic_at_a_restart_fits_it_before_the_policy_learns_from_it(
    toy, tmp_path, first
) -> None:
    learner, _ = build(toy, tmp_path, episodes=16, eval_every=0, **first)
    learner.run()
    before = learner.progress.updates
    assert before == 8
    assert not learner.progress.critic_is_warm
    for incarnation, episodes, num_fits in (("i2", 32, 20), ("i3", 48, 0)):  # once only
        again, world = build(toy, tmp_path, incarnation, algorithm="ppo", episodes=episodes, eval_every=0)
        world.names = random.Random(incarnation)
        fits, fit = [], again.context.train_step.fit_critic

        def note(batch, fits=fits, fit=fit, again=again) -> float:
            fits.append(again.progress.updates)
            return fit(batch)

        again.context.train_step.fit_critic = note
        restore(again.context, again.context.checkpointer.load())
        again.run()
        assert fits == [before] * num_fits
        assert again.progress.updates == episodes / 2
        assert again.progress.critic_is_warm
