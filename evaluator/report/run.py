"""Assembling a report: from evaluations, metrics and configuration to report.html, .json and .png."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distrl.configs.schema import Config
from distrl.core.importing import choose
from distrl.core.store import TrajectoryStore
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.report import curve
from distrl.evaluator.report.compare import SplitBlock, compare, headline
from distrl.evaluator.report.episodes import EpisodeView, episode_view
from distrl.evaluator.report.examples import Choice, choose_examples
from distrl.evaluator.report.facts import Fact, methods, run_facts
from distrl.evaluator.report.freshness import Freshness, freshness, freshness_data
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, RunMetrics
from distrl.evaluator.report.mismatch import Mismatch, mismatch, mismatch_data
from distrl.evaluator.report.page import write_files
from distrl.evaluator.report.rewards import reward_data, reward_signals
from distrl.evaluator.results import LoadedEvaluation, load_evaluation
from distrl.evaluator.statistics import EpisodeResult

SHOT_WIDTH = 276
"""Pixels of an embedded screenshot: twice its width on the page."""


@dataclass(frozen=True)
class Example:
    """A task with its episode in each evaluation."""

    goal: str
    split: str
    template: str
    kind: str
    tone: str
    arms: tuple[tuple[str, EpisodeView], ...]


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
    examples: list[Example]
    faulted: list[tuple[str, EpisodeResult]]
    methods: list[tuple[str, str]]
    config: str


def write_report(
    directory: Path,
    name: str,
    results: Mapping[str, Path],
    metrics: RunMetrics | None = None,
    config: Config | None = None,
    num_examples: int = 6,
) -> Path:
    """Writes report.html, report.json and, when matplotlib is there, report.png into `directory`.

    Args:
        directory: Where to.
        name: The heading.
        results: Evaluation directories by label ("before", "after"), oldest first.
        metrics: Of the training run, if there was one.
        config: Of the run, if there was one.
        num_examples: How many tasks are shown step by step.

    Returns:
        The path of report.html.

    Raises:
        RunDirectoryError: If a directory holds no complete evaluation.
        MissingDependency: If jinja2 is not installed.
    """
    loaded = {label: load_evaluation(path) for label, path in results.items()}
    metrics = metrics or RunMetrics([])
    report = build_report(name, loaded, metrics, config, num_examples)

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
    blocks = compare({label: one.evaluation for label, one in loaded.items()})
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
        examples=_examples(loaded, num_examples),
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
        block.overall.name: {
            "gain": block.overall.gain,
            "low": block.overall.gain_interval.low,
            "high": block.overall.gain_interval.high,
        }
        for block in report.blocks
        if block.overall.gain_interval is not None
    }
    return {
        "name": report.name,
        "evaluations": {label: one.evaluation.model_dump(mode="json") for label, one in loaded.items()},
        "gains": gains,
        "facts": {fact.key: fact.number for fact in report.facts},
        "learning_curve": curves,
        "staleness": freshness_data(metrics),
        "mismatch": mismatch_data(metrics),
        "rewards": reward_data(metrics),
    }


def _subtitle(loaded: Mapping[str, LoadedEvaluation], config: Config | None) -> str:
    parts = [f"Suite {one.evaluation.spec.suite}" for one in list(loaded.values())[-1:]]
    if config is not None:
        parts += [
            f"algorithm {config.learner.algorithm}",
            f"policy {config.policy.model or config.policy.kind}",
            f"seed {config.seed}",
        ]
    return " · ".join(parts)


def _config_text(config: Config | None) -> str:
    if config is None:
        return ""
    from distrl.configs.load import dump_config

    return dump_config(config)


def _examples(loaded: Mapping[str, LoadedEvaluation], limit: int) -> list[Example]:
    choices = choose_examples({label: one.episodes for label, one in loaded.items()}, limit)
    with contextlib.ExitStack() as stack:
        stores = {}
        for label, one in loaded.items():
            stores[label] = one.open_store()
            stack.callback(stores[label].close)
        return [_example(choice, loaded, stores) for choice in choices]


def _example(
    choice: Choice, loaded: Mapping[str, LoadedEvaluation], stores: Mapping[str, TrajectoryStore]
) -> Example:
    arms = []
    for label, episode in choice.episodes:
        trajectory = stores[label].get(episode.trajectory_id)
        images = stores[label].images(trajectory.image_digests)
        spec = loaded[label].evaluation.spec
        verdict = choose(JUDGES, spec.judge)().judge(trajectory, images)
        # A checkpoint is served under a version of its own, which says nothing about the run's versions.
        weights = Path(spec.subject.name).name if spec.subject.kind == "checkpoint" else None
        arms.append((label, episode_view(trajectory, images, verdict, SHOT_WIDTH, weights=weights)))
    first = arms[-1][1]
    return Example(
        goal=first.goal,
        split=first.split,
        template=first.template,
        kind=choice.kind,
        tone="good" if choice.episodes[-1][1].success else "bad",
        arms=tuple(arms),
    )
