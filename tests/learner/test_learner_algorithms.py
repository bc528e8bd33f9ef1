"""Every objective through the whole training loop: warm start, the critic's warm-up if it has one, replay."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest
import yaml
from learning_world import build

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import ConfigError
from distrl.core.metrics import read_metrics
from distrl.learner.algorithms import ALGORITHMS, build_algorithm
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


def test_a_run_that_gets_a_critic_at_a_restart_fits_it_before_the_policy_learns_from_it(
    toy, tmp_path
) -> None:
    grpo = {"kind": "grpo", "group_size": 2}
    learner, _ = build(toy, tmp_path, episodes=16, eval_every=0, algorithm=grpo)
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


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The objective of docs/extending.md, as a module; its section of the configuration."""
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(
        r"^\*\*`my_objective\.py`\*\*.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    (section,) = re.findall(r"^```yaml\n(learner:\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "my_objective.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_objective", raising=False)
    return yaml.safe_load(section)["learner"]["algorithm"]


def test_the_objective_of_the_docs_learns(toy, tmp_path, page) -> None:
    learner, world = build(toy, tmp_path, algorithm=page, eval_every=0)
    assert learner.context.train_step.algorithm.config.beta == 0.5
    learner.run()
    assert world.over
    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "awr/weight" in row]
    assert rows[-1]["train/success"] > rows[0]["train/success"] + 0.4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"beta": -1.0}}, r"learner\.algorithm\.options\.beta` is .*greater than 0"),
        ({"options": {"bta": 1.0}}, r"learner\.algorithm\.options\.bta"),
        ({"import_path": "my_objective:Options"}, "my_objective:Options is not an objective"),
        ({"import_path": "my_objective:Missing"}, "my_objective has no Missing"),
    ],
)
def test_what_is_wrong_with_an_objective_of_ones_own_is_said(page, changes, message) -> None:
    config = LearnerConfig.model_validate({"algorithm": {**page, **changes}})
    with pytest.raises(ConfigError, match=message):
        build_algorithm(config)
