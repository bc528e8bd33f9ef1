"""What an agent's options must have in common with the policy that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.configs.schema import Config

CHAT_AGENTS = ("androidworld", "mobile-use")
ONE_PROMPT = {
    "tiny": "reads one prompt at a time",
    "autoui": "reads one prompt at a time: its T5's encoder reads in both directions, so that whatever is "
    "appended changes what it made of all tokens before",
}
"""Why policies have no sequence that goes on."""


def check_agent(config: Config) -> None:
    """Refuses an agent of this package whose prompts its policy cannot read, or reads at another size.

    Raises:
        ValueError: Names the key, its value and what to set.
    """
    agent, policy = config.agent, config.policy
    if agent.import_path is not None:
        return
    kind = policy.kind if policy.import_path is None else None
    if agent.kind == "autoui" and kind == "tiny":
        for name, only in (("notation", "compact"), ("images", 1)):
            if agent.options.get(name, only) != only:
                raise ValueError(
                    f"policy.kind=tiny reads agent.options.{name}={only} only, not "
                    f"{agent.options[name]}; leave it out, or set policy.kind to autoui"
                )
    goes_on = agent.options.get("mode") == "incremental"
    if agent.kind == "autoui" and goes_on:
        raise ValueError(
            "agent.options.mode=incremental goes on with one token sequence, and agent.kind=autoui writes "
            "each prompt anew, for models whose prompt cannot grow; leave mode out, or set agent.kind to "
            "mobile-use or androidworld and policy.kind to hub"
        )
    if agent.kind not in CHAT_AGENTS:
        return
    if kind in ONE_PROMPT and goes_on:
        raise ValueError(
            f"agent.options.mode=incremental goes on with one token sequence, and policy.kind={kind} "
            f"{ONE_PROMPT[kind]}; set agent.options.mode to history, or policy.kind to hub"
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
