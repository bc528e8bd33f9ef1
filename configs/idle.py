"""Keys that were set and do nothing beside others: told, not refused, since sweeps set keys for all arms."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

    from distrl.configs.schema import Config


def idle_keys(config: Config) -> list[str]:
    """One sentence for each key that is not as ever and does nothing in this configuration."""
    learner, found = config.learner, []
    if not config.num_servers:
        reason = f"learner.algorithm is {learner.algorithm.kind!r}, which has no inference servers"
        return [
            f"network.{name} does nothing: {reason}."
            for name in ("act", "advertise")
            if _is_set(config.network, name)
        ]
    if learner.algorithm.kind in ("grpo", "bc", "filtered-bc") and _is_set(learner, "value_recompute"):
        reason = f"learner.algorithm {learner.algorithm.kind!r} has no critic and no values"
        found.append(f"learner.value_recompute does nothing: {reason}.")
    replay = learner.replay
    if replay.priority == "uniform":
        reason = "learner.replay.priority is 'uniform', which has no priorities"
        names = ["alpha", "weights", "refresh_every", "refresh_size"]
        found += [f"learner.replay.{name} does nothing: {reason}." for name in names if _is_set(replay, name)]
    if not replay.importance and _is_set(replay, "importance_start"):
        found.append("learner.replay.importance_start does nothing: learner.replay.importance is false.")
    draws = learner.updates_per_episode * learner.batch_trajectories
    if draws < 1.0 - 1e-9:
        found.append(
            "learner.max_staleness does nothing: learner.updates_per_episode · learner.batch_trajectories is "
            f"{draws:.2g}, less than one draw for each episode, so that they pile up in replay."
        )
    demonstrations = learner.demonstrations
    if demonstrations.dataset is not None:
        reason = "learner.demonstrations.dataset has demonstrations that were acted before"
        found += [
            f"learner.demonstrations.{name} does nothing: {reason}."
            for name in ("noise", "weights")
            if _is_set(demonstrations, name)
        ]
    return found


def _is_set(section: BaseModel, name: str) -> bool:
    """Whether a key is not as ever. (A run's own config.yaml holds all keys.)"""
    return bool(getattr(section, name) != type(section).model_fields[name].default)
