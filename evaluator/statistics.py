"""Numbers of evaluations: success rates with 95% intervals, means over runs, gains on the same tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import fmean, stdev
from typing import TypeVar

from distrl.core.actions import ActionKind
from distrl.core.types import Fault, Number, Outcome, Record, Spent, TimeStep
from distrl.evaluator.failure_modes import FailureMode
from distrl.workers import rewards

_Part = TypeVar("_Part", str, int)
Z_95 = 1.959963984540054
"""The 0.975 quantile of the standard normal distribution."""


class Interval(Record):
    """A confidence interval [low, high]."""

    low: Number
    high: Number


class EpisodeResult(Record):
    """The numbers of one episode: one line of `episodes.jsonl`.

    Attributes:
        attempt: 0 for the first try; faulted episodes are tried again.
        score: The judge's, in [0, 1].
        num_repeats: Actions repeated on an unchanged screen.
        reward: The undiscounted sum of step rewards.
        oldest_version, newest_version: Weight versions that sampled tokens; -1 without a policy.
        seed: The repetition's; see `distrl.evaluator.evaluator.reseed`.
        digest: The `task_digest` of the task as it was measured.
        level: The task's parameter `level`, its difficulty; None in suites without levels.
        tokens_in, tokens_out: Prompt tokens that the policy read, and tokens that it sampled; for a model
            behind an endpoint as counted by the endpoint, over all `calls`, also failed ones.
        think_s, device_s: Seconds for deciding, and for the device to act and show its screen.
    """

    task_id: str
    template: str
    split: str
    goal: str = ""
    trajectory_id: str
    attempt: int = 0
    success: bool
    score: Number
    outcome: Outcome
    fault: Fault = Fault.NONE
    fault_detail: str = ""
    num_steps: int
    num_invalid: int
    num_repeats: int
    reward: Number
    duration_s: Number
    oldest_version: int = -1
    newest_version: int = -1
    seed: int = 0
    digest: str = ""
    level: int | None = None
    mode: FailureMode | None = None
    expert_steps: int | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    cost: Number = 0.0
    think_s: Number = 0.0
    device_s: Number = 0.0

    @property
    def spent(self) -> Spent:
        """The cost of a model behind an endpoint."""
        tokens = {"input_tokens": self.tokens_in, "output_tokens": self.tokens_out}
        return Spent(calls=self.calls, cost=self.cost, **tokens) if self.calls else Spent()

    @property
    def is_judged(self) -> bool:
        """Whether there is a verdict. An environment without a score gives none."""
        return self.success or self.outcome is not Outcome.UNJUDGED

    @property
    def counts(self) -> bool:
        """Whether it is a success or a failure: it did not fault, and it is judged."""
        return self.fault is Fault.NONE and self.is_judged


class Repeats(Record):
    """A success rate over repetitions, with the 95% `t_interval` of the mean, clipped to [0, 1]."""

    seeds: tuple[int, ...]
    rates: tuple[Number, ...]
    mean: Number
    sd: Number
    interval: Interval | None


class Summary(Record):
    """Numbers over a set of episodes that ended without a fault and were judged. All means are per episode.

    Attributes:
        interval: Wilson's 95% interval of the success rate; over several repetitions with `effective_trials`,
            because a repetition is less informative than a new task.
        invalid_rate, repeat_rate: Shares of all actions; repeats are on an unchanged screen.
        outcomes, modes: Episodes by outcome, and failures by mode.
        step_ratio: Steps of the agent / steps of the expert, over solved tasks where both are known.
    """

    episodes: int
    successes: int
    success_rate: Number
    interval: Interval
    mean_score: Number
    mean_steps: Number
    invalid_rate: Number
    repeat_rate: Number
    mean_reward: Number
    mean_duration_s: Number
    outcomes: dict[str, int]
    modes: dict[FailureMode, int] = {}
    step_ratio: Number | None = None
    mean_tokens_in: Number = 0.0
    mean_tokens_out: Number = 0.0
    mean_cost: Number = 0.0
    mean_think_s: Number = 0.0
    mean_device_s: Number = 0.0


def wilson(successes: float, trials: float, z: float = Z_95) -> Interval:
    """Wilson's score interval of a proportion.

    With p = k / n:

        centre = (p + z² / 2n) / (1 + z² / n)
        half   = z / (1 + z² / n) · sqrt(p (1 - p) / n + z² / 4n²)

    (Wilson 1927; Brown, Cai & DasGupta 2001 recommend it for small n.) Unlike the normal interval it stays in
    [0, 1] and does not collapse to a point at k = 0 or k = n.

    [0, 1] when n = 0.

    Args:
        successes, trials: k and n, 0 ≤ k ≤ n.
        z: The normal quantile; 1.96 gives 95%.
    """
    assert 0 <= successes <= trials
    if trials == 0:
        return Interval(low=0.0, high=1.0)
    p, n = successes / trials, trials
    scale = 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At k = 0 and k = n one bound is 0 or 1 exactly; rounding must not move it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Interval(low=low, high=high)


def wilson_by_task(tasks: Iterable[Collection[float]]) -> Interval:
    """Wilson's 95% interval of the share of 1s among `effective_trials`.

    Args:
        tasks: The trials of each task, 0 or 1; none is empty.
    """
    trials = [list(task) for task in tasks]
    n, k = sum(map(len, trials)), math.fsum(map(math.fsum, trials))
    worth = effective_trials(trials)
    return wilson(worth if k == n else k / n * worth, worth)


def newcombe(before: Summary, after: Summary) -> Interval:
    """Interval of the gain p₂ - p₁ between two independent proportions (Newcombe 1998, method 10).

    With Wilson's intervals [l₁, u₁] of p₁ and [l₂, u₂] of p₂:

        low  = (p₂ - p₁) - sqrt((p₂ - l₂)² + (u₁ - p₁)²)
        high = (p₂ - p₁) + sqrt((u₂ - p₂)² + (p₁ - l₁)²)

    Both policies usually try the same tasks, so this interval is wider than necessary.
    """
    p1, p2, i1, i2 = before.success_rate, after.success_rate, before.interval, after.interval
    gain = p2 - p1
    return Interval(
        low=gain - math.hypot(p2 - i2.low, i1.high - p1),
        high=gain + math.hypot(i2.high - p2, p1 - i1.low),
    )


def t_quantile(freedom: int) -> float:
    """The 0.975 quantile of Student's t with ν = `freedom` ≥ 1, by bisection of its distribution function.

    With θ = atan(t / √ν), P(|T| ≤ t) is a finite sum (Abramowitz & Stegun 26.7.3 and 26.7.4):

        ν odd:   2/π (θ + sin θ (cos θ + 2/3 cos³ θ + … + (2·4…(ν−3))/(3·5…(ν−2)) cos^(ν−2) θ))
        ν even:  sin θ (1 + 1/2 cos² θ + … + (1·3…(ν−3))/(2·4…(ν−2)) cos^(ν−2) θ)
    """
    low, high = 0.0, 16.0  # ν = 1 has 12.7, others less
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_inside(middle, freedom) < 0.95 else (low, middle)
    return high


def _t_inside(t: float, freedom: int) -> float:
    """P(|T| ≤ t)."""
    theta = math.atan(t / math.sqrt(freedom))
    cosine, is_odd = math.cos(theta), freedom % 2 == 1
    term = cosine if is_odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(3 if is_odd else 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    inside = math.sin(theta) * total
    return 2 / math.pi * (theta + inside) if is_odd else inside


def t_interval(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Interval | None:
    """The 95% interval of the mean of independent values, such as one per seed: mean ± t s / √n.

    It assumes nearly normal values, and is clipped to [low, high]. None unless two of them differ.
    """
    n = len(values)
    if len(set(values)) < 2:
        return None
    mean, half = fmean(values), t_quantile(n - 1) * stdev(values) / math.sqrt(n)
    return Interval(low=max(low, mean - half), high=min(high, mean + half))


def count_repeats(steps: Sequence[TimeStep]) -> int:
    """The number of actions that repeat the previous one on the same screen.

    Σ_t 1[n_t > 0], where n_t is the run length that the repetition penalty −κ·n_t uses
    (`distrl.workers.rewards.count_repeats`). Invalid actions are not counted.
    """
    return sum(
        rewards.count_repeats(steps[:t], step.action, step.observation.image) > 0
        for t, step in enumerate(steps)
        if step.action.kind != ActionKind.INVALID.value
    )


def summarise(episodes: Iterable[EpisodeResult]) -> Summary:
    """The numbers over `episodes`, without faulted and unjudged ones."""
    counted = [episode for episode in episodes if episode.counts]
    n, steps = len(counted), sum(episode.num_steps for episode in counted)
    successes = sum(episode.success for episode in counted)
    tasks: dict[str, list[float]] = {}
    for episode in counted:
        tasks.setdefault(episode.task_id, []).append(float(episode.success))
    paths = [(e.num_steps, e.expert_steps) for e in counted if e.success and e.expert_steps]

    def mean(name: str, over: int = n) -> float:
        return math.fsum(getattr(episode, name) for episode in counted) / over if over else 0.0

    return Summary(
        episodes=n,
        successes=successes,
        success_rate=mean("success"),
        interval=wilson_by_task(tasks.values()),
        mean_score=mean("score"),
        mean_steps=mean("num_steps"),
        invalid_rate=mean("num_invalid", steps),
        repeat_rate=mean("num_repeats", steps),
        mean_reward=mean("reward"),
        mean_duration_s=mean("duration_s"),
        outcomes=dict(sorted(Counter(episode.outcome.value for episode in counted).items())),
        modes=dict(sorted(Counter(episode.mode for episode in counted if episode.mode is not None).items())),
        step_ratio=sum(taken for taken, _ in paths) / sum(least for _, least in paths) if paths else None,
        mean_tokens_in=mean("tokens_in"),
        mean_tokens_out=mean("tokens_out"),
        mean_cost=mean("cost"),
        mean_think_s=mean("think_s"),
        mean_device_s=mean("device_s"),
    )


def grouped(
    episodes: Iterable[EpisodeResult], part: Callable[[EpisodeResult], _Part | None]
) -> dict[str, Summary]:
    """One summary per part, such as a template or a level, in their order; none for episodes without it."""
    groups: dict[_Part, list[EpisodeResult]] = {}
    for episode in episodes:
        if (name := part(episode)) is not None:
            groups.setdefault(name, []).append(episode)
    return {str(name): summarise(groups[name]) for name in sorted(groups)}


def over_repeats(counted: Sequence[EpisodeResult]) -> Repeats | None:
    """The success rates of repetitions; None if there is only one."""
    seeds = sorted({episode.seed for episode in counted})
    if len(seeds) < 2:
        return None
    rates = [fmean(e.success for e in counted if e.seed == seed) for seed in seeds]
    mean, sd, interval = fmean(rates), stdev(rates), t_interval(rates, 0.0, 1.0)
    return Repeats(seeds=tuple(seeds), rates=tuple(rates), mean=mean, sd=sd, interval=interval)


def effective_trials(tasks: Iterable[Collection[float]]) -> float:
    """The number of independent trials with the same information (Rao & Scott 1992, Biometrics 48: 577).

    Repeated trials of one task are not independent.

    With x_ij the trials of task i, n_i of them, S_i = Σ_j x_ij, n = Σ n_i and x̄ = Σ S_i / n, over m tasks:

        v_tasks  = m / (m − 1) · Σ_i (S_i − n_i x̄)² / n²      the variance of x̄ over tasks
        v_trials = Σ_ij (x_ij − x̄)² / n²                      the same if all trials were independent
        trials   = n · v_trials / v_tasks, but at least m and at most n

    An interval for independent trials then takes the counts times trials / n. The result is m if the trials
    of each task are all equal, and if nothing varies, so that nothing can be estimated.

    Args:
        tasks: The values of each task's trials: 0 or 1, or differences of such; none is empty.
    """
    trials = [list(task) for task in tasks]
    m, n = len(trials), sum(map(len, trials))
    if m < 2 or m == n:
        return float(m)
    mean = math.fsum(map(math.fsum, trials)) / n
    over_tasks = math.fsum((math.fsum(task) - len(task) * mean) ** 2 for task in trials) * m / (m - 1)
    over_trials = math.fsum((x - mean) ** 2 for task in trials for x in task)
    if not over_trials:
        return float(m)
    return n * over_trials / min(max(over_tasks, over_trials), over_trials * n / m)


class Paired(Record):
    """The same n instances before and after: solved both times, only before, only after, never.

    Attributes:
        gain: (gained − lost) / n, the difference of the success rates.
        interval: Tango's 95% score interval of the gain; over several repetitions with `effective_trials`.
        p_value: McNemar's exact test of gained and lost being equally likely; None over repetitions, which
            are not independent.
        unpaired: Instances that count in only one of the two, or whose task has changed in between.
    """

    both: int
    lost: int
    gained: int
    neither: int
    gain: Number
    interval: Interval
    p_value: Number | None
    unpaired: int = 0

    @property
    def n(self) -> int:
        """How many instances count in both."""
        return self.both + self.lost + self.gained + self.neither


def compare_pairs(before: Iterable[EpisodeResult], after: Iterable[EpisodeResult]) -> Paired | None:
    """The comparison over the instances, tasks with the seed of a repetition, that count in both.

    None if there is none.
    """
    before_by, after_by = ({instance_of(e): e for e in these if e.counts} for these in (before, after))
    common = {key for key in before_by.keys() & after_by.keys() if is_same(before_by[key], after_by[key])}
    if not common:
        return None
    first, last = ({key: found[key].success for key in common} for found in (before_by, after_by))
    both = sum(first[key] and last[key] for key in common)
    lost = sum(first[key] and not last[key] for key in common)
    gained = sum(last[key] and not first[key] for key in common)
    n = len(common)
    tasks: dict[str, list[float]] = {}
    for key in common:
        tasks.setdefault(key[0], []).append(float(last[key]) - float(first[key]))
    worth = effective_trials(tasks.values()) / n
    return Paired(
        both=both,
        lost=lost,
        gained=gained,
        neither=n - both - lost - gained,
        gain=(gained - lost) / n,
        interval=tango(gained * worth, lost * worth, n * worth),
        p_value=mcnemar(gained, lost) if n == len(tasks) else None,
        unpaired=len((before_by.keys() | after_by.keys()) - common),
    )


def instance_of(episode: EpisodeResult) -> tuple[str, int]:
    """The task and the seed of the repetition."""
    return episode.task_id, episode.seed


def is_same(first: EpisodeResult, second: EpisodeResult) -> bool:
    """Whether both are of one instance, whose task did not change in between."""
    return instance_of(first) == instance_of(second) and first.digest == second.digest


def mcnemar(gained: int, lost: int) -> float:
    """The two-sided p of McNemar's exact test.

    Under the null hypothesis an instance that changed sides is a fair coin, gained ~ B(gained + lost, ½):
    p = min(1, 2 P(X ≤ min(gained, lost))).
    """
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**n))


def tango(gained: float, lost: float, n: float, z: float = Z_95) -> Interval:
    """The score interval of a difference of paired proportions (Tango 1998, Statistics in Medicine 17: 891).

    With b = gained, c = lost, the interval is all Δ with |Z(Δ)| ≤ z, where

        Z(Δ) = (b − c − nΔ) / sqrt(n (2q + Δ (1 − Δ)))
        q    = (sqrt(B² − 4AC) − B) / 2A,   A = 2n,   B = −b − c + (2n − b + c) Δ,   C = −cΔ (1 − Δ)

    and q is the most likely probability of a loss if the gain is Δ. Z falls with Δ.
    """

    def score(delta: float) -> float:
        a, b = 2.0 * n, -gained - lost + (2 * n - gained + lost) * delta
        c = -lost * delta * (1.0 - delta)
        q = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
        variance = n * (2 * q + delta * (1.0 - delta))
        distance = gained - lost - n * delta
        if variance <= 0.0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / math.sqrt(variance)

    gain = (gained - lost) / n
    return Interval(low=_root(score, z, -1.0, gain), high=_root(score, -z, gain, 1.0))


def _root(score: Callable[[float], float], level: float, low: float, high: float) -> float:
    """Where the falling function `score` is `level`, between `low` and `high`."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if score(middle) > level else (low, middle)
    return (low + high) / 2
