"""The section `world`: a model that takes the environment's place in imagined episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from distrl.configs.section import Count, Positive, Section

if TYPE_CHECKING:
    from distrl.configs.schema import Config

REPEATABLE = ("phone", "two_screens", "metaworld")
"""The built-in environments that show the same screens after the same actions, and that nothing waits for."""


class WorldConfig(Section):
    """Imagined episodes, which continue from states of real training episodes for a few steps.

    `model` selects the model that they are played in: with `none` there are no imagined episodes, and
    `oracle` is the environment itself without its latency, which bounds what any model could achieve.
    `learned` is a model that the policy `arm` has beside its own network, for agents without pictures: an
    `ensemble` of networks, which learn from the real episodes in replay and from demonstrations. For each
    update of the policy, cloning included, they make `updates` on `batch_size` of these steps, at the rate
    `lr`.

    `horizon` is the largest number of steps of an imagined episode. `imagined_per_real` is the number of
    imagined episodes for each real training episode after the first `min_real`. `max_imagined_share` is the
    largest share of imagined trajectories in a batch. `potential` selects M of the rewards γ·M(o′) − M(o): 0
    (`none`), the task's `score`, or γ to the power of the scripted expert's `distance` from the goal.
    """

    model: Literal["none", "oracle", "learned"] = "none"
    horizon: Count = 5
    imagined_per_real: Positive = 1.0
    max_imagined_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    min_real: Count = 128
    potential: Literal["none", "score", "distance"] = "none"
    ensemble: Annotated[int, Field(ge=2, le=16)] = 3
    updates: Count = 4
    batch_size: Count = 256
    lr: Positive = 0.001

    @property
    def is_on(self) -> bool:
        """Whether there are imagined episodes."""
        return self.model != "none"

    @property
    def update_weight(self) -> float:
        """How many updates an imagined episode pays for, relative to a real one.

        As many as its draws take up: with it, real trajectories are drawn as often as without imagination.
        """
        share = self.max_imagined_share
        return min(1.0, share / (1.0 - share) / self.imagined_per_real)


def check_world(config: Config) -> None:
    """Raises ValueError where imagined episodes cannot be played or learnt from."""
    if not config.world.is_on:
        return
    env = config.env
    if config.world.model == "learned":
        policy = config.policy
        if policy.kind != "arm" or policy.picture or policy.world == 0 or config.world.potential != "none":
            raise ValueError(
                "world.model=learned needs policy.kind arm, an agent without pictures, and no potential; set "
                "agent.options.picture to false, policy.world to null and world.potential to none"
            )
        if config.learner.num_processes != 1 or config.learner.engine != "torch":
            raise ValueError(
                "world.model=learned is trained by one process; set learner.num_processes to 1 and "
                "learner.engine to torch"
            )
    elif config.devices.pool or (env.import_path is None and env.kind not in REPEATABLE):
        where = "devices.pool" if config.devices.pool else f"env.kind={env.kind}"
        raise ValueError(
            f"world.model=oracle needs an environment that repeats episodes exactly, which {where} does not; "
            "set world.model to none, or env.kind to phone with an empty devices.pool"
        )
    if config.world.potential == "distance" and config.env.kind == "metaworld":
        raise ValueError(
            "world.potential=distance needs an expert that can say how far it is from the goal, which that "
            "of env.kind=metaworld cannot; set world.potential to none"
        )
    if config.agent.options.get("mode") == "incremental":
        raise ValueError(
            "agent.options.mode=incremental continues a token sequence, whose start an imagined episode "
            "lacks; set agent.options.mode to history, or world.model to none"
        )
    if config.learner.group_size > 1 or config.learner.algorithm.kind == "appo":
        raise ValueError(
            f"learner.algorithm={config.learner.algorithm.kind} does not learn from imagined episodes; set "
            "it to an objective without groups, such as aride, or world.model to none"
        )
