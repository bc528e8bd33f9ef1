"""Returns of one trajectory as lists of floats, written line by line from the equations, as sums."""

from __future__ import annotations

from collections.abc import Sequence

Floats = Sequence[float]


def deltas(r: Floats, v: Floats, u: Floats, gamma: float) -> list[float]:
    """δ_t = r_t + γ u_{t+1} − v_t; `u` has one entry more than there are steps."""
    return [r[t] + gamma * u[t + 1] - v[t] for t in range(len(r))]


def product(values: Floats) -> float:
    out = 1.0
    for value in values:
        out *= value
    return out


def gae(r: Floats, v: Floats, after: float, gamma: float, lam: float) -> tuple[list[float], list[float]]:
    """A_t = Σ_l (γλ)^l δ_{t+l}; target V(s_t) + A_t."""
    d = deltas(r, v, [*v, after], gamma)
    a = [sum((gamma * lam) ** (k - t) * d[k] for k in range(t, len(d))) for t in range(len(d))]
    return a, [v[t] + a[t] for t in range(len(d))]


def monte_carlo(r: Floats, v: Floats, after: float, gamma: float) -> tuple[list[float], list[float]]:
    """G_t = Σ_l γ^l r_{t+l}, ending with the value after a cut; A_t = G_t − V(s_t)."""
    size = len(r)
    g = [
        sum(gamma ** (k - t) * r[k] for k in range(t, size)) + gamma ** (size - t) * after
        for t in range(size)
    ]
    return [g[t] - v[t] for t in range(size)], g


def retrace(
    r: Floats, v: Floats, after: float, rho: Floats, gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """Δ_t = Σ_k γ^{k−t} (Π_{i=t+1..k} λ min(1, ρ_i)) δ_k; target V + min(1, ρ_t) Δ_t."""
    d = deltas(r, v, [*v, after], gamma)
    c = [lam * min(1.0, x) for x in rho]
    a = [
        sum(gamma ** (k - t) * product(c[t + 1 : k + 1]) * d[k] for k in range(t, len(d)))
        for t in range(len(d))
    ]
    return a, [v[t] + min(1.0, rho[t]) * a[t] for t in range(len(d))]


def retrace_q(
    r: Floats,
    q: Floats,
    expected: Floats,
    after: float,
    rho: Floats,
    gamma: float,
    lam: float,
) -> tuple[list[float], list[float]]:
    """δ_t = r_t + γ E_π Q(s_{t+1}, ·) − Q(s_t, a_t); Q^ret = Q + Δ; A = Q^ret − E_π Q(s_t, ·)."""
    d = deltas(r, q, [*expected, after], gamma)
    c = [lam * min(1.0, x) for x in rho]
    target = [
        q[t] + sum(gamma ** (k - t) * product(c[t + 1 : k + 1]) * d[k] for k in range(t, len(d)))
        for t in range(len(d))
    ]
    return [target[t] - expected[t] for t in range(len(d))], target


def vtrace(
    r: Floats,
    v: Floats,
    after: float,
    rho: Floats,
    gamma: float,
    lam: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[list[float], list[float]]:
    """v_t = V(s_t) + Σ_k γ^{k−t} (Π_{i=t..k−1} c_i) min(ρ̄, ρ_k) δ_k; A_t = r_t + γ v_{t+1} − V(s_t)."""
    d = deltas(r, v, [*v, after], gamma)
    c = [lam * min(c_bar, x) for x in rho]
    size = len(d)
    target = [
        v[t] + sum(gamma ** (k - t) * product(c[t:k]) * min(rho_bar, rho[k]) * d[k] for k in range(t, size))
        for t in range(size)
    ]
    return [r[t] + gamma * [*target, after][t + 1] - v[t] for t in range(size)], target


RETURNS = {
    "retrace": retrace,
    "vtrace": vtrace,
    "gae": lambda r, v, after, rho, gamma, lam: gae(r, v, after, gamma, lam),
    "mc": lambda r, v, after, rho, gamma, lam: monte_carlo(r, v, after, gamma),
}
