"""Whether an agent's points lie where the policy's model sees them."""

from __future__ import annotations

from distrl.core.image_sizes import Resize
from distrl.core.model_points import AgentOptions, coordinates_of
from distrl.core.policies.base import Policy


def check_agent_points(agent: AgentOptions, policy: Policy) -> None:
    """Refuses an agent of this package whose points are pixels of pictures that the model does not see so.

    An agent runs in workers, which need not have the model's files, so its options say how pictures are
    resized; whoever has the processor checks it. Points of a kind that such models do not write are
    warned of.

    Raises:
        ConfigError: Saying what to set.
    """
    coordinates = coordinates_of(agent)
    if coordinates is None:
        return
    try:
        resize = Resize(**(agent.options.get("resize") or {}))
    except (TypeError, ValueError):
        return  # the agent itself refuses it, with the rule
    policy.check_points(coordinates, resize)
