"""The random baseline: every kind of action, in every notation, without an expert and without a policy."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from counting_env import CountingEnv, counting_task
from scripted_episode import Script

from distrl.configs.agents import AgentConfig
from distrl.configs.schema import WorkerConfig
from distrl.core.actions import ActionKind
from distrl.core.messages import Lease
from distrl.core.types import Element, Observation, Outcome, Purpose
from distrl.workers.actors import KINDS, MAX_LETTERS, RandomActor
from distrl.workers.agents import AGENTS, build_agent
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.agents.base import Prompt
from distrl.workers.episode import EpisodeRunner

SCREEN = Observation(
    image="0" * 64, width=540, height=1200, elements=(Element(text="all", bounds=(0.0, 0.0, 1.0, 1.0)),)
)


LACKS = {
    "ui-tars": {ActionKind.ENTER, ActionKind.IMPOSSIBLE},
    "autoglm": {ActionKind.ENTER, ActionKind.IMPOSSIBLE},
    "holo": {ActionKind.IMPOSSIBLE},
    "ui-venus": {ActionKind.IMPOSSIBLE},
}


@pytest.mark.parametrize("kind", [kind for kind in AGENTS if kind != "arm"])
def test_each_kind_of_action_is_as_likely_in_every_notation(kind: str) -> None:
    agent = build_agent(AgentConfig(kind=kind))
    actor, drawn, num_drawn = RandomActor(agent, random.Random(0)), Counter[ActionKind](), 3000
    for _ in range(num_drawn):
        chat, action = actor.act(Prompt(()), SCREEN)
        assert agent.parse(chat.completion.text, SCREEN) == action
        assert chat.completion.token_ids == ()
        if action.kind is ActionKind.TYPE:
            assert 1 <= len(action.text) <= MAX_LETTERS
        drawn[action.kind] += 1
    kinds = set(KINDS) - LACKS.get(kind, set())
    assert set(drawn) == kinds
    assert set(KINDS) > {ActionKind.COMPLETE, ActionKind.IMPOSSIBLE}
    expected = num_drawn / len(kinds)
    chi_squared = sum((count - expected) ** 2 / expected for count in drawn.values())
    assert chi_squared < 27.9, "one in a thousand at nine degrees of freedom"


def test_an_agent_that_draws_its_own_actions_is_asked_for_them() -> None:
    agent = build_agent(AgentConfig(kind="arm"))
    actor = RandomActor(agent, random.Random(0))
    answers = {actor.act(Prompt(()), SCREEN)[1] for _ in range(20)}
    assert {action.kind for action in answers} == {ActionKind.MOTION}
    assert len(answers) == 20


def episode(number: int) -> Any:
    task = counting_task().model_copy(update={"seed": number, "max_steps": 60})
    policy = Script()
    runner = EpisodeRunner(CountingEnv(), AutoUIAgent(), policy, WorkerConfig(), randomly=True)
    found = runner.run(Lease(id="one", task=task, purpose=Purpose.EVAL))
    assert found is not None
    assert not policy.asked
    return found[0]


def test_an_episode_ends_by_its_own_word_and_needs_no_policy() -> None:
    episodes = [episode(number) for number in range(40)]
    assert {one.outcome for one in episodes} >= {Outcome.FAILURE, Outcome.IMPOSSIBLE_CLAIMED}
    assert sum(len(one.steps) for one in episodes) / len(episodes) < 10, "two of ten kinds end an episode"
    for step in (step for one in episodes for step in one.steps):
        said = AutoUIAgent().parse(step.chats[0].completion.text)
        assert said.model_dump(mode="json") == step.action.model_dump(mode="json")


def test_the_same_lease_acts_alike_and_another_seed_otherwise() -> None:
    one, again, other = (episode(number).steps for number in (1, 1, 2))
    assert [step.action for step in one] == [step.action for step in again]
    assert [step.action for step in one] != [step.action for step in other]
