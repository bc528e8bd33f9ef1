"""`learner.algorithm`: the objectives; what each key does is in docs/algorithms.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from distrl.configs.appo import AppoConfig
from distrl.configs.section import Count, Fraction, NonNegative, Positive, Section, one_of

ReturnsName = Literal["retrace", "vtrace", "gae", "mc"]


class ObjectiveConfig(Section):
    """Common keys of all objectives.

    `rho_max` caps the ratio wherever it multiplies a term as a mere weight, and `log_ratio_clamp` the
    logarithms of ratios, against overflow. `entropy` and `invalid` multiply the terms of those names.
    """

    entropy: NonNegative = 0.01
    invalid: NonNegative = 0.1
    log_ratio_clamp: Positive = 20.0
    rho_max: Positive = 5.0


class RatioConfig(Section):
    """`ratio_level`: the policy term weighs a whole action by one ratio, or each of its tokens by its own."""

    ratio_level: Literal["action", "token"] = "action"


class CriticConfig(ObjectiveConfig):
    """Common keys of objectives with a critic.

    `gamma` discounts returns, and `lam` is their λ. With `entropy_by_failure` the entropy term weighs
    1 − V(s_t). `trajectory_loss` multiplies the loss of V_traj.
    """

    gamma: Fraction = 0.95
    lam: Fraction = 0.95
    entropy_by_failure: bool = False
    trajectory_loss: NonNegative = 0.5


class ActorCriticConfig(CriticConfig, RatioConfig):
    """Common keys of objectives that weigh by ratios and normalised advantages.

    `advantage_centre` subtracts the mean of the batch, and `advantage_std_floor` is the least standard
    deviation that advantages are divided by. `negative_weight` multiplies normalised advantages below 0.
    """

    advantage_centre: bool = True
    advantage_std_floor: NonNegative = 0.1
    negative_weight: Fraction = 1.0


class ArideConfig(ActorCriticConfig):
    """A-RIDE (DistRL §5); names as in docs/algorithms.md.

    `policy_clip` ε is our addition: steps whose ratio has left [1 − ε, 1 + ε] in the direction of the
    advantage give no gradient, as in PPO. Null is the paper's objective. `policy_clip_high` is a larger ε for
    the upper end. `returns` other than "retrace" are for comparison.

    `critic: q` learns Q(s, a) instead of V(s); expectations over actions are means of `q_samples` draws from
    the policy. `q_next: sampled` is the paper's equation to the letter, biased towards the behaviour policy.
    """

    kind: Literal["aride"] = "aride"
    returns: ReturnsName = "retrace"
    policy_clip: Positive | None = None
    policy_clip_high: Positive | None = None
    critic: Literal["v", "q"] = "v"
    q_samples: Count = 4
    q_next: Literal["expected", "sampled"] = "expected"

    @model_validator(mode="after")
    def _upper_end_needs_a_clip(self) -> ArideConfig:
        if self.policy_clip_high is not None and self.policy_clip is None:
            raise ValueError("policy_clip_high does nothing without policy_clip; set that too")
        if self.policy_clip_high is not None and self.policy_clip_high < (self.policy_clip or 0.0):
            raise ValueError("policy_clip_high is below policy_clip; the upper end is the wider one")
        return self

    @model_validator(mode="after")
    def _action_values_need_retrace(self) -> ArideConfig:
        if self.critic == "q" and self.returns != "retrace":
            raise ValueError(
                f"critic 'q' has no returns {self.returns!r}, which are of state values; "
                "set returns to 'retrace', or critic to 'v'"
            )
        return self


class DigirlConfig(CriticConfig):
    """DigiRL: imitation of the better steps of the better trajectories.

    Of each batch the `top_fraction` by R − V_traj is kept, and of those the steps whose advantage exceeds
    `step_threshold`. `baseline` subtracts V(s_t) from the Monte-Carlo part of that advantage, too.
    """

    kind: Literal["digirl"] = "digirl"
    gamma: Fraction = 1.0
    lam: Fraction = 0.5
    top_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    step_threshold: float = Field(0.05, allow_inf_nan=False)
    baseline: bool = False


class ClipConfig(Section):
    """PPO's clip, and how many gradient steps a batch is good for.

    `clip_high` is the upper end's ε, `clip` when null. `dual_clip` c bounds the objective of bad actions from
    below by c·A. `decoupled` clips around the policy at the start of the batch, not around the behaviour, and
    weighs by the behaviour, at most `rho_max`; with one step per batch that is truncated importance sampling.
    A batch gives `epochs` · `minibatches` steps; minibatches are made of whole trajectories.
    """

    clip: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    clip_high: Positive | None = None
    dual_clip: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] | None = None
    decoupled: bool = False
    epochs: Count = 1
    minibatches: Count = 1

    @model_validator(mode="after")
    def _upper_end_is_the_wider(self) -> ClipConfig:
        if self.clip_high is not None and self.clip_high < self.clip:
            raise ValueError("clip_high is below clip; the upper end is the wider one")
        return self


class PpoConfig(ActorCriticConfig, ClipConfig):
    """PPO, plain or decoupled (AReaL)."""

    kind: Literal["ppo"] = "ppo"
    returns: ReturnsName = "gae"


class GipoConfig(ActorCriticConfig):
    """GIPO (AcceRL eq. 8–9): a Gaussian of width `sigma` over the log-ratio instead of a clip."""

    kind: Literal["gipo"] = "gipo"
    returns: ReturnsName = "gae"
    ratio_level: Literal["action", "token"] = "token"
    sigma: Positive = 0.5


class GrpoConfig(ObjectiveConfig, RatioConfig, ClipConfig):
    """GRPO as in slime; `per` says what a sample is: a step, or a whole trajectory. No critic.

    `group_size` K episodes of one task are leased as a group and enter replay together, at the latest
    `group_wait_s` after the first of them arrived.
    """

    kind: Literal["grpo"] = "grpo"
    group_size: Annotated[int, Field(ge=2)] = 8
    group_wait_s: Positive = 120.0
    ratio_level: Literal["action", "token"] = "token"
    clip_high: Positive | None = 0.28
    per: Literal["step", "trajectory"] = "step"
    std_epsilon: Positive = 1e-6


class VtraceConfig(ActorCriticConfig):
    """IMPALA's actor-critic; `rho_bar` and `c_bar` are its thresholds."""

    kind: Literal["vtrace"] = "vtrace"
    lam: Fraction = 1.0
    rho_bar: Positive = 1.0
    c_bar: Positive = 1.0


class BcConfig(ObjectiveConfig):
    """Cloning of the agent's own episodes: of all (`bc`), or of the successful ones (`filtered-bc`)."""

    kind: Literal["bc", "filtered-bc"] = "bc"
    entropy: NonNegative = 0.0
    invalid: NonNegative = 0.0


class CustomConfig(Section):
    """An objective of your own: `import_path` names a subclass of `distrl.learner.algorithms.base.Algorithm`,
    and `options` are those of its own model. Its episodes come in groups of `group_size`.
    """

    kind: Literal["custom"] = "custom"
    import_path: str
    options: dict[str, Any] = {}
    group_size: Count = 1
    group_wait_s: Positive = 120.0


AlgorithmConfig = Annotated[
    ArideConfig
    | DigirlConfig
    | PpoConfig
    | GipoConfig
    | GrpoConfig
    | VtraceConfig
    | BcConfig
    | AppoConfig
    | CustomConfig,
    Field(discriminator="kind"),
    one_of("aride"),
]
