"""The results of `distrl table`: cells over seeds, gains of rows over others, table.md, results.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import ConfigError
from distrl.core.files import write_atomically
from distrl.evaluator.experiment_results import JSON_FILE, NOTHING, TABLE_FILE, Block, as_markdown
from distrl.evaluator.experiments import Cell, Experiment, Suite
from distrl.evaluator.failure_modes import MODE_WORDS, FailureMode
from distrl.evaluator.measure import pooled, seed_directory
from distrl.evaluator.results import SplitResult, load_evaluation
from distrl.evaluator.statistics import EpisodeResult, Interval, Paired, compare_pairs, t_interval

Key = tuple[str, str, str]
"""Agent, suite, split."""
Column = tuple[str, str]
"""The same without the agent."""


@dataclass(frozen=True)
class CellResult:
    """A split of a cell: its numbers over the measured seeds, and their episodes."""

    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    mean: float
    sd: float | None
    result: SplitResult
    episodes: tuple[EpisodeResult, ...]

    @property
    def text(self) -> str:
        """Mean and standard deviation in percent; the mean alone of a single seed."""
        return f"{100 * self.mean:.1f}" + ("" if self.sd is None else f" ± {100 * self.sd:.1f}")

    def data(self) -> dict[str, Any]:
        """As plain data."""
        overall = self.result.overall
        return {
            "seeds": self.seeds,
            "rates": self.rates,
            "mean": self.mean,
            "sd": self.sd,
            "interval": overall.interval.model_dump(),
            "episodes": overall.episodes,
            "faulted": len(self.result.faulted),
            "unjudged": self.result.num_unjudged,
            "levels": {level: found.success_rate for level, found in self.result.levels.items()},
            "step_ratio": overall.step_ratio,
            "failure_modes": {mode.value: count for mode, count in overall.modes.items()},
        }


def read_cells(cells: Sequence[Cell]) -> dict[Key, CellResult]:
    """Results so far; RunDirectoryError if settings differ. A seed of which nothing counts has no rate."""
    found = {}
    for cell in cells:
        seeds = cell.measured_seeds()
        if not seeds:
            continue
        cell.open_seeds()
        parts = [load_evaluation(seed_directory(cell.directory, seed)) for seed in seeds]
        evaluation = pooled(parts, seeds)
        for split in cell.splits:
            result = evaluation.splits[split]
            overall = [part.evaluation.splits[split].overall for part in parts]
            rates = {seed: one.success_rate for seed, one in zip(seeds, overall, strict=True) if one.episodes}
            sd = None if result.repeats is None else result.repeats.sd
            if rates:
                key, mean = (cell.agent, cell.suite, split), sum(rates.values()) / len(rates)
                episodes = tuple(e for part in parts for e in part.episodes if e.split == split)
                found[key] = CellResult(tuple(rates), tuple(rates.values()), mean, sd, result, episodes)
    return found


@dataclass(frozen=True)
class Gain:
    """Of a row over the row `over`, on the tasks and seeds that both have.

    Attributes:
        pairs: Episode by episode; its interval covers other tasks, with the same runs.
        seeds: The gain of each seed.
        over_seeds: The t-interval of their mean, which covers other runs; None if all are equal.
    """

    over: str
    pairs: Paired
    seeds: dict[int, float]
    over_seeds: Interval | None

    @property
    def text(self) -> str:
        """In points of success, with the intervals."""
        found = [interval for interval in (self.pairs.interval, self.over_seeds) if interval is not None]
        intervals = "; ".join(f"{100 * one.low:+.1f} to {100 * one.high:+.1f}" for one in found)
        return f"{100 * self.pairs.gain:+.1f} ({intervals})"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        t = self.over_seeds and self.over_seeds.model_dump()
        return {"over": self.over, "seeds": self.seeds, **self.pairs.model_dump(), "interval_over_seeds": t}


def find_gains(spec: Experiment, results: Mapping[Key, CellResult]) -> dict[Key, Gain]:
    """Of each row with `over`, where both rows have a task in common."""
    found = {}
    for key, result in results.items():
        over = spec.agents[key[0]].over
        before = None if over is None else results.get((over, *key[1:]))
        pairs = None if before is None else compare_pairs(before.episodes, result.episodes)
        if over is None or before is None or pairs is None:
            continue
        seeds = {}
        for seed in result.seeds:  # on the tasks that counted both times, as over all seeds
            first, last = ([e for e in one.episodes if e.seed == seed] for one in (before, result))
            if (pair := compare_pairs(first, last)) is not None:
                seeds[seed] = pair.gain
        interval = t_interval(list(seeds.values()), -1.0, 1.0)
        found[key] = Gain(over, pairs, seeds, interval)
    return found


def table_blocks(
    spec: Experiment, results: Mapping[Key, CellResult], missing: Sequence[str], command: str
) -> list[Block]:
    """The tables, with the command that makes them."""
    count = "all" if spec.episodes is None else f"at most {spec.episodes}"
    seeds = ", ".join(map(str, spec.seeds or ()))
    text = (
        f"Success in percent, mean ± standard deviation over the seeds {seeds}; {count} tasks of each split. "
        "The best of each column is bold."
    )
    headings = _headings(spec)
    blocks = [
        Block(f"## {spec.title or spec.name}", f"```\n{command}\n```"),
        _success(spec, results, headings, text=text) if headings else Block(text=text),
    ]
    for trained_on in dict.fromkeys(suite.trained_on for suite in spec.suites.values() if suite.trained_on):
        title = f"### Generalisation: trained on {trained_on}"
        blocks.append(_success(spec, results, _headings(spec, trained_on), title))
    blocks += [*_gains(spec, results), *_details(spec, results)]
    faulted = sum(len(result.result.faulted) for result in results.values())
    if faulted:
        blocks.append(Block(text=f"{faulted} episodes faulted in every attempt and are not counted."))
    if missing:
        blocks.append(Block(text="Not measured:\n\n" + "\n".join(f"- {line}" for line in missing)))
    return blocks


def write_table(
    spec: Experiment, cells: Sequence[Cell], directory: Path, command: str, file: Path | None = None
) -> list[Block]:
    """Writes table.md and results.json, and the table into `file` too."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for seed, reason in cell.missing.items():
            found.setdefault((cell.agent, reason), []).append(f"{cell.suite}, seed {seed}")
    missing = [f"{agent}: {reason} ({'; '.join(where)})" for (agent, reason), where in found.items()]
    results = read_cells(cells)
    gains = find_gains(spec, results)
    data = {
        "name": spec.name,
        "command": command,
        "seeds": spec.seeds,
        "episodes": spec.episodes,
        "cells": [
            dict(zip(("agent", "suite", "split"), key, strict=True))
            | result.data()
            | ({"gain": gains[key].data()} if key in gains else {})
            for key, result in results.items()
        ],
        "not_measured": missing,
    }
    blocks = table_blocks(spec, results, missing, command)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / TABLE_FILE, as_markdown(blocks))
    write_atomically(directory / JSON_FILE, json.dumps(data, indent=1))
    if file is not None:
        write_section(file, spec.name, as_markdown(blocks))
    return blocks


def _success(
    spec: Experiment,
    results: Mapping[Key, CellResult],
    headings: Mapping[Column, str],
    title: str = "",
    text: str = "",
) -> Block:
    best = {column: _best(spec, results, column) for column in headings}
    has_kinds = any(agent.kind for agent in spec.agents.values())
    rows, kind = [], None
    for name, agent in spec.agents.items():
        cells = []
        for column in headings:
            found = results.get((name, *column))
            cell = NOTHING if found is None else found.text + _lacking(spec, found)
            cells.append(f"**{cell}**" if found is not None and name in best[column] else cell)
        first = [agent.kind if agent.kind != kind else ""] if has_kinds else []
        rows.append([*first, f"*{name}*" if agent.is_reference else name, *cells])
        kind = agent.kind
    header = [*(["Type"] if has_kinds else []), "Agent", *headings.values()]
    return Block(title, text, header, rows, left=1 + has_kinds)


def _lacking(spec: Experiment, found: CellResult) -> str:
    """In brackets the missing seeds and the episodes that do not count; "" without any."""
    parts = []
    if len(found.seeds) < len(spec.seeds or ()):
        parts.append(f"{len(found.seeds)} of {len(spec.seeds or ())} seeds")
    others = {"faulted": len(found.result.faulted), "unjudged": found.result.num_unjudged}
    if counts := [f"{n} {what}" for what, n in others.items() if n]:
        parts.append(f"n = {found.result.overall.episodes}, {', '.join(counts)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _best(spec: Experiment, results: Mapping[Key, CellResult], column: Column) -> set[str]:
    found = {name: results.get((name, *column)) for name, one in spec.agents.items() if not one.is_reference}
    means = {name: result.mean for name, result in found.items() if result is not None}
    top = max(means.values(), default=0.0)
    return {name for name, mean in means.items() if mean == top > 0} if len(means) > 1 else set()


def _heading(name: str, suite: Suite, split: str) -> str:
    """Of a column. A title suffices where there is only one split."""
    is_alone = bool(suite.title) and len(suite.splits) == 1
    return suite.title if is_alone else f"{suite.title or name} {split}"


def _headings(spec: Experiment, trained_on: str = "") -> dict[Column, str]:
    """The headings of columns, in order: of the suites that agents are trained for, or of those elsewhere."""
    return {
        (name, split): _heading(name, suite, split)
        for name, suite in spec.suites.items()
        for split in suite.splits
        if suite.trained_on == trained_on
    }


def _gains(spec: Experiment, results: Mapping[Key, CellResult]) -> Iterator[Block]:
    """A table of gains, if any row has `over`."""
    found = find_gains(spec, results)
    headings = _headings(spec)
    for trained_on in dict.fromkeys(suite.trained_on for suite in spec.suites.values() if suite.trained_on):
        others = _headings(spec, trained_on).items()
        headings |= {column: f"{title} (from {trained_on})" for column, title in others}
    headings = {col: title for col, title in headings.items() if any(key[1:] == col for key in found)}
    rows = []
    for name in dict.fromkeys(key[0] for key in found):
        gains = [found.get((name, *column)) for column in headings]
        texts = [NOTHING if gain is None else gain.text for gain in gains]
        rows.append([f"{name} over {spec.agents[name].over}", *texts])
    text = (
        "Points of success on the same tasks and seeds. In brackets two intervals of 95%: Tango's, which "
        "covers other tasks with the same seeds; and the t-interval over seeds, which covers other seeds."
    )
    if rows:
        yield Block("### Gains", text, ["Agent", *headings.values()], rows)


def _details(spec: Experiment, results: Mapping[Key, CellResult]) -> Iterator[Block]:
    """Success by level of difficulty and failure modes for each suite that has them, on its last split."""
    for name, suite in spec.suites.items():
        split = suite.splits[-1]
        keys = {} if suite.trained_on else {agent: (agent, name, split) for agent in spec.agents}
        found = {agent: results[key].result for agent, key in keys.items() if key in results}
        levels = sorted({level for one in found.values() for level in one.levels}, key=int)
        rows = []
        for agent, one in found.items():
            rates = {level: f"{100 * of.success_rate:.1f}" for level, of in one.levels.items()}
            rows += [[agent, *(rates.get(level, NOTHING) for level in levels)]] if rates else []
        if rows:
            title, header = f"### By level on {_heading(name, suite, split)}", [f"level {n}" for n in levels]
            yield Block(title, "Success in percent, over all seeds.", ["Agent", *header], rows)
        rows = [
            [agent, *(f"{100 * one.modes.get(mode, 0) / one.episodes:.1f}" for mode in FailureMode)]
            for agent, one in ((agent, result.overall) for agent, result in found.items())
            if one.modes
        ]
        if rows:
            title = f"### Failure modes on {_heading(name, suite, split)}"
            header = ["Agent", *(MODE_WORDS[mode] for mode in FailureMode)]
            yield Block(title, "Percent of all episodes.", header, rows)


def write_section(file: Path, name: str, text: str) -> None:
    """Writes `text` into a Markdown file between marks with the table's name; the rest of it stays."""
    begin, end = f"<!-- distrl table {name} -->", f"<!-- end of table {name} -->"
    section = f"{begin}\n{text}{end}\n"
    try:
        old = file.read_text(encoding="utf-8") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text: {error}.", "Name a Markdown file.") from error
    if begin in old and end not in old:
        raise ConfigError(f"{file} lacks the line {end!r}.", "Restore it, or delete the table's section.")
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end) + r"\n?", re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old, count=1)
    else:
        new = (old.rstrip() + "\n\n" if old.strip() else "") + section
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, new)
