"""Admission by staleness: how much may be leased, so that it is still fresh when it is learnt from."""

from __future__ import annotations

from distrl.configs.schema import LearnerConfig


def admits(config: LearnerConfig, finished: int, out: int, updates: float) -> bool:
    """Whether one more episode (a whole group of `group_size`) is trained on within `max_staleness` versions.

    Ahead of it are the episodes that are out and those that came in but have not had their updates; each
    brings `updates_per_episode` updates, and every `publish_every` updates make a version. Until replay holds
    `min_replay` episodes no update is made and nothing goes stale. A group counts with all its places from
    its first lease on, and one at a time is always admitted.

    Args:
        finished: Training episodes that came in, ever.
        out: Those that are leased, or whose lease is due to their group.
        updates: Those made so far, and those that never will be.
    """
    if finished + out < config.min_replay:
        return True
    paid = (finished + out + config.group_size) * config.updates_per_episode
    bound = max(config.max_staleness * config.publish_every, config.group_size * config.updates_per_episode)
    return paid - updates <= bound
