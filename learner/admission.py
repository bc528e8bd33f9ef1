"""Admission by staleness: how much may be leased, so that it is still fresh when it is learnt from."""

from __future__ import annotations

from distrl.configs.schema import LearnerConfig


def admits(config: LearnerConfig, finished: int, out: int, updates: int, forgiven: float) -> bool:
    """Whether one more episode (a whole group of `group_size`) is trained on within `max_staleness` versions.

    Ahead of it are the episodes that are out and those that came in but have not had their updates; each
    brings `updates_per_episode` updates, and every `publish_every` updates make a version. Until replay holds
    `min_replay` episodes no update is made and nothing goes stale. A group counts with all its places from
    its first lease on. When what lies ahead pays for less than one update the next is always admitted: that
    update would wait for it. (Such a rest is left when a group lost a member, or by a replay ratio that does
    not divide by a group.)

    Args:
        finished: Training episodes that came in, ever, but for those found to be of no use.
        out: Those that are leased, or whose lease is due to their group.
        updates: Those made so far.
        forgiven: Those that were paid for and never will be made.
    """
    if finished + out < config.min_replay:
        return True
    # In the order of `TaskScheduler._due`, so that rounding cannot part the two.
    ahead = (finished + out) * config.updates_per_episode - forgiven - updates
    own = config.group_size * config.updates_per_episode
    return ahead < 1.0 or ahead + own <= config.max_staleness * config.publish_every
