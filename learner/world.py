"""Training of a learned model of the world, on what real episodes and demonstrations have shown."""

from __future__ import annotations

from statistics import fmean

from distrl.learner.context import Context


def learn_world(context: Context) -> dict[str, float]:
    """The steps of `world.updates` on lessons of the episodes in replay, all alike; none without a model.

    They belong to an update of the policy, or to one of cloning. Returns metrics.
    """
    config, ingest = context.config.world, context.ingest
    real = (*ingest.demonstrations, *ingest.episodes.values())
    known = [lesson for episode in real for lesson in episode.lessons]
    if not known:
        return {}
    losses = []
    for _ in range(config.updates):
        chosen = context.rng.choice(len(known), min(config.batch_size, len(known)))
        batch = context.batcher.steps([known[index] for index in chosen])
        losses.append(context.train_step.learn_world(batch, config.lr))
    return {"world/loss": fmean(losses), "world/lessons": float(len(known))}
