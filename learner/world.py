"""Training of a learned model of the world, on what real episodes and demonstrations have shown."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from distrl.learner.context import Context


def learn_world(context: Context, *number: int) -> dict[str, float]:
    """The steps of `world.updates` on lessons of the episodes in replay, all alike; none without a model.

    They belong to an update of the policy, or to one of cloning, whose `number` decides what they draw.
    Returns metrics.
    """
    config, ingest = context.config.world, context.ingest
    real = (*ingest.demonstrations, *ingest.episodes.values())
    known = [lesson for episode in real for lesson in episode.lessons]
    if not known:
        return {}
    rng, losses = np.random.default_rng([context.config.seed, *number]), []
    for _ in range(config.updates):
        chosen = rng.choice(len(known), min(config.batch_size, len(known)))
        batch = context.batcher.steps([known[index] for index in chosen])
        losses.append(context.train_step.learn_world(batch, config.lr))
    return {"world/loss": fmean(losses), "world/lessons": float(len(known))}
