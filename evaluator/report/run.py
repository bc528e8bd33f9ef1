"""Assembles a report: from evaluations, metrics and configuration to report.html, .json and .png."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distrl.configs.algorithms import ArideConfig
from distrl.configs.learner import LearnerConfig
from distrl.configs.schema import Config
from distrl.core.types import Spent
from distrl.evaluator.report import training
from distrl.evaluator.report.chart import short_number
from distrl.evaluator.report.compare import (
    EXAMPLES,
    PER_MODE,
    Arm,
    ModeTable,
    Row,
    SplitBlock,
    choose_examples,
    choose_failures,
    compare,
    failure_data,
    failure_tables,
    headline,
)
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, UPDATES, RunMetrics
from distrl.evaluator.report.page import duration, write_files
from distrl.evaluator.report.training import (
    Freshness,
    Mismatch,
    freshness,
    freshness_data,
    mismatch,
    mismatch_data,
    reward_data,
    reward_signals,
)
from distrl.evaluator.report.viewer import Explorer, Viewer, build_viewer, explore
from distrl.evaluator.results import Evaluation, LoadedEvaluation, Subject, load_evaluation
from distrl.evaluator.statistics import EpisodeResult


@dataclass(frozen=True)
class Report:
    """The contents of report.html."""

    name: str
    subtitle: str
    tones: dict[str, str]
    arm_words: str
    headline: SplitBlock | None
    blocks: list[SplitBlock]
    facts: list[Fact]
    curves: list[training.Chart]
    legend: list[training.LegendItem]
    freshness: Freshness | None
    mismatch: Mismatch | None
    rewards: list[training.Signal]
    signals: list[training.Signal]
    viewer: Viewer
    failures: list[ModeTable]
    explorer: Explorer
    faulted: list[tuple[str, EpisodeResult]]
    methods: list[tuple[str, str]]
    config: str

    @property
    def paired(self) -> list[Row]:
        """Splits that were measured twice on the same instances."""
        return [block.overall for block in self.blocks if block.overall.paired is not None]

    @property
    def has_cost(self) -> bool:
        """Whether a model with a price acted."""
        return any(arm.summary.mean_cost for block in self.blocks for arm in block.overall.arms)

    @property
    def repeated(self) -> list[tuple[str, Arm]]:
        """Arms that were measured with several seeds, by split."""
        rows = [block.overall for block in self.blocks]
        return [(row.name, arm) for row in rows for arm in row.arms if arm.repeats is not None]


def write_report(
    directory: Path,
    name: str,
    results: Mapping[str, Path],
    metrics: RunMetrics | None = None,
    config: Config | None = None,
    num_examples: int = EXAMPLES,
    notice: str = "",
) -> Path:
    """Writes report.html, report.json and, when matplotlib is there, report.png into `directory`.

    Args:
        directory: Where the files are written.
        name: The heading.
        results: Evaluation directories by label ("before", "after"), oldest first.
        metrics: The training run's, if there was one.
        config: The run's, if there was one.
        num_examples: How many tasks are shown step by step.
        notice: A remark about the state of the run, shown below the heading.

    Returns:
        The path of report.html.

    Raises:
        RunDirectoryError: A directory contains no complete evaluation.
        MissingDependency: jinja2 is not installed.
    """
    loaded = {label: load_evaluation(path) for label, path in results.items()}
    metrics = metrics or RunMetrics([])
    report = build_report(name, loaded, metrics, config, num_examples)
    if notice:
        report = replace(report, subtitle=" · ".join(filter(None, (report.subtitle, notice))))

    def draw_into(file: Path) -> None:
        from distrl.evaluator.report.drawing import draw

        draw(file, report, metrics)

    data = report_data(report, loaded, metrics)
    return write_files(directory, "report.html", name, report, data, draw_into)


def write_evaluation_report(
    config: Config, directory: Path, evaluation: Evaluation, baseline: Path | None = None
) -> Path:
    """Writes the report of an evaluation into its directory, compared with an earlier one, if given.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    label = evaluation.spec.subject.label
    results: dict[str, Path] = {}
    if baseline is not None:
        name = load_evaluation(baseline).evaluation.spec.subject.label
        results[name if name != label else f"{name} (baseline)"] = baseline
    results[label] = directory
    return write_report(directory, config.name, results, None, config, EXAMPLES)


def build_report(
    name: str,
    loaded: Mapping[str, LoadedEvaluation],
    metrics: RunMetrics,
    config: Config | None,
    num_examples: int,
) -> Report:
    """The contents of the page."""
    blocks = compare(loaded)
    episodes = {label: one.episodes for label, one in loaded.items()}
    choices = choose_examples(episodes, num_examples)
    choices += choose_failures(episodes, choices, PER_MODE if num_examples else 0)
    viewer = build_viewer(loaded, choices)
    top = headline(blocks)
    labels = list(loaded)
    baseline = None
    if top is not None and len(top.overall.arms) > 1:
        baseline = top.overall.arms[0].summary.success_rate
    return Report(
        name=name,
        subtitle=_subtitle(loaded, config),
        tones={label: "after" if label == labels[-1] else "before" for label in labels},
        arm_words=", then ".join(labels) if len(labels) > 1 else "",
        headline=top,
        blocks=blocks,
        facts=run_facts(loaded, metrics),
        curves=training.curve_charts(metrics, baseline),
        legend=training.legend(metrics, baseline, labels[0] if labels else ""),
        freshness=freshness(metrics),
        mismatch=mismatch(metrics),
        rewards=reward_signals(metrics),
        signals=training.signal_charts(metrics),
        viewer=viewer,
        failures=failure_tables(loaded, viewer.anchors),
        explorer=explore(loaded, viewer.anchors),
        faulted=[
            (label, episode)
            for label, one in loaded.items()
            for split in one.evaluation.splits.values()
            for episode in split.faulted
        ],
        methods=methods(loaded, config),
        config=_config_text(config),
    )


def report_data(
    report: Report, loaded: Mapping[str, LoadedEvaluation], metrics: RunMetrics
) -> dict[str, Any]:
    """The numbers of a report as plain data, for `report.json`."""
    curves = {column: asdict(training.learning_curve(metrics, column)) for column in (EPISODES, ELAPSED)}
    gains = {
        row.name: {
            "gain": row.gain,
            "low": row.gain_interval.low,
            "high": row.gain_interval.high,
            "paired": row.paired.model_dump(mode="json") if row.paired is not None else None,
        }
        for row in (block.overall for block in report.blocks)
        if row.gain_interval is not None
    }
    return {
        "name": report.name,
        "evaluations": {label: one.evaluation.model_dump(mode="json") for label, one in loaded.items()},
        "gains": gains,
        "failure_modes": failure_data(report.failures),
        "facts": {fact.key: fact.number for fact in report.facts},
        "learning_curve": curves,
        "staleness": freshness_data(metrics),
        "mismatch": mismatch_data(metrics),
        "rewards": reward_data(metrics),
    }


def _subtitle(loaded: Mapping[str, LoadedEvaluation], config: Config | None) -> str:
    """The suite, the actor and the seeds of the newest evaluation.

    The configuration names the actor only if it trained the policy that acted.
    """
    newest = [one.evaluation for one in loaded.values()][-1:]
    parts = [f"Suite {one.spec.suite}" for one in newest]
    untrained = [who for one in newest if (who := _untrained(one.spec.subject))]
    if untrained:
        parts += untrained
    elif config is not None:
        parts += [
            f"algorithm {config.learner.algorithm.kind}",
            f"policy {config.policy.title}",
            f"seed {config.seed}",
        ]
    for one in newest:
        if one.seeds:
            parts.append(f"measured with seeds {', '.join(map(str, one.seeds))}")
        elif untrained:
            parts.append(f"measured with seed {one.spec.seed}")
    return " · ".join(parts)


def _untrained(subject: Subject) -> str:
    """The actor, if it is not a trained policy; else ""."""
    if subject.kind == "prompted":
        return f"prompted model {subject.name}"
    if subject.kind == "model":
        return f"model {subject.name}, untrained"
    return f"agent {subject.kind}" if subject.kind in ("expert", "random") else ""


def _config_text(config: Config | None) -> str:
    if config is None:
        return ""
    from distrl.configs.load import dump_config

    return dump_config(config)


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
        spent = newest.duration_s
        facts.append(
            Fact("evaluation_episodes", count, "Evaluation", f"{count}", f"episodes in {duration(spent)}")
        )
        asked = Spent.total(split.spent for split in newest.splits.values())
        if asked.calls:
            note = f"{asked.describe()}, faulted tries included"
            facts.append(Fact("model_cost", asked.cost, "Prompted model", _price(asked), note))
        if newest.spec.subject.kind == "served" and newest.weight_versions[1] >= 0:
            facts.append(_version_fact(newest.weight_versions))
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
    if staleness:
        mean = math.fsum(value for _, value in staleness) / len(staleness)
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
    """The time-weighted mean of a metric over the time in which the policy was trained.

    A row covers the time since the previous row with this metric. Rows without an update are left out: the
    workers waited or demonstrated.
    """
    total, duration_s, before = 0.0, 0.0, 0.0
    for row in metrics.rows:
        if name in row:
            span_s, before = row[ELAPSED] - before, row[ELAPSED]
            if row.get(UPDATES, 0.0) > 0.0:
                total += span_s * row[name]
                duration_s += span_s
    return total / duration_s if duration_s > 0.0 else None


def _version_fact(versions: tuple[int, int]) -> Fact:
    low, high = versions
    text = f"v{high}" if low == high else f"v{low}–v{high}"
    return Fact("evaluated_version", high, "Weights measured", text)


def methods(loaded: Mapping[str, LoadedEvaluation], config: Config | None = None) -> list[tuple[str, str]]:
    """How the numbers were measured, as (heading, text)."""
    evaluations = [one.evaluation for one in loaded.values()]
    subjects = "; ".join(f"{label}: {_subject(one)}" for label, one in loaded.items())
    kinds = {one.spec.subject.kind for one in evaluations}
    is_trained = not kinds or bool(kinds & {"checkpoint", "served"})
    trained = [] if config is None or not is_trained else [("Training", _objective(config.learner))]
    return [
        ("Subjects", f"{subjects}."),
        *trained,
        ("Episodes", f"{_episodes(evaluations)} {_sampling(evaluations)}".strip()),
        (
            "Success",
            "A program checks the state behind the screen when the episode ends. Partial success does not "
            "count.",
        ),
        (
            "Intervals",
            "Success rates have Wilson's 95% score interval. Gains have Tango's interval with McNemar's "
            "exact test where both evaluations tried the same instances, otherwise Newcombe's. Repetitions "
            "of a task count as fewer trials the more similar their results are.",
        ),
        (
            "Faults",
            "An episode that an environment, a device or a server broke is tried again. If it breaks every "
            "time, it is listed separately. It never counts as a failure.",
        ),
        ("Repeated actions", "The share of actions that repeat the previous one on an unchanged screen."),
    ]  # fmt: skip


def _episodes(evaluations: Sequence[Evaluation]) -> str:
    """How often each task is tried, and from which start state."""
    if any(one.seeds for one in evaluations):
        return (
            "One episode per task and repetition. Each repetition draws its own start states, except where a "
            "task's seed determines the instruction."
        )
    return "One episode per task, each task started from its own seed."


def _sampling(evaluations: Sequence[Evaluation]) -> str:
    """How a policy chooses actions."""
    specs = [one.spec for one in evaluations if one.spec.subject.kind not in ("expert", "random")]
    temperatures = {spec.temperature for spec in specs}
    if evaluations and not specs:
        return ""
    if temperatures <= {0.0}:
        return "A policy takes the most probable action at every step."
    return f"Actions are sampled at temperature {', '.join(str(t) for t in sorted(temperatures))}."


def _objective(learner: LearnerConfig) -> str:
    """The objective and, for A-RIDE, its additions to the paper's."""
    aride = learner.algorithm
    if not isinstance(aride, ArideConfig):
        return f"Behaviour cloning of an expert, then {aride.kind} on the agent's own episodes."
    beyond = []
    if aride.policy_clip is not None:
        high = aride.policy_clip_high or aride.policy_clip
        beyond.append(f"PPO's clip ({aride.policy_clip:g} below, {high:g} above)")
    if aride.negative_weight < 1.0:
        beyond.append(f"negative advantages weighted by {aride.negative_weight:g}")
    if aride.entropy_by_failure:
        beyond.append("an entropy bonus where the critic expects failure")
    ends = f", with additions to the paper: {', '.join(beyond)}" if beyond else ""
    return f"Behaviour cloning of an expert, then A-RIDE on the agent's own episodes{ends}."


def _subject(one: LoadedEvaluation) -> str:
    subject = one.evaluation.spec.subject
    words = {"served": "a served policy", "expert": "the scripted expert", "random": "random actions"}
    if subject.kind == "prompted":
        return f"the prompted model {subject.name}"
    if subject.kind == "model":
        return f"{subject.name}, untrained"
    return words.get(subject.kind, f"checkpoint {subject.name}")
