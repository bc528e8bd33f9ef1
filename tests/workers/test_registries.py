"""Environments and agents by name or import path, made with their options."""

import pytest
from counting_env import CountingEnv

from distrl.configs.agents import AgentConfig
from distrl.configs.schema import EnvConfig
from distrl.core.errors import ConfigError
from distrl.core.importing import choose
from distrl.workers.agents import AGENTS, build_agent
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.agents.base import Agent
from distrl.workers.envs import ENVS, build_env, seed_is_instance
from distrl.workers.envs.base import Env


def methods(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("kind", ENVS)
def test_every_registered_environment_has_the_methods(kind: str) -> None:
    assert methods(Env) <= set(dir(choose(ENVS, kind)))


def test_seeds_are_instances_where_the_goal_is_drawn_from_them() -> None:
    assert [kind for kind in ENVS if seed_is_instance(EnvConfig(kind=kind))] == ["browser", "android_world"]
    assert not seed_is_instance(EnvConfig(import_path="counting_env:CountingEnv"))


@pytest.mark.parametrize("kind", AGENTS)
def test_every_registered_agent_has_the_methods(kind: str) -> None:
    assert methods(Agent) <= set(dir(choose(AGENTS, kind)))


def test_options_are_keyword_arguments() -> None:
    agent = build_agent(AgentConfig(kind="autoui", options={"history": 3}))
    assert isinstance(agent, AutoUIAgent)
    assert agent.history == 3


def test_an_import_path_wins_over_the_kind() -> None:
    env = build_env(EnvConfig(kind="phone", import_path="counting_env:CountingEnv", options={"closes_at": 2}))
    assert isinstance(env, CountingEnv)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (AgentConfig(kind="autoiu"), "Did you mean 'autoui'"),
        (
            AgentConfig(options={"memory": 1}),
            r"agent\.options: AutoUIAgent: .*'memory'.*Its options are: history",
        ),
        (AgentConfig(options={"history": -1}), r"agent\.options: .*history must be 0 or more, not -1"),
    ],
)
def test_what_cannot_be_built_is_one_clear_error(config: AgentConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_agent(config)


class Half:
    """Some of the methods of an environment, and of an agent."""

    step = None

    def reset(self, task):
        return None

    def parse(self, text, screen):
        return None


def test_lacking_methods_are_listed() -> None:
    path = f"{__name__}:Half"
    with pytest.raises(ConfigError, match=f"{path} lacks the methods step, evaluate, expert_action, close"):
        build_env(EnvConfig(import_path=path))
    with pytest.raises(ConfigError, match=f"{path} lacks the methods prompt, format"):
        build_agent(AgentConfig(import_path=path))
