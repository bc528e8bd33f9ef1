"""The agent, the prompted baseline, and the rules that an agent's options and the policy must follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from distrl.configs.policy import ArmConfig, HubConfig
from distrl.configs.section import Count, NonNegative, Positive, Section
from distrl.core.published import coordinates_of, published

if TYPE_CHECKING:
    from distrl.configs.schema import Config

GUI_MODELS = ("ui-tars", "autoglm", "mai-ui", "gui-owl", "holo", "ui-venus")
CHAT_AGENTS = ("androidworld", "mobile-use", *GUI_MODELS)
OWN_TOKENS = {"ui-tars": ["<|box_start|>", "<|box_end|>"]}
"""Special tokens that are part of an agent's notation."""
ARM_SHAPE = {"chunk": 8, "axes": 4, "bins": 21, "picture": True}
"""What the policy `arm` has of its agent, by default; see `distrl.workers.agents.arm`."""
ONE_PROMPT = {
    "tiny": "reads one prompt at a time",
    "reader": "reads one prompt at a time",
    "autoui": "reads one prompt at a time, because the encoder of its T5 reads in both directions",
}
"""The reasons why policies cannot continue a token sequence."""


class AgentConfig(Section):
    """The agent, which writes prompts and parses answers.

    `kind` is the name of a built-in agent (docs/models.md): autoui, elements, mobile-use, androidworld,
    ui-tars, autoglm, mai-ui, gui-owl, holo, ui-venus, arm (docs/environments.md), or auto, which chooses the
    agent of a published model by the name of `policy.model`. `import_path` is your own class instead, as
    "pkg.mod:Name". `options` are the keyword arguments of the class.
    """

    kind: str = "autoui"
    import_path: str | None = None
    options: dict[str, Any] = {}


class PromptedAgentConfig(AgentConfig):
    """The prompted model's agent; see `agent`. `auto` uses the name `evaluate.prompted.model`."""

    kind: str = "androidworld"


class PromptedConfig(Section):
    """The baseline `distrl evaluate --agent prompted`: a model behind an OpenAI-compatible endpoint.

    `url` is the base of the endpoint's API, and `model` the model's name there. `key_env` is the environment
    variable with the API key. `timeout_s` is the longest time for an answer in seconds, and `attempts` the
    number of tries. `max_new_tokens` limits an answer. `price_input` and `price_output` are the prices of a
    million tokens; without them, only tokens are counted.
    """

    url: str = "https://api.openai.com/v1"
    model: str = ""
    key_env: str = "OPENAI_API_KEY"
    timeout_s: Positive = 120.0
    attempts: Count = 5
    max_new_tokens: Count = 512
    price_input: NonNegative = 0.0
    price_output: NonNegative = 0.0
    agent: PromptedAgentConfig = PromptedAgentConfig()


_Agent = TypeVar("_Agent", bound=AgentConfig)
_Policy = TypeVar("_Policy", ArmConfig, HubConfig)


def agent_of_model(agent: _Agent, model: str, within: str = "", names: str = "policy.model") -> _Agent:
    """`agent`, whose kind is auto, as that of a published model; ValueError if the name is unknown.

    Args:
        within: The section of the key `agent`, for errors; `names` is the key of `model`.
    """
    found = published(model)
    if found is None:
        raise ValueError(
            f"{within}agent.kind=auto finds no published model in the name of {names} {model!r}; set "
            f"{within}agent.kind to one of {', '.join(sorted(CHAT_AGENTS))}"
        )
    options = {**found.options, **agent.options}
    return agent.model_copy(update={"kind": found.agent, "options": options})


def settle_agent(config: Config) -> None:
    """Replaces `agent.kind: auto` by the agent of the model, and gives the policy the agent's own tokens, or
    its shape of motions."""
    prompted = config.evaluate.prompted
    if prompted.agent.kind == "auto" and prompted.agent.import_path is None:
        prompted.agent = agent_of_model(
            prompted.agent, prompted.model, "evaluate.prompted.", "evaluate.prompted.model"
        )
    agent, policy = config.agent, config.policy
    if agent.kind == "auto" and agent.import_path is None:
        config.agent = agent_of_model(agent, getattr(policy, "model", ""))
        options = config.agent.options
        bounds = {name: getattr(policy, name, None) for name in ("min_pixels", "max_pixels")}
        if coordinates_of(config.agent) == "absolute" and "resize" not in options and any(bounds.values()):
            options["resize"] = {name: bound for name, bound in bounds.items() if bound}
    if isinstance(policy, ArmConfig):
        shape = {**ARM_SHAPE, **(agent.options if agent.kind == "arm" else {})}
        shape["world"] = config.world.ensemble if config.world.model == "learned" else 0
        missing = {name: value for name, value in shape.items() if getattr(policy, name, "") is None}
        config.policy = _derived(policy, missing)
    if isinstance(policy, HubConfig) and policy.own_tokens is None and agent.import_path is None:
        config.policy = _derived(policy, {"own_tokens": OWN_TOKENS.get(config.agent.kind, [])})


def _derived(policy: _Policy, values: dict[str, Any]) -> _Policy:
    """`policy` with values that follow from the agent and do not count as set: others may follow later."""
    found = policy.model_copy(update=values)
    found.model_fields_set.difference_update(values)
    return found


def check_agent(config: Config) -> None:
    """Rejects a built-in agent whose prompts the policy cannot read, or reads at another size."""
    agent, policy, options = config.agent, config.policy, config.agent.options
    if agent.import_path is not None:
        return
    if policy.kind == "reader" and agent.kind != "elements":
        raise ValueError(
            f"policy.kind=reader reads only prompts of agent.kind elements, not {agent.kind}; set agent.kind "
            "to elements"
        )
    if (policy.kind == "arm" and agent.kind != "arm") or (
        agent.kind == "arm" and policy.kind in ("tiny", "reader", "autoui")
    ):
        raise ValueError(
            f"policy.kind={policy.kind} does not read prompts of agent.kind {agent.kind}; set both to arm, "
            "or policy.kind to hub"
        )
    sees = agent.kind == "autoui" or (agent.kind in CHAT_AGENTS and options.get("observe") != "elements")
    if sees and config.worker.screenshot_format == "none":
        raise ValueError(
            f"agent.kind={agent.kind} shows screenshots, but worker.screenshot_format is none; set it to jpeg"
        )
    if isinstance(policy, ArmConfig):
        _check_arm(config, policy)
    bins = getattr(policy, "action_bins", None)
    if bins is not None and (agent.kind != "arm" or bins != options.get("bins", ARM_SHAPE["bins"])):
        raise ValueError(
            f"policy.action_bins={bins} is for the numbers of agent.kind arm, with as many "
            "agent.options.bins; set it to these, or remove it"
        )
    if policy.kind in ("tiny", "autoui"):
        shows = "shows no picture, but policy.kind={} needs one; set {}"
        if agent.kind == "elements":
            raise ValueError("agent.kind=elements " + shows.format(policy.kind, "policy.kind to reader"))
        if agent.kind in CHAT_AGENTS and options.get("observe") == "elements":
            raise ValueError("agent.options.observe=elements " + shows.format(policy.kind, "it to both"))
    if agent.kind == "autoui" and policy.kind == "tiny":
        for name, only in (("notation", "compact"), ("images", 1)):
            if options.get(name, only) != only:
                raise ValueError(
                    f"policy.kind=tiny supports only agent.options.{name}={only}, not {options[name]}; "
                    "remove it, or set policy.kind to autoui"
                )
    if options.get("mode") == "incremental":
        reason = None
        if config.learner.demonstrations.dagger:
            raise ValueError(
                "agent.options.mode=incremental continues a sequence with the policy's own answers, but "
                "learner.demonstrations.dagger replaces them by the expert's; set dagger to 0"
            )
        if agent.kind == "autoui":
            reason = "agent.kind=autoui writes a new prompt at each step"
        elif agent.kind in CHAT_AGENTS and policy.kind in ONE_PROMPT:
            reason = f"policy.kind={policy.kind} {ONE_PROMPT[policy.kind]}"
        if reason is not None:
            raise ValueError(
                f"agent.options.mode=incremental continues one token sequence, but {reason}; set "
                "agent.options.mode to history, or use agent.kind mobile-use with policy.kind hub"
            )
    resize = options.get("resize") or {}
    if agent.kind in CHAT_AGENTS and coordinates_of(agent) == "absolute" and isinstance(resize, dict):
        for name in ("min_pixels", "max_pixels"):
            wanted = getattr(policy, name, None)
            if wanted is not None and resize.get(name) != wanted:
                raise ValueError(
                    f"policy.{name}={wanted} sets the size at which the model sees an image, but the agent "
                    f"reads points at agent.options.resize.{name}={resize.get(name)}; set both to the same "
                    "value"
                )


def _check_arm(config: Config, policy: ArmConfig) -> None:
    """Rejects an agent that does not write the policy's motions, and answers that are too short for them."""
    shape = {**ARM_SHAPE, **config.agent.options}
    for name in ARM_SHAPE:
        if getattr(policy, name) != shape[name]:
            raise ValueError(
                f"policy.{name}={getattr(policy, name)} is not agent.options.{name}={shape[name]}; remove "
                f"policy.{name}"
            )
    wanted = shape["chunk"] * shape["axes"]
    if config.learner.max_new_tokens < wanted:
        raise ValueError(
            f"learner.max_new_tokens={config.learner.max_new_tokens} is less than the {wanted} numbers of a "
            f"motion (agent.options chunk · axes); set it to {wanted}"
        )
