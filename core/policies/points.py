"""Whether an agent's points lie where the policy's model sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from distrl.core.image_sizes import Resize
from distrl.core.policies.base import Policy


class AgentOptions(Protocol):
    """What is needed of a `distrl.configs.schema.AgentConfig`; core does not depend on configs."""

    import_path: str | None
    options: dict[str, Any]


def check_agent_points(agent: AgentOptions, policy: Policy) -> None:
    """Refuses an agent of this package whose points are pixels of pictures that the model does not see so.

    An agent runs in workers, which need not have the model's files, so its options say how pictures are
    resized; whoever has the processor checks it.

    Raises:
        ConfigError: Saying what to set.
    """
    if agent.import_path is not None or agent.options.get("coordinates") != "absolute":
        return
    resize = agent.options.get("resize") or {}
    if isinstance(resize, Mapping):  # else the agent itself refuses it
        policy.check_points(Resize(**resize))
