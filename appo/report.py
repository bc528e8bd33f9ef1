"""The report of a run of continuous control: return over steps and time, and the final measurement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distrl.appo.measure import Returns, load_returns
from distrl.configs.schema import Config
from distrl.evaluator.report.chart import Curve, curve_charts, short_number
from distrl.evaluator.report.metrics import ELAPSED, Point, RunMetrics
from distrl.evaluator.report.page import duration, write_files
from distrl.evaluator.report.run import Fact
from distrl.evaluator.report.training import SignalSpec, signal_charts

ENV_STEPS = "env_steps"
TRAIN, VALIDATION = "train/return", "eval/return"
SIGNALS: tuple[SignalSpec, ...] = (
    ("Critic's loss", "Mean squared error, in units of scaled rewards", (("loss/value", ""),)),
    ("Explained variance", "Of the returns, by the critic", (("value/explained_variance", ""),)),
    ("KL", "Between the policy that acted and the one in training, nats", (("off_policy/kl", ""),)),
    ("Clipped", "Share of transitions without gradient", (("off_policy/silenced_fraction", ""),)),
    ("Log of the standard deviation", "Of actions: the amount of exploration", (("train/log_std", ""),)),
    ("Staleness", "Versions behind, mean over accepted gradients", (("off_policy/staleness_mean", ""),)),
    ("Speed", "Environment steps a second, all workers", (("throughput/env_steps_per_s", ""),)),
)


def write_report(
    directory: Path,
    name: str,
    results: Mapping[str, Path],
    metrics: RunMetrics | None = None,
    config: Config | None = None,
) -> Path:
    """Writes report.html and report.json into `directory`, and returns the page. `results`: by label."""
    loaded = {label: load_returns(path) for label, path in results.items()}
    metrics = RunMetrics([]) if metrics is None else metrics
    target = config.learner.appo.stop_at_return if config is not None else None
    subtitle = [one.spec.env_id for one in loaded.values()][-1:]
    if config is not None:
        subtitle += [f"algorithm {config.learner.algorithm.kind}", f"seed {config.seed}"]
    facts = _facts(metrics)
    columns = (ENV_STEPS, "Steps", "environment steps"), (ELAPSED, "Time", "minutes since the start")
    labels = (
        "validation, greedy",
        "training, last 100 episodes",
        "learner.algorithm.stop_at_return",
    )
    curves = curve_charts(
        "Return", columns, lambda column: Curve(*_returns(metrics, column), []), labels, target
    )
    report = {
        "name": name,
        "subtitle": " · ".join(subtitle),
        "results": list(loaded.items()),
        "facts": facts,
        "curves": curves,
        "signals": signal_charts(metrics, SIGNALS),
        "methods": _methods(loaded, config),
        "config": config.to_yaml() if config is not None else "",
    }
    data = {
        "name": name,
        "evaluations": {label: result.model_dump(mode="json") for label, result in loaded.items()},
        "facts": {fact.key: fact.number for fact in facts},
        "learning_curve": {
            column: dict(zip(("train", "validation"), _returns(metrics, column), strict=True))
            for column in (ENV_STEPS, ELAPSED)
        },
    }

    return write_files(directory, "appo.html", name, report, data)


def _returns(metrics: RunMetrics, column: str) -> tuple[list[Point], list[Point]]:
    """Mean returns of training and of validation.

    Validations are at the time when the measured weights were published, not when the measurement ended.
    """
    rows = [row for row in metrics.rows if VALIDATION in row]
    return metrics.series(TRAIN, column), [(row[f"eval/{column}"], row[VALIDATION]) for row in rows]


def _facts(metrics: RunMetrics) -> list[Fact]:
    """The tiles; missing measurements are left out."""
    facts = []
    elapsed, steps = metrics.last(ELAPSED), metrics.last(ENV_STEPS)
    if elapsed is not None:
        facts.append(Fact("duration_s", elapsed, "Training time", duration(elapsed)))
    if steps is not None:
        speed = f"{steps / elapsed:,.0f} per second" if elapsed else ""
        facts.append(Fact("env_steps", steps, "Environment steps", f"{steps:,.0f}", speed))
    for key, name, label in (
        ("episodes", "train/episodes", "Training episodes"),
        ("gradients", "gradients/accepted", "Gradients"),
    ):
        value = metrics.last(name)
        if value is not None:
            facts.append(Fact(key, value, label, f"{value:,.0f}"))
    staleness = [value for _, value in metrics.series("off_policy/staleness_mean", ENV_STEPS)]
    if staleness:
        worst = max(value for _, value in metrics.series("off_policy/staleness_max", ENV_STEPS))
        mean = sum(staleness) / len(staleness)
        note = f"versions on average, {short_number(worst)} at most"
        facts.append(Fact("staleness", mean, "Staleness", f"{mean:.1f}", note))
    solved, at = metrics.last("solved/elapsed_s"), metrics.last("solved/env_steps")
    if solved is not None and at is not None:
        facts.append(Fact("solved_s", solved, "Solved after", duration(solved), f"{at:,.0f} steps"))
    return facts


def _methods(loaded: Mapping[str, Returns], config: Config | None) -> list[tuple[str, str]]:
    """How the numbers were measured, as (heading, text)."""
    subjects = [f"{label}: {one.spec.subject.name or 'random actions'}" for label, one in loaded.items()]
    training = "APPO: workers train by PPO on what they collect, and the learner adds up their changes."
    found = [("Training", training)] if config is not None else []
    if not loaded:
        return found
    return [
        ("Subject", f"{'; '.join(subjects)}."),
        *found,
        (
            "Episodes",
            "A policy takes its most probable action at every step. Each episode has its own seed, which "
            "neither training nor validation used. The return is the sum of the environment's own rewards.",
        ),
        (
            "Intervals",
            "Student's 95% interval of the mean over episodes. Other training seeds differ by more.",
        ),
    ]
