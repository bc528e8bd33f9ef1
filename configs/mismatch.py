"""The section `learner.mismatch`: servers and learner should give a token the same probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from distrl.configs.algorithms import ClipConfig, CustomConfig
from distrl.configs.appo import AppoConfig
from distrl.configs.section import Count, Fraction, Positive, Section

if TYPE_CHECKING:
    from distrl.configs.schema import LearnerConfig

WEIGHED = {
    "aride": "caps π/μ at learner.algorithm.rho_max",
    "gipo": "damps π/μ by learner.algorithm.sigma",
    "vtrace": "caps π/μ at learner.algorithm.rho_bar",
}
"""The objectives whose policy term has a bounded weight π/μ of its own."""


class MismatchConfig(Section):
    """What the learner computes by the very weights that a server names, against what the server computed.

    Measured every `every` updates. There is an alarm when the KL divergence of a token is above `alarm_kl`,
    or above `alarm_drift` times what is usual in this run, or when more than a share `alarm_share` of the
    ratios lie outside [0.9, 1.1]; `on_alarm: stop` ends the run then.

    `bound` limits what single ratios π_prox/μ do to the policy, π_prox being the policy at the start of a
    batch: `truncate` weighs by them, at most `max_ratio`; `mask` leaves out what lies outside [`min_ratio`,
    `max_ratio`], at `level` tokens, actions or whole trajectories (null: what the objective weighs by one
    ratio each).
    """

    every: Count = 5
    alarm_kl: Positive = 0.05
    alarm_share: Fraction = 0.25
    alarm_drift: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] = 10.0
    on_alarm: Literal["warn", "stop"] = "warn"
    bound: Literal["none", "truncate", "mask"] = "none"
    max_ratio: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] = 2.0
    min_ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    level: Literal["token", "action", "trajectory"] | None = None

    @model_validator(mode="after")
    def _a_bound_has_its_keys(self) -> MismatchConfig:
        if self.bound == "none":
            self.refuse_idle(("max_ratio", "min_ratio", "level"), "bound is 'none'")
        if self.bound == "truncate":
            self.refuse_idle(("min_ratio",), "bound 'truncate' only has an upper end")
            if self.level == "trajectory":
                raise ValueError("level 'trajectory' is for bound 'mask'; truncate at 'action' or 'token'")
        return self


def check_bound(learner: LearnerConfig) -> None:
    """That the bound does something for the algorithm, and nothing twice.

    Raises:
        ValueError: It does not.
    """
    section, bound = learner.algorithm, learner.mismatch.bound
    name = section.kind
    if bound == "none" or isinstance(section, AppoConfig | CustomConfig):
        return
    key = f"learner.mismatch.bound={bound}"
    if name in ("digirl", "bc", "filtered-bc"):
        raise ValueError(
            f"{key} does nothing with {name}, which imitates and weighs by no ratio; set it to 'none'"
        )
    if bound == "truncate" and name in WEIGHED:
        raise ValueError(
            f"{key} would correct twice: {name} {WEIGHED[name]} already; change that, or set bound to 'mask'"
        )
    if bound == "truncate" and isinstance(section, ClipConfig) and section.decoupled:
        raise ValueError(
            f"{key} would correct twice: learner.algorithm.decoupled already weighs by π_prox/μ, at most "
            f"learner.algorithm.rho_max; change that, or set decoupled to false"
        )
    if learner.mismatch.level == "token" and section.ratio_level == "action":
        raise ValueError(
            "learner.mismatch.level=token needs learner.algorithm.ratio_level 'token': an action that is "
            "weighed by one ratio is bounded as a whole"
        )
