"""The agents by name. A new one is a file in this folder and a line here, or an `import_path`."""

from __future__ import annotations

from distrl.configs.agents import AgentConfig
from distrl.core.importing import choose
from distrl.core.user_errors import build, check_methods
from distrl.workers.agents.base import Agent

AGENTS = {
    "autoui": "distrl.workers.agents.autoui:AutoUIAgent",
    "androidworld": "distrl.workers.agents.androidworld:AndroidWorldAgent",
    "mobile-use": "distrl.workers.agents.mobile_use:MobileUseAgent",
    "ui-tars": "distrl.workers.agents.gui_models:UITarsAgent",
    "autoglm": "distrl.workers.agents.gui_models:AutoGLMAgent",
    "mai-ui": "distrl.workers.agents.gui_models:MAIUIAgent",
    "gui-owl": "distrl.workers.agents.gui_models:GUIOwlAgent",
    "holo": "distrl.workers.agents.gui_models:HoloAgent",
    "ui-venus": "distrl.workers.agents.gui_models:UIVenusAgent",
    "elements": "distrl.workers.agents.elements:ElementsAgent",
    "arm": "distrl.workers.agents.arm:ArmAgent",
}


def build_agent(config: AgentConfig) -> Agent:
    """The agent that `config` names, made with its options. Raises ConfigError or MissingDependency."""
    agent: Agent = build(choose(AGENTS, config.kind, config.import_path), config.options, "agent")
    check_methods(agent, Agent, config.import_path or config.kind)
    return agent
