"""Assembling a report: from evaluations, metrics and configuration to report.html, .json and .png."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distrl.configs.schema import Config
from distrl.evaluator.report import curve
from distrl.evaluator.report.compare import Arm, Row, SplitBlock, compare, headline
from distrl.evaluator.report.examples import choose_examples, choose_failures
from distrl.evaluator.report.explorer import Explorer, explore
from distrl.evaluator.report.facts import Fact, methods, run_facts
from distrl.evaluator.report.failures import PER_MODE, ModeTable, failure_data, failure_tables
from distrl.evaluator.report.freshness import Freshness, freshness, freshness_data
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, RunMetrics
from distrl.evaluator.report.mismatch import Mismatch, mismatch, mismatch_data
from distrl.evaluator.report.page import write_files
from distrl.evaluator.report.rewards import reward_data, reward_signals
from distrl.evaluator.report.viewer import Viewer, build_viewer
from distrl.evaluator.results import LoadedEvaluation, Subject, load_evaluation
from distrl.evaluator.statistics import EpisodeResult


@dataclass(frozen=True)
class Report:
    """All that report.html shows."""

    name: str
    subtitle: str
    tones: dict[str, str]
    arm_words: str
    headline: SplitBlock | None
    blocks: list[SplitBlock]
    facts: list[Fact]
    curves: list[curve.Chart]
    legend: list[curve.LegendItem]
    freshness: Freshness | None
    mismatch: Mismatch | None
    rewards: list[curve.Signal]
    signals: list[curve.Signal]
    viewer: Viewer
    failures: list[ModeTable]
    explorer: Explorer
    faulted: list[tuple[str, EpisodeResult]]
    methods: list[tuple[str, str]]
    config: str

    @property
    def paired(self) -> list[Row]:
        """The splits that were measured twice on the same instances."""
        return [block.overall for block in self.blocks if block.overall.paired is not None]

    @property
    def has_cost(self) -> bool:
        """Whether a model with a price acted."""
        return any(arm.summary.mean_cost for block in self.blocks for arm in block.overall.arms)

    @property
    def repeated(self) -> list[tuple[str, Arm]]:
        """What was measured with several seeds, by split."""
        rows = [block.overall for block in self.blocks]
        return [(row.name, arm) for row in rows for arm in row.arms if arm.repeats is not None]


def write_report(
    directory: Path,
    name: str,
    results: Mapping[str, Path],
    metrics: RunMetrics | None = None,
    config: Config | None = None,
    num_examples: int = 6,
    notice: str = "",
) -> Path:
    """Writes report.html, report.json and, when matplotlib is there, report.png into `directory`.

    Args:
        directory: Where to.
        name: The heading.
        results: Evaluation directories by label ("before", "after"), oldest first.
        metrics: Of the training run, if there was one.
        config: Of the run, if there was one.
        num_examples: How many tasks are shown step by step.
        notice: What is unusual about where the run stands; shown below the heading.

    Returns:
        The path of report.html.

    Raises:
        RunDirectoryError: If a directory holds no complete evaluation.
        MissingDependency: If jinja2 is not installed.
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


def build_report(
    name: str,
    loaded: Mapping[str, LoadedEvaluation],
    metrics: RunMetrics,
    config: Config | None,
    num_examples: int,
) -> Report:
    """Everything the page shows, in memory."""
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
        curves=curve.curve_charts(metrics, baseline),
        legend=curve.legend(metrics, baseline, labels[0] if labels else ""),
        freshness=freshness(metrics),
        mismatch=mismatch(metrics),
        rewards=reward_signals(metrics),
        signals=curve.signal_charts(metrics),
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
    """The numbers of a report as plain data: `report.json`."""
    curves = {column: asdict(curve.learning_curve(metrics, column)) for column in (EPISODES, ELAPSED)}
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
    """The suite, who acted, and the seeds, of the newest evaluation.

    The configuration says who acted only if a policy did that was trained by it.
    """
    newest = [one.evaluation for one in loaded.values()][-1:]
    parts = [f"Suite {one.spec.suite}" for one in newest]
    untrained = [who for one in newest if (who := _untrained(one.spec.subject))]
    if untrained:
        parts += untrained
    elif config is not None:
        parts += [
            f"algorithm {config.learner.algorithm}",
            f"policy {config.policy.model or config.policy.kind}",
            f"seed {config.seed}",
        ]
    for one in newest:
        if one.seeds:
            parts.append(f"measured with seeds {', '.join(map(str, one.seeds))}")
        elif untrained:
            parts.append(f"measured with seed {one.spec.seed}")
    return " · ".join(parts)


def _untrained(subject: Subject) -> str:
    """What acted, if that is no policy that was trained; else nothing."""
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
