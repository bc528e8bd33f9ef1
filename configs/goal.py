"""The condition that ends a run, and the metric that runs are compared by, for each kind of learning."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from distrl.configs.appo import AppoConfig

if TYPE_CHECKING:
    from distrl.configs.schema import Config


WARM_START = "warm start"


@dataclass(frozen=True)
class Goal:
    """The end of a run."""

    key: str  # of the configuration, which sets `amount`
    unit: str  # what is counted, in words
    counter: str  # its name in metrics, and in the note of the checkpoint "final"
    amount: int  # how many end the run
    first: int  # how many the first update needs
    updates: float | None  # how many updates `amount` makes; None if only the workers decide that
    target: float | None  # the mean return that ends the run before
    metric: str  # by default compared by `distrl sweep`
    curve: str  # and plotted
    measured: str  # what evaluations count
    start: str  # label in reports of the weights before reinforcement learning


def goal_of(config: Config) -> Goal:
    """The goal of a configuration."""
    learner, tasks = config.learner, config.tasks
    if isinstance(learner.algorithm, AppoConfig):
        appo = learner.appo
        return Goal(
            key="learner.algorithm.max_env_steps",
            unit="environment steps",
            counter="env_steps",
            amount=appo.max_env_steps,
            first=appo.num_steps,
            updates=None,
            target=appo.stop_at_return,
            metric="return",
            curve="eval/return",
            measured="episodes",
            start="before training",
        )
    return Goal(
        key="learner.episodes",
        unit="training episodes",
        counter="episodes",
        amount=learner.episodes,
        first=max(learner.min_replay, ceil(1.0 / learner.updates_per_episode)),
        updates=learner.episodes * learner.updates_per_episode,
        target=None,
        metric=f"{tasks.test[0]}/success",
        curve=f"eval/{tasks.validation}/success",
        measured="tasks",
        start=WARM_START,
    )
