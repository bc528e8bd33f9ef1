"""What an agent's options must have in common with the policy that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.configs.schema import Config

CHAT_AGENTS = ("androidworld", "mobile-use")


def check_agent(config: Config) -> None:
    """Refuses an agent of this package whose prompts its policy cannot read, or reads at another size.

    Raises:
        ValueError: Names the key, its value and what to set.
    """
    agent, policy = config.agent, config.policy
    if agent.import_path is not None or agent.kind not in CHAT_AGENTS:
        return
    is_tiny = policy.import_path is None and policy.kind == "tiny"
    if is_tiny and agent.options.get("mode") == "incremental":
        raise ValueError(
            "agent.options.mode=incremental goes on with one token sequence, and policy.kind=tiny reads one "
            "prompt at a time; set agent.options.mode to history, or policy.kind to hub"
        )
    resize = agent.options.get("resize") or {}
    if agent.options.get("coordinates") != "absolute" or not isinstance(resize, dict):
        return
    for name in ("min_pixels", "max_pixels"):
        wanted = getattr(policy, name)
        if wanted is not None and resize.get(name) != wanted:
            raise ValueError(
                f"policy.{name}={wanted} decides at what size the model sees a picture, and the agent reads "
                f"its points at another, agent.options.resize.{name}={resize.get(name)}; set both to the same"
            )
