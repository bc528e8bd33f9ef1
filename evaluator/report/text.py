"""An evaluation's numbers as lines of text: what `distrl evaluate` prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distrl.core.errors import NothingCameIn
from distrl.evaluator.failure_modes import MODE_WORDS
from distrl.evaluator.report.compare import compare
from distrl.evaluator.report.page import duration, percent
from distrl.evaluator.results import Evaluation, SplitResult, load_evaluation
from distrl.evaluator.statistics import Summary


def number_lines(evaluation: Evaluation) -> list[str]:
    """A line per split, level of difficulty and template, and the failure modes."""
    return [line for name, split in evaluation.splits.items() for line in _split_lines(name, split)]


def _split_lines(name: str, split: SplitResult) -> list[str]:
    overall = split.overall
    lines = [_line(name, overall)]
    if overall.episodes:
        lines.append(f"  {_describe(overall)}")
    if split.repeats is not None:
        mean, sd = 100 * split.repeats.mean, 100 * split.repeats.sd
        lines.append(f"  {'over seeds':<22}  {mean:.1f} ± {sd:.1f}%, n = {len(split.repeats.seeds)}")
    lines += [_line(f"  level {level}", summary) for level, summary in split.levels.items()]
    templates: Mapping[str, Summary] = split.templates if len(split.templates) > 1 else {}
    lines += [_line(f"  {template}", summary) for template, summary in templates.items()]
    for mode, count in overall.modes.items():
        lines.append(f"  {MODE_WORDS[mode].lower()}: {count} ({percent(count / overall.episodes)}%)")
    if split.spent.calls:
        lines.append(f"  cost of the model: {split.spent.describe()}, faulted tries included")
    if split.num_unjudged:
        lines.append(f"  {split.num_unjudged} tasks without a verdict are not counted")
    if split.num_retries:
        lines.append(f"  {split.num_retries} faulted episodes were tried again")
    if split.faulted:
        lines.append(f"  {len(split.faulted)} tasks faulted in every try and are not counted")
    return lines


def _line(name: str, summary: Summary) -> str:
    if not summary.episodes:
        return f"{name:<24}  nothing measured"
    low, high = percent(summary.interval.low), percent(summary.interval.high)
    return (
        f"{name:<24}  {percent(summary.success_rate):>5}%  ({low}–{high}%)  "
        f"{summary.successes} of {summary.episodes}, {summary.mean_steps:.1f} steps"
    )


def _describe(summary: Summary) -> str:
    ratio = "" if summary.step_ratio is None else f"steps ÷ expert's {summary.step_ratio:.2f}, "
    invalid, repeated = percent(summary.invalid_rate), percent(summary.repeat_rate)
    time = f", {duration(summary.mean_duration_s)} an episode" if summary.mean_duration_s else ""
    return f"{ratio}invalid actions {invalid}%, repeated {repeated}%{time}"


def gain_lines(directory: Path, baseline: Path) -> list[str]:
    """How each split compares with the baseline's, in pairs where both tried the same instances."""
    loaded = {"baseline": load_evaluation(baseline), "this": load_evaluation(directory)}
    theirs, ours = (", ".join(one.evaluation.splits) for one in loaded.values())
    rows = [block.overall for block in compare(loaded)]
    if all(row.gain is None for row in rows):
        return [f"no gain: no split is measured in both the baseline ({theirs}) and this evaluation ({ours})"]
    lines = []
    for row in rows:
        if row.gain is None or row.gain_interval is None:
            continue
        low, high = 100 * row.gain_interval.low, 100 * row.gain_interval.high
        pairs = f"; {row.paired.gained} newly solved, {row.paired.lost} lost" if row.paired else ""
        unlike = f", {row.unlike}" if row.unlike else ""
        lines.append(
            f"{row.name} gains {100 * row.gain:+.1f} points ({low:+.1f} to {high:+.1f}){pairs}{unlike}"
        )
    return lines


def check_measured(evaluation: Evaluation) -> None:
    """Raises NothingCameIn if every task faulted in every try."""
    splits = evaluation.splits.values()
    faulted = [episode for split in splits for episode in split.faulted]
    if faulted and not any(split.overall.episodes or split.num_unjudged for split in splits):
        last = faulted[-1]
        rule = f"nothing was measured: all {len(faulted)} tasks faulted, the last by {last.fault.value}"
        detail = " ".join(last.fault_detail.split())
        raise NothingCameIn(f"{rule} ({detail}).", "Fix the cause and continue with --resume.")
