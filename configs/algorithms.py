"""`learner.algorithm`: the objectives; what each key does is in docs/algorithms.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from distrl.configs.appo import AppoConfig
from distrl.configs.section import Count, Fraction, NonNegative, Positive, Section, one_of

ReturnsName = Literal["retrace", "vtrace", "gae", "mc"]


class ObjectiveConfig(Section):
    """Common keys of all objectives.

    `entropy` is the weight β of the entropy term. `invalid` is the weight λ_inv of the term against invalid
    actions. `rho_max` caps the ratio wherever it multiplies a term as a mere weight.
    """

    entropy: NonNegative = 0.01
    invalid: NonNegative = 0.1
    rho_max: Positive = 5.0


class CriticConfig(ObjectiveConfig):
    """Common keys of objectives with a critic.

    `gamma` is the discount γ of returns, and `lam` their λ. `entropy_by_failure` multiplies the entropy term
    by (1 − V(s_t)).
    """

    gamma: Fraction = 0.95
    lam: Fraction = 0.95
    entropy_by_failure: bool = False


class ActorCriticConfig(CriticConfig):
    """Common keys of objectives that weigh by ratios and normalised advantages.

    `ratio_level` selects whether the policy term weighs a whole action by one ratio, or each token by its
    own. `advantage_std_floor` is the least standard deviation that advantages are divided by, and null leaves
    advantages as they are. `failure_weight` multiplies the advantages of failed episodes.
    """

    ratio_level: Literal["action", "token"] = "action"
    advantage_std_floor: NonNegative | None = 0.1
    failure_weight: Fraction = 1.0


class ArideConfig(ActorCriticConfig):
    """A-RIDE (DistRL §5); names as in docs/algorithms.md.

    `correction` set to "none" counts every ratio but that of the validity term as 1, as a control: it learns
    as if its data were on-policy. `returns` selects the returns; all but "retrace" are for comparison.
    `policy_clip` is an addition of this project, ε: steps whose ratio has left [1 − ε, 1 + ε] in the
    direction of the advantage give no gradient, as in PPO; null means the paper's objective.
    `policy_clip_high` is a larger ε for the upper end. `critic` selects V(s) (`v`) or Q(s, a) (`q`), whose
    expectations are estimated from four drawn actions.
    """

    kind: Literal["aride"] = "aride"
    correction: Literal["ratio", "none"] = "ratio"
    returns: ReturnsName = "retrace"
    policy_clip: Positive | None = None
    policy_clip_high: Positive | None = None
    critic: Literal["v", "q"] = "v"

    @model_validator(mode="after")
    def _keys_fit(self) -> ArideConfig:
        if self.policy_clip_high is not None and self.policy_clip is None:
            raise ValueError("policy_clip_high has no effect without policy_clip; set policy_clip, too")
        if self.policy_clip_high is not None and self.policy_clip_high < (self.policy_clip or 0.0):
            raise ValueError("policy_clip_high is less than policy_clip; increase policy_clip_high")
        if self.correction == "none" and self.policy_clip is not None:
            raise ValueError("policy_clip has no effect with correction 'none'; set policy_clip to null")
        if self.critic == "q" and self.returns != "retrace":
            raise ValueError(
                f"critic 'q' does not support returns {self.returns!r}, which need state values; "
                "set returns to 'retrace', or critic to 'v'"
            )
        return self


class DigirlConfig(CriticConfig):
    """DigiRL: imitation of the better steps of the better trajectories.

    `top_fraction` is the share of the buffer's trajectories that is kept, the best by R − V_traj.
    `step_threshold` is the advantage above which a step of a kept trajectory is imitated. `baseline` also
    subtracts V(s_t) from the Monte-Carlo part of that advantage.
    """

    kind: Literal["digirl"] = "digirl"
    gamma: Fraction = 1.0
    lam: Fraction = 0.5
    top_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    step_threshold: float = Field(0.05, allow_inf_nan=False)
    baseline: bool = False


class ClipConfig(Section):
    """PPO's clip, and the number of gradient steps on a batch.

    `clip` is the ε of PPO, which clips ratios to [1 − ε, 1 + ε], and `clip_high` the ε of the upper end, if
    that is different. `dual_clip` is the c > 1 that bounds the objective of actions with a negative advantage
    from below by c·A. `decoupled` clips around the policy at the start of the batch instead of the behaviour
    policy, and weighs by the ratio of the two, at most `rho_max`; with one step per batch that is truncated
    importance sampling. `epochs` is the number of passes over a batch, and `minibatches` that of gradient
    steps in a pass, each on whole trajectories.
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
            raise ValueError("clip_high is less than clip; increase clip_high")
        return self


class PpoConfig(ActorCriticConfig, ClipConfig):
    """PPO, plain or decoupled (AReaL). `returns` selects the returns that advantages are computed from."""

    kind: Literal["ppo"] = "ppo"
    returns: ReturnsName = "gae"


class GipoConfig(ActorCriticConfig):
    """GIPO (AcceRL eq. 8–9): a Gaussian over the log-ratio instead of a clip.

    `returns` selects the returns that advantages are computed from. `sigma` is the width σ of the Gaussian.
    """

    kind: Literal["gipo"] = "gipo"
    returns: ReturnsName = "gae"
    ratio_level: Literal["action", "token"] = "token"
    sigma: Positive = 0.5


class GrpoConfig(ObjectiveConfig, ClipConfig):
    """GRPO as in slime, without a critic.

    `group_size` is the number K of episodes of one task that are leased as a group and enter replay
    together. `group_wait_s` is the longest time that a group waits for its members after the first one, in
    seconds. `per` selects a step or a whole trajectory as a sample; with "token" all tokens of a batch
    count alike (DAPO). `ratio_level` can also be "sequence", which takes the geometric mean of the ratios of
    a sample's tokens (GSPO; set `clip` to about 3e-4 and `clip_high` to 4e-4, because such ratios stay close
    to 1). `kl` is the weight of the KL divergence to the base model, for policies with `policy.lora`.
    """

    kind: Literal["grpo"] = "grpo"
    group_size: Annotated[int, Field(ge=2)] = 8
    group_wait_s: Positive = 120.0
    ratio_level: Literal["action", "token", "sequence"] = "token"
    clip_high: Positive | None = 0.28
    per: Literal["step", "trajectory", "token"] = "step"
    kl: NonNegative = 0.0


class VtraceConfig(ActorCriticConfig):
    """IMPALA's actor-critic.

    `rho_bar` is the threshold ρ̄ of the ratio in the policy term and in TD errors, and `c_bar` the threshold
    c̄ of the ratios in traces.
    """

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
    """An objective of your own (see docs/extending.md).

    `import_path` is a subclass of `distrl.learner.algorithms.base.Algorithm` as "pkg.mod:Name". `options`
    are the values of the model that the class names as its `options`. `group_size` is the number of episodes
    of one task that are leased as a group. `group_wait_s` is the longest time that a group waits for its
    members after the first one, in seconds.
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
