"""The agent, the one that asks a prompted model, and what its options must have in common with the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distrl.configs.section import Count, NonNegative, Positive, Section

if TYPE_CHECKING:
    from distrl.configs.schema import Config

CHAT_AGENTS = ("androidworld", "mobile-use")
ONE_PROMPT = {
    "tiny": "reads one prompt at a time",
    "autoui": "reads one prompt at a time: its T5's encoder reads in both directions, so that whatever is "
    "appended changes what it made of all tokens before",
}
"""Why policies have no sequence that goes on."""


class AgentConfig(Section):
    """The agent: a name of `distrl.workers.agents` or an `import_path`, and its keyword arguments."""

    kind: str = "autoui"
    import_path: str | None = None
    options: dict[str, Any] = {}


class PromptedConfig(Section):
    """The baseline `evaluate --agent prompted`: an OpenAI-compatible endpoint, and the agent that asks it.

    The key is in the environment variable `key_env`. A failed try is made again after `backoff_s`, the next
    one after twice as long. Prices are per million tokens; without them tokens are counted alone.
    """

    url: str = "https://api.openai.com/v1"
    model: str = ""
    key_env: str = "OPENAI_API_KEY"
    timeout_s: Positive = 120.0
    attempts: Count = 5
    backoff_s: Positive = 2.0
    max_new_tokens: Count = 512
    price_input: NonNegative = 0.0
    price_output: NonNegative = 0.0
    agent: AgentConfig = AgentConfig(kind="androidworld")


def check_agent(config: Config) -> None:
    """Refuses an agent of this package whose prompts its policy cannot read, or reads at another size.

    Raises:
        ValueError: Names the key, its value and what to set.
    """
    agent, policy = config.agent, config.policy
    if agent.import_path is not None:
        return
    kind = policy.kind
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
            "agent.options.mode=incremental continues one token sequence, but agent.kind=autoui writes a new "
            "prompt at each step, because its models cannot extend one; remove mode, or set agent.kind to "
            "mobile-use or androidworld and policy.kind to hub"
        )
    if agent.kind not in CHAT_AGENTS:
        return
    if kind in ONE_PROMPT and goes_on:
        raise ValueError(
            f"agent.options.mode=incremental continues one token sequence, but policy.kind={kind} "
            f"{ONE_PROMPT[kind]}; set agent.options.mode to history, or policy.kind to hub"
        )
    resize = agent.options.get("resize") or {}
    if agent.options.get("coordinates") != "absolute" or not isinstance(resize, dict):
        return
    for name in ("min_pixels", "max_pixels"):
        wanted = getattr(policy, name, None)
        if wanted is not None and resize.get(name) != wanted:
            raise ValueError(
                f"policy.{name}={wanted} decides at what size the model sees a picture, and the agent reads "
                f"its points at another, agent.options.resize.{name}={resize.get(name)}; set both to the same"
            )
