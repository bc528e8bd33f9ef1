"""Objectives as loops over steps and tokens, written line by line from their equations.

A `Frozen` holds what stands behind a stop-gradient; the functions take the rest, the policy's
log-probabilities and entropies, anew, so that their numerical derivative is what the gradient must be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt
from typing import Any

import slow_returns

Rows = list[list[float]]


def clamp(x: float, low: float, high: float) -> float:
    return max(low, min(high, x))


@dataclass
class Frozen:
    """N steps in B trajectories; per step: log π and log μ of real tokens, and so on."""

    pi: Rows
    mu: Rows
    proximal: Rows
    row: list[int]
    outcome: list[float]
    penalty: list[float]
    invalid: list[float]
    value: list[float]
    after: list[float]
    success: list[float]
    v_traj: list[float]
    group: list[tuple[float, float, int]]
    moments: tuple[float, float] | None = None
    reference: Rows | None = None

    @property
    def num_steps(self) -> int:
        return len(self.row)

    def steps(self, b: int) -> list[int]:
        return [n for n in range(self.num_steps) if self.row[n] == b]

    def rho(self, n: int) -> float:
        return exp(clamp(sum(self.pi[n]) - sum(self.mu[n]), -20.0, 20.0))

    def token_rho(self, n: int, j: int) -> float:
        return exp(clamp(self.pi[n][j] - self.mu[n][j], -20.0, 20.0))


def advantages(f: Frozen, config: Any, name: str) -> tuple[list[float], list[float]]:
    """Per step: A of outcome and penalties, and the critic's targets."""
    a, targets = [0.0] * f.num_steps, [0.0] * f.num_steps
    for b in range(len(f.success)):
        steps = f.steps(b)
        rho = [f.rho(n) for n in steps]
        values, zeros = [f.value[n] for n in steps], [0.0] * len(steps)
        more: dict[str, float] = {}
        if hasattr(config, "rho_bar"):
            more = {"rho_bar": config.rho_bar, "c_bar": config.c_bar}
        compute = slow_returns.RETURNS[name]
        good, goal = compute(
            [f.outcome[n] for n in steps], values, f.after[b], rho, config.gamma, config.lam, **more
        )
        bad, _ = compute([f.penalty[n] for n in steps], zeros, 0.0, rho, config.gamma, config.lam, **more)
        for i, n in enumerate(steps):
            a[n], targets[n] = good[i] + bad[i], goal[i]
    return a, targets


def moments(a: list[float]) -> tuple[float, float]:
    mean = sum(a) / len(a)
    return mean, sqrt(sum((x - mean) ** 2 for x in a) / len(a))


def normalised(
    f: Frozen, a: list[float], config: Any, over: tuple[float, float] | None = None
) -> list[float]:
    mean, spread = over or moments(a)
    out = a
    if config.advantage_std_floor is not None:
        out = [(x - mean) / max(spread, config.advantage_std_floor) for x in a]
    has_failed = [f.success[f.row[n]] <= 0.5 for n in range(f.num_steps)]
    return [config.failure_weight * x if bad else x for x, bad in zip(out, has_failed, strict=True)]


def entropy_and_validity(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    total = 0.0
    for n in range(f.num_steps):
        h = sum(entropy[n]) / len(entropy[n])
        failure = 1.0 - f.value[n] if getattr(config, "entropy_by_failure", False) else 1.0
        total -= config.entropy * failure * h
        total += config.invalid * f.invalid[n] * min(f.rho(n), config.rho_max) * sum(logp[n])
    return total / f.num_steps


def policy_gradient(f: Frozen, config: Any, logp: Rows, a: list[float], cap: float) -> float:
    clip = getattr(config, "policy_clip", None)

    def weight(rho: float, advantage: float) -> float:
        high = None if clip is None else config.policy_clip_high or clip
        is_beyond = clip is not None and (rho > 1 + high if advantage > 0 else rho < 1 - clip)
        return 0.0 if is_beyond else min(rho, cap) * advantage

    total = 0.0
    for n in range(f.num_steps):
        if config.ratio_level == "action":
            total -= weight(f.rho(n), a[n]) * sum(logp[n])
        else:
            for j in range(len(logp[n])):
                total -= weight(f.token_rho(n, j), a[n]) * logp[n][j]
    return total / f.num_steps


def aride(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    weighed = replace(f, mu=f.pi) if config.correction == "none" else f
    a = normalised(f, advantages(weighed, config, config.returns)[0], config)
    loss = policy_gradient(weighed, config, logp, a, config.rho_max)
    return loss + entropy_and_validity(f, config, logp, entropy)


def vtrace(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    a = normalised(f, advantages(f, config, "vtrace")[0], config)
    loss = policy_gradient(f, config, logp, a, config.rho_bar)
    return loss + entropy_and_validity(f, config, logp, entropy)


def clipped(config: Any, r: float, a: float) -> float:
    high = config.clip if config.clip_high is None else config.clip_high
    objective = min(r * a, clamp(r, 1.0 - config.clip, 1.0 + high) * a)
    if config.dual_clip is not None and a < 0:
        objective = max(objective, config.dual_clip * a)
    return objective


def surrogates(f: Frozen, config: Any, logp: Rows, a: list[float]) -> Rows:
    """Per step the objective of the whole action, or of each token."""
    out = []
    for n in range(f.num_steps):
        reference = f.proximal[n] if config.decoupled else f.mu[n]
        if config.ratio_level == "action":
            pairs = [(sum(logp[n]) - sum(reference), sum(reference) - sum(f.mu[n]))]
        elif config.ratio_level == "sequence":
            of = f.steps(f.row[n]) if config.per == "trajectory" else [n]
            near = f.proximal if config.decoupled else f.mu
            pi, prox, mu = ([x for k in of for x in rows[k]] for rows in (logp, near, f.mu))
            pairs = [((sum(pi) - sum(prox)) / len(pi), (sum(prox) - sum(mu)) / len(pi))]
        else:
            pairs = [(logp[n][j] - reference[j], reference[j] - f.mu[n][j]) for j in range(len(logp[n]))]
        row = []
        for log_r, log_behaviour in pairs:
            value = clipped(config, exp(clamp(log_r, -20.0, 20.0)), a[n])
            if config.decoupled:
                value *= min(exp(clamp(log_behaviour, -20.0, 20.0)), config.rho_max)
            row.append(value)
        out.append(row)
    return out


def ppo(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    a = normalised(f, advantages(f, config, config.returns)[0], config, f.moments)
    objective = surrogates(f, config, logp, a)
    loss = -sum(sum(objective[n]) for n in range(f.num_steps)) / f.num_steps
    return loss + entropy_and_validity(f, config, logp, entropy)


def gipo(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    a = normalised(f, advantages(f, config, config.returns)[0], config)
    total = 0.0
    for n in range(f.num_steps):
        if config.ratio_level == "action":
            trust = exp(-0.5 * (log(f.rho(n)) / config.sigma) ** 2)
            total -= trust * exp(sum(logp[n]) - sum(f.mu[n])) * a[n]
        else:
            for j in range(len(logp[n])):
                trust = exp(-0.5 * (log(f.token_rho(n, j)) / config.sigma) ** 2)
                total -= trust * exp(logp[n][j] - f.mu[n][j]) * a[n]
    return total / f.num_steps + entropy_and_validity(f, config, logp, entropy)


def grpo(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    a = []
    for n in range(f.num_steps):
        b = f.row[n]
        mean, std, count = f.group[b]
        total = sum(f.outcome[k] + f.penalty[k] for k in f.steps(b))
        a.append((total - mean) / (std + 1e-6) if count >= 2 and std > 0 else 0.0)
    objective = surrogates(f, config, logp, a)
    samples = [[n] for n in range(f.num_steps)]
    if config.per == "trajectory":
        samples = [f.steps(b) for b in range(len(f.success))]
    kl = [[0.0] * len(row) for row in logp]
    if config.kl:
        kl = [
            [exp(q - p) - (q - p) - 1.0 for p, q in zip(*pair, strict=True)]
            for pair in zip(logp, f.reference, strict=True)
        ]
    if config.per == "token":
        every = sum(len(row) for row in logp)
        loss = config.kl * sum(map(sum, kl)) / every
        for n in range(f.num_steps):  # an action counts as often as it has tokens
            loss -= sum(objective[n]) * len(logp[n]) / len(objective[n]) / every
        return loss + entropy_and_validity(f, config, logp, entropy)
    loss = 0.0
    for sample in samples:
        terms = [x for n in sample for x in objective[n]]
        penalty = [x for n in sample for x in kl[n]]
        loss -= (sum(terms) / len(terms) - config.kl * sum(penalty) / len(penalty)) / len(samples)
    return loss + entropy_and_validity(f, config, logp, entropy)


def digirl(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    scores = []
    for b in range(len(f.success)):
        scores.append(sum(f.outcome[n] + f.penalty[n] for n in f.steps(b)) - f.v_traj[b])
    order = sorted(range(len(scores)), key=lambda b: (-scores[b], b))
    kept = set(order[: ceil(config.top_fraction * len(scores))])
    loss = 0.0
    for b in kept:
        steps = f.steps(b)
        for i, n in enumerate(steps):
            left = len(steps) - 1 - i
            g = sum(
                config.gamma ** (k - i) * (f.outcome[m] + f.penalty[m]) for k, m in enumerate(steps) if k >= i
            )
            g += config.gamma ** (left + 1) * f.after[b]
            after = f.value[steps[i + 1]] if left else f.after[b]
            td = f.outcome[n] + f.penalty[n] + config.gamma * after - f.value[n]
            mc = g - f.value[n] if config.baseline else g
            if config.lam**left * mc + (1.0 - config.lam**left) * td > config.step_threshold:
                loss -= sum(logp[n]) / f.num_steps
    return loss + entropy_and_validity(f, config, logp, entropy)


def bc(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    loss = -sum(sum(logp[n]) for n in range(f.num_steps)) / f.num_steps
    return loss + entropy_and_validity(f, config, logp, entropy)


def filtered_bc(f: Frozen, config: Any, logp: Rows, entropy: Rows) -> float:
    loss = 0.0
    for n in range(f.num_steps):
        if f.success[f.row[n]] > 0:
            loss -= sum(logp[n]) / f.num_steps
    return loss + entropy_and_validity(f, config, logp, entropy)


LOSSES = {
    "aride": aride,
    "digirl": digirl,
    "ppo": ppo,
    "gipo": gipo,
    "grpo": grpo,
    "vtrace": vtrace,
    "bc": bc,
    "filtered-bc": filtered_bc,
}


def cross_entropy(p: float, y: float) -> float:
    y = clamp(y, 0.0, 1.0)
    return -(y * log(p) + (1.0 - y) * log(1.0 - p))


def critic(f: Frozen, config: Any, targets: list[float], p: list[float], p_traj: list[float]) -> float:
    """BCE of the steps' values `p` to frozen targets, and of V_traj to the outcome."""
    size, rows = f.num_steps, len(f.success)
    loss = sum(cross_entropy(p[n], targets[n]) for n in range(size)) / size
    ends = sum(cross_entropy(p_traj[b], f.success[b]) for b in range(rows)) / rows
    return loss + 0.5 * ends
