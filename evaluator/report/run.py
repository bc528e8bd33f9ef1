"""Assembles a report: from evaluations, metrics and configuration to report.html and report.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.rundir import RunDir
from distrl.core.types import Spent
from distrl.evaluator.failure_modes import MODE_NOTES, MODE_WORDS
from distrl.evaluator.report import training
from distrl.evaluator.report.chart import short_number
from distrl.evaluator.report.compare import (
    EXAMPLES,
    SplitBlock,
    choose_examples,
    compare,
    failure_tables,
    headline,
)
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, UPDATES, RunMetrics
from distrl.evaluator.report.page import duration, write_files
from distrl.evaluator.report.viewer import build_viewer, explorer
from distrl.evaluator.results import Evaluation, LoadedEvaluation, Subject, load_evaluation
from distrl.evaluator.run_state import describe


def write_run_report(run_dir: Path, results: Mapping[str, Path]) -> Path:
    """Writes report.html and report.json of a training run into its directory.

    Args:
        results: Evaluation directories by label, oldest first, e.g. {"warm start": …, "after training": …}.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    run = RunDir.open(run_dir)
    config, metrics = load_config(run.config), RunMetrics.read(run.metrics)
    notice = describe(run, config, metrics.last(EPISODES) or 0.0)
    return write_report(run.path, config.name, results, metrics, config, notice)


def write_evaluation_report(
    config: Config, directory: Path, evaluation: Evaluation, baseline: Path | None = None
) -> Path:
    """Writes the report of an evaluation into its directory, compared with an earlier one, if given."""
    label = evaluation.spec.subject.label
    results: dict[str, Path] = {}
    if baseline is not None:
        name = load_evaluation(baseline).evaluation.spec.subject.label
        results[name if name != label else f"{name} (baseline)"] = baseline
    results[label] = directory
    return write_report(directory, config.name, results, None, config)


def write_report(
    directory: Path,
    name: str,
    results: Mapping[str, Path],
    metrics: RunMetrics | None = None,
    config: Config | None = None,
    notice: str = "",
) -> Path:
    """Writes report.html and report.json into `directory`.

    Args:
        results: Evaluation directories by label, oldest first.
        notice: A remark about the state of the run, shown below the heading.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    loaded = {label: load_evaluation(path) for label, path in results.items()}
    metrics, blocks, labels = metrics or RunMetrics([]), compare(loaded), list(loaded)
    episodes = {label: one.episodes for label, one in loaded.items()}
    viewer, top = build_viewer(loaded, choose_examples(episodes, EXAMPLES)), headline(blocks)
    facts = run_facts(loaded, metrics)
    subjects = {label: _words(one.evaluation.spec.subject) for label, one in loaded.items()}
    baseline: tuple[float | None, str] = None, ""
    if top is not None and len(top.overall.arms) > 1 and (start := top.overall.arms[0]).summary.episodes:
        baseline = start.summary.success_rate, start.label
    staleness = training.staleness_rows(metrics)
    shares = {name for row in staleness for name in row["shares"]}
    page = {
        "name": name,
        "subtitle": " · ".join(filter(None, (_subtitle(loaded, config), notice))),
        "tones": {label: "after" if label == labels[-1] else "before" for label in labels},
        "headline": top,
        "blocks": blocks,
        "repeated": [
            (b.overall.name, arm) for b in blocks for arm in b.overall.arms if arm.repeats is not None
        ],
        "has_cost": any(arm.summary.mean_cost for block in blocks for arm in block.overall.arms),
        "facts": facts,
        "curves": training.success_charts(metrics, *baseline),
        "staleness": staleness,
        "shares": {name: heading for name, heading in training.SHARES.items() if name in shares},
        "freshness": training.signal_charts(metrics, training.FRESHNESS_SIGNALS),
        "signals": training.signal_charts(metrics),
        "viewer": viewer,
        "failures": failure_tables(loaded, viewer.anchors),
        "modes": MODE_WORDS,
        "mode_notes": MODE_NOTES,
        "explorer": explorer(episodes, viewer.anchors, {label: str(path) for label, path in results.items()}),
        "faulted": [
            (label, episode)
            for label, one in loaded.items()
            for split in one.evaluation.splits.values()
            for episode in split.faulted
        ],
        "methods": [("Subjects", "; ".join(f"{label}: {who}" for label, who in subjects.items()))],
        "config": "" if config is None else config.to_yaml(),
    }
    data = {
        "name": name,
        "evaluations": {label: one.evaluation.model_dump(mode="json") for label, one in loaded.items()},
        "gains": _gains(blocks),
        "facts": {fact.key: fact.number for fact in facts},
        "learning_curve": {
            column: asdict(training.learning_curve(metrics, column)) for column in (EPISODES, ELAPSED)
        },
        "staleness": {"by_versions": staleness},
    }
    return write_files(directory, "report.html", name, page, data)


def _gains(blocks: Sequence[SplitBlock]) -> dict[str, Any]:
    """The gains as plain data, by split."""
    return {
        row.name: {
            "gain": row.gain,
            **row.gain_interval.model_dump(),
            "paired": row.paired.model_dump(mode="json") if row.paired is not None else None,
        }
        for row in (block.overall for block in blocks)
        if row.gain_interval is not None
    }


def _subtitle(loaded: Mapping[str, LoadedEvaluation], config: Config | None) -> str:
    """The suite, the actor and the seeds of the newest evaluation."""
    newest = [one.evaluation for one in loaded.values()][-1:]
    parts = [f"Suite {one.spec.suite}" for one in newest]
    untrained = [_words(one.spec.subject) for one in newest if not _is_trained(one.spec.subject)]
    parts += untrained
    if config is not None and not untrained:
        kind, policy = config.learner.algorithm.kind, config.policy.title
        parts += [f"algorithm {kind}", f"policy {policy}", f"seed {config.seed}"]
    for one in newest:
        if one.seeds:
            parts.append(f"measured with seeds {', '.join(map(str, one.seeds))}")
        elif untrained:
            parts.append(f"measured with seed {one.spec.seed}")
    return " · ".join(parts)


def _is_trained(subject: Subject) -> bool:
    return subject.kind in ("checkpoint", "served")


def _words(subject: Subject) -> str:
    """The actor in a few words."""
    return {
        "expert": "the scripted expert",
        "random": "random actions",
        "served": "a served policy",
        "prompted": f"the prompted model {subject.name}",
        "model": f"{subject.name}, untrained",
    }.get(subject.kind, f"checkpoint {subject.name}")


WEIGHT_VERSION, JUDGE = "versions", "judge"
ACTIONS, BATCH_SIZE = "workers/actions_per_s", "inference/batch_size"
STALENESS, WORST_STALENESS = "off_policy/staleness_mean", "off_policy/staleness_max"


@dataclass(frozen=True)
class Fact:
    """A tile. `key` and `number` are its entry in report.json."""

    key: str
    number: float
    label: str
    value: str
    note: str = ""


def run_facts(loaded: Mapping[str, LoadedEvaluation], metrics: RunMetrics) -> list[Fact]:
    """The facts that were measured."""
    facts = [*_training_facts(metrics), *_judge_facts(metrics)]
    evaluations = [one.evaluation for one in loaded.values()]
    if evaluations:
        newest = evaluations[-1]
        count = sum(split.overall.episodes for split in newest.splits.values())
        time = f" in {duration(newest.duration_s)}" if newest.duration_s else ""
        facts.append(Fact("evaluation_episodes", count, "Evaluation", f"{count}", f"episodes{time}"))
        asked = Spent.total(split.spent for split in newest.splits.values())
        if asked.calls:
            note = f"{asked.describe()}, faulted tries included"
            facts.append(Fact("model_cost", asked.cost, "Prompted model", _price(asked), note))
        if newest.spec.subject.kind == "served" and newest.weight_versions[1] >= 0:
            low, high = newest.weight_versions
            text = f"v{high}" if low == high else f"v{low}–v{high}"
            facts.append(Fact("evaluated_version", high, "Weights measured", text))
    return facts


def _training_facts(metrics: RunMetrics) -> list[Fact]:
    elapsed, episodes = metrics.last(ELAPSED), metrics.last(EPISODES)
    updates, staleness = metrics.last(UPDATES), metrics.series(STALENESS, UPDATES)
    facts = []
    if elapsed is not None:
        facts.append(Fact("duration_s", elapsed, "Training time", duration(elapsed)))
    if episodes is not None:
        speed = f"{60 * episodes / elapsed:.0f} per minute" if elapsed else ""
        facts.append(Fact("episodes", episodes, "Training episodes", f"{episodes:,.0f}", speed))
    actions = _training_mean(metrics, ACTIONS)
    if actions is not None:
        size = _training_mean(metrics, BATCH_SIZE)
        note = f"per second, in batches of {size:.1f}" if size else "per second"
        facts.append(Fact("actions_per_s", actions, "Actions", f"{actions:,.1f}", note))
    if updates is not None:
        facts.append(Fact("updates", updates, "Learner updates", f"{updates:,.0f}"))
    version = metrics.last(WEIGHT_VERSION)
    if version is not None:
        facts.append(Fact("weight_version", version, "Weights published", f"{version:,.0f}", "versions"))
    alarms = [bool(alarm) for _, alarm in metrics.series("mismatch/alarm", UPDATES)]
    if any(alarms):
        note = "a server may act with other weights than it reports"
        facts.append(Fact("mismatch_alarms", sum(alarms), "Mismatch alarms", f"{sum(alarms)}", note))
    if staleness:
        mean = fmean(value for _, value in staleness)
        worst = max((value for _, value in metrics.series(WORST_STALENESS, UPDATES)), default=mean)
        note = f"versions on average, {short_number(worst)} at most"
        facts.append(Fact("staleness", mean, "Staleness", f"{mean:.1f}", note))
    return facts


def _judge_facts(metrics: RunMetrics) -> list[Fact]:
    """The judge's verdicts and cost since the last start of the learner."""
    judged, unjudged = metrics.last(f"{JUDGE}/judged"), metrics.last(f"{JUDGE}/unjudged")
    if judged is None or unjudged is None or not judged + unjudged:
        return []
    note = f"episodes, and {unjudged:,.0f} unjudged"
    facts = [Fact("judged", judged, "Judged", f"{judged:,.0f}", note)]
    taken = {name: metrics.last(f"{JUDGE}/{name}") or 0.0 for name in Spent.model_fields}
    spent = Spent(cost=taken.pop("cost"), **{name: int(number) for name, number in taken.items()})
    if spent.calls:
        facts.append(Fact("judge_cost", spent.cost, "Judge", _price(spent), spent.describe()))
    return facts


def _price(spent: Spent) -> str:
    """The cost, or the tokens if there are no prices."""
    return f"{spent.cost:.4g}" if spent.cost else f"{spent.input_tokens + spent.output_tokens:,} tokens"


def _training_mean(metrics: RunMetrics, name: str) -> float | None:
    """The mean of a metric in rows with updates; in others the workers waited or demonstrated."""
    values = [row[name] for row in metrics.rows if name in row and row.get(UPDATES, 0.0) > 0.0]
    return fmean(values) if values else None
