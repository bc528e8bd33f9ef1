"""Continuous control: `learner.algorithm: appo`, and the keys that go with it (docs/environments.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from distrl.configs.section import Count, Fraction, NonNegative, Positive, Section

if TYPE_CHECKING:
    from distrl.configs.schema import Config

APPO = "appo"
"""The algorithm for continuous control, which has returns instead of tasks."""

ENV, POLICY = "gym", "gaussian"
"""The kinds of environment and policy that it needs, and that no other algorithm takes."""

VALIDATION_SEEDS, CONFIRMATION_SEEDS, TEST_SEEDS = 2**32, 2**33, 2**34
"""First seeds of measured episodes, by purpose. Training draws its seeds below 2³¹."""


class AppoConfig(Section):
    """APPO with worker gradients. Symbols as in docs/environments.md.

    In a round, a worker takes the newest weights, collects `num_steps` transitions (in all its environments
    together), trains on them for `epochs` in minibatches of `minibatch_size` at the rate `local_lr` (α_l)
    and sends the change. The learner adds it times `global_lr` (α_g; null: α_l, the change as it is). Both
    rates fall linearly to `final_lr_fraction` of themselves over `max_env_steps` or `learner.max_minutes`,
    whichever ends sooner. A round stops training when its policy has moved by 1.5 `target_kl`. With
    `staleness_weight: inverse` a change is divided by 1 + the number of versions that it is behind.

    `advantage: td` is the paper's one-step error, `gae` takes `lam`. `normalise_observations` and
    `scale_rewards` use statistics of all workers.

    The run ends after `max_env_steps`, `learner.max_minutes`, or when a policy's mean return is at
    `stop_at_return` over 100 fresh episodes. Every `eval_every` environment steps the newest weights are
    measured over `learner.eval_episodes` (0: never).
    """

    kind: Literal["appo"] = "appo"
    optimizer: Literal["adam", "sgd"] = "adam"
    local_lr: Positive = 3e-4
    global_lr: Positive | None = None
    final_lr_fraction: Fraction = 1.0
    num_steps: Count = 2048
    minibatch_size: Count = 64
    epochs: Count = 6
    gamma: Fraction = 0.99
    lam: Fraction = 0.95
    advantage: Literal["gae", "td"] = "gae"
    clip: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    target_kl: Positive | None = 0.03
    value_weight: NonNegative = 0.5
    entropy: NonNegative = 0.0
    grad_clip: Positive = 0.5
    staleness_weight: Literal["none", "inverse"] = "none"
    normalise_observations: bool = True
    scale_rewards: bool = True
    max_env_steps: Count = 1_000_000
    eval_every: Annotated[int, Field(ge=0)] = 20_000
    stop_at_return: Annotated[float, Field(allow_inf_nan=False)] | None = None


def check_appo(config: Config) -> None:
    """Rejects incomplete configurations of continuous control.

    Raises:
        ValueError: Names the key, its value and what to set.
    """
    learner, env, policy = config.learner, config.env, config.policy
    if not isinstance(learner.algorithm, AppoConfig):
        for key, found, kind in (
            ("env.kind", env.import_path or env.kind, ENV),
            ("policy.kind", policy.kind, POLICY),
        ):
            if found == kind:
                raise ValueError(
                    f"{key}={kind} is for continuous control, but learner.algorithm={learner.algorithm.kind} "
                    f"is for chats and screenshots; set learner.algorithm to {APPO}, or change {key}"
                )
        return
    for key, found, kind in (("env", env.import_path or env.kind, ENV), ("policy", policy.kind, POLICY)):
        if found != kind:
            raise ValueError(
                f"learner.algorithm={APPO} learns continuous control and needs {key}.kind={kind}, but "
                f"{key}.kind is {found}"
            )
    if not isinstance(env.options.get("id"), str):
        raise ValueError(
            "env.kind=gym needs env.options.id, the name of an environment of gymnasium such as "
            "LunarLanderContinuous-v3"
        )
    _check_sizes(config)
    if learner.num_processes > 1 or learner.engine != "torch":
        raise ValueError(
            f"with learner.algorithm={APPO} workers train; set learner.num_processes to 1 and "
            "learner.engine to torch"
        )


def _check_sizes(config: Config) -> None:
    appo, slots = config.learner.appo, config.worker.slots
    if appo.num_steps % slots:
        raise ValueError(
            f"learner.algorithm.num_steps={appo.num_steps} are all transitions of a round and must be a "
            f"multiple of worker.slots={slots}, the environments that are stepped together"
        )
    if appo.minibatch_size > appo.num_steps:
        raise ValueError(
            f"learner.algorithm.minibatch_size={appo.minibatch_size} is more than "
            f"num_steps={appo.num_steps}; "
            "make it smaller"
        )
