"""What a collection of demonstrations must be, for a run to start from it."""

from __future__ import annotations

from typing import Any

from distrl.configs.schema import Config


def wanted_of(config: Config) -> dict[str, Any]:
    """The suite, the split and the agent that they must be of, for `core.demonstrations.check_dataset`.

    Other splits are for measuring: what is learnt from them measures nothing.
    """
    return {
        "suite": config.tasks.suite,
        "split": config.tasks.train,
        "agent": config.agent.model_dump(mode="json"),
    }
