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

USED_KEYS = frozenset(
    {
        *("name", "runs_dir", "modules_dir", "seed", "env", "policy", "network", "metrics", "placement"),
        *("worker.slots", "local.workers", "evaluate.episodes", "evaluate.slots"),
        *("learner.algorithm", "learner.threads", "learner.max_minutes", "learner.lease_ttl_s"),
        *("learner.eval_episodes", "learner.keep_best"),
        *("learner.checkpoint_every", "learner.keep_checkpoints"),
    }
)
"""The sections and keys outside `learner.algorithm` that continuous control reads."""

VALIDATION_SEEDS, CONFIRMATION_SEEDS, TEST_SEEDS = 2**32, 2**33, 2**34
"""First seeds of measured episodes, by purpose. Training draws its seeds below 2³¹."""


class AppoConfig(Section):
    """APPO with worker gradients. Symbols as in docs/environments.md.

    In a round, a worker collects transitions with the newest weights, trains on them and sends the change of
    its weights, which the learner adds.

    `local_lr` is the worker's learning rate α_l. `global_lr` is the factor α_g by which the learner
    multiplies a change; null means α_l. `final_lr_fraction` is the fraction to which both rates fall
    linearly over the run (its environment steps or its time, whichever ends sooner). `num_steps` is the
    number of transitions in a round, in all environments of the worker together; `minibatch_size` that in a
    minibatch; `epochs` the number of passes over them. `target_kl` bounds how far the policy moves in a
    round: training stops at a KL divergence of 1.5 times this value.

    `gamma` is the discount γ of returns. `lam` is the λ of GAE; 0 is the paper's one-step error. `clip` is
    the ε to which ratios are clipped, [1 − ε, 1 + ε]. `value_weight` is the weight c of the critic's loss,
    and `entropy` the weight β of the entropy term. `grad_clip` is the largest norm of a gradient.

    `max_env_steps` is the number of environment steps after which the run ends. `stop_at_return` ends it
    when a policy reaches this mean return over 100 fresh episodes. `eval_every` is the number of environment
    steps from one measurement of the newest weights, over `learner.eval_episodes` episodes, to the next; 0
    means none.
    """

    kind: Literal["appo"] = "appo"
    local_lr: Positive = 3e-4
    global_lr: Positive | None = None
    final_lr_fraction: Fraction = 1.0
    num_steps: Count = 2048
    minibatch_size: Count = 64
    epochs: Count = 6
    gamma: Fraction = 0.99
    lam: Fraction = 0.95
    clip: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    target_kl: Positive | None = 0.03
    value_weight: NonNegative = 0.5
    entropy: NonNegative = 0.0
    grad_clip: Positive = 0.5
    max_env_steps: Count = 1_000_000
    eval_every: Annotated[int, Field(ge=0)] = 20_000
    stop_at_return: Annotated[float, Field(allow_inf_nan=False)] | None = None


def check_appo(config: Config) -> None:
    """Rejects incomplete configurations of continuous control."""
    learner, env, policy = config.learner, config.env, config.policy
    for key, found, kind in (
        ("env.kind", env.import_path or env.kind, ENV),
        ("policy.kind", policy.kind, POLICY),
    ):
        if isinstance(learner.algorithm, AppoConfig) and found != kind:
            raise ValueError(
                f"learner.algorithm={APPO} is for continuous control and needs {key}={kind}, but "
                f"{key} is {found}"
            )
        if not isinstance(learner.algorithm, AppoConfig) and found == kind:
            raise ValueError(
                f"{key}={kind} is for continuous control, which only learner.algorithm={APPO} learns; set "
                f"learner.algorithm to {APPO}, or change {key}"
            )
    if not isinstance(learner.algorithm, AppoConfig):
        return
    appo, slots = learner.algorithm, config.worker.slots
    if not isinstance(env.options.get("id"), str):
        raise ValueError(
            "env.kind=gym needs env.options.id, the name of an environment of gymnasium such as "
            "LunarLanderContinuous-v3"
        )
    if appo.num_steps % slots:
        raise ValueError(
            f"learner.algorithm.num_steps={appo.num_steps} is not a multiple of worker.slots={slots}, "
            "the number of environments that are stepped together; change one of the two"
        )
    if appo.minibatch_size > appo.num_steps:
        raise ValueError(
            f"learner.algorithm.minibatch_size={appo.minibatch_size} is larger than "
            f"num_steps={appo.num_steps}; decrease it"
        )
    for section, values in config.model_dump(exclude_defaults=True).items():
        keys = [f"{section}.{key}" for key in values] if isinstance(values, dict) and values else [section]
        for key in keys:
            if section not in USED_KEYS and key not in USED_KEYS:
                raise ValueError(f"{key} has no effect with learner.algorithm={APPO}; remove it")
