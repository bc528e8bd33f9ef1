"""A table as Markdown and as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distrl.configs.table import SuiteColumns, TableSpec
from distrl.core.errors import ConfigError
from distrl.core.files import write_atomically
from distrl.evaluator.failure_modes import MODE_WORDS, FailureMode
from distrl.evaluator.tables.cells import CellResult, Column, Key
from distrl.evaluator.tables.gains import find_gains

NOTHING = "–"


def table_data(
    spec: TableSpec, results: Mapping[Key, CellResult], missing: Sequence[str], command: str
) -> dict[str, Any]:
    """All of it as plain data."""
    gains = find_gains(spec, results)
    cells = [
        {"agent": key[0], "suite": key[1], "trained_on": key[2], "split": key[3], **result.data()}
        | ({"gain": gains[key].data()} if key in gains else {})
        for key, result in results.items()
    ]
    return {
        "name": spec.name,
        "command": command,
        "seeds": spec.seeds,
        "episodes": spec.episodes,
        "cells": cells,
        "not_measured": list(missing),
    }


def markdown(spec: TableSpec, results: Mapping[Key, CellResult], missing: Sequence[str], command: str) -> str:
    """The tables as Markdown, with the command that makes them."""
    count = "all" if spec.episodes is None else f"at most {spec.episodes}"
    seeds = ", ".join(map(str, spec.seeds))
    parts = [
        f"## {spec.title or spec.name}",
        f"```\n{command}\n```",
        f"Success in percent, mean ± standard deviation over the seeds {seeds}; {count} tasks of each split. "
        "The best of each column is bold.",
        _success(spec, results, _headings(spec.suites)),
    ]
    if spec.generalisation is not None:
        trained_on = spec.generalisation.trained_on
        headings = _headings(spec.generalisation.suites, trained_on)
        parts += [f"### Generalisation: trained on {trained_on}", _success(spec, results, headings)]
    parts += [*_gains(spec, results), *_levels(spec, results), *_failures(spec, results)]
    faulted = sum(len(result.result.faulted) for result in results.values())
    if faulted:
        parts.append(f"{faulted} episodes faulted again and again; they count neither way.")
    if missing:
        parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in missing))
    return "\n\n".join(parts) + "\n"


def _success(spec: TableSpec, results: Mapping[Key, CellResult], headings: Mapping[Column, str]) -> str:
    best = {column: _best(spec, results, column) for column in headings}
    has_kinds = any(agent.kind for agent in spec.agents.values())
    header = (["Type"] if has_kinds else []) + ["Agent", *headings.values()]
    rows = [header, ["---"] * (1 + has_kinds) + ["---:"] * len(headings)]
    kind = None
    for name, agent in spec.agents.items():
        cells = []
        for suite, trained_on, split in headings:
            found = results.get((name, suite, trained_on, split))
            text = NOTHING if found is None else found.text + _lacking(spec, found)
            is_best = found is not None and name in best[suite, trained_on, split]
            cells.append(f"**{text}**" if is_best else text)
        first = ([agent.kind if agent.kind != kind else ""] if has_kinds else []) + [
            f"*{name}*" if agent.is_reference else name
        ]
        kind = agent.kind
        rows.append(first + cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _lacking(spec: TableSpec, found: CellResult) -> str:
    """In brackets what a cell is not made of: seeds, and episodes that faulted; "" where it is of all."""
    parts = []
    if len(found.seeds) < len(spec.seeds):
        parts.append(f"{len(found.seeds)} of {len(spec.seeds)} seeds")
    if found.result.faulted:
        parts.append(f"n = {found.result.overall.episodes}, {len(found.result.faulted)} faulted")
    return f" ({'; '.join(parts)})" if parts else ""


def _best(spec: TableSpec, results: Mapping[Key, CellResult], column: Column) -> set[str]:
    keys: dict[str, Key] = {name: (name, *column) for name in spec.agents}
    means = {
        name: results[keys[name]].mean
        for name, agent in spec.agents.items()
        if not agent.is_reference and keys[name] in results
    }
    top = max(means.values(), default=0.0)
    return {name for name, mean in means.items() if mean == top > 0} if len(means) > 1 else set()


def _heading(suite: str, columns: SuiteColumns, split: str) -> str:
    """Of a column. A title of its own suffices where there is only one split."""
    is_alone = bool(columns.title) and len(columns.splits) == 1
    return columns.title if is_alone else f"{columns.title or suite} {split}"


def _headings(suites: Mapping[str, SuiteColumns], trained_on: str = "") -> dict[Column, str]:
    """The headings of columns, in order; `trained_on` is by default each suite itself."""
    return {
        (suite, trained_on or suite, split): _heading(suite, columns, split)
        for suite, columns in suites.items()
        for split in columns.splits
    }


def _gains(spec: TableSpec, results: Mapping[Key, CellResult]) -> Iterator[str]:
    """A table of gains, if any row has `over`."""
    found = find_gains(spec, results)
    headings = _headings(spec.suites)
    if spec.generalisation is not None:
        trained_on = spec.generalisation.trained_on
        others = _headings(spec.generalisation.suites, trained_on)
        headings |= {column: f"{title} (from {trained_on})" for column, title in others.items()}
    headings = {
        column: title for column, title in headings.items() if any(key[1:] == column for key in found)
    }
    if not headings:
        return
    rows = [["Agent", *headings.values()], ["---"] + ["---:"] * len(headings)]
    for name in dict.fromkeys(key[0] for key in found):
        gains = [found.get((name, *column)) for column in headings]
        texts = [NOTHING if gain is None else gain.text for gain in gains]
        rows.append([f"{name} over {spec.agents[name].over}", *texts])
    yield "### Gains"
    yield (
        "Points of success on the same tasks and seeds. In brackets two intervals of 95%: Tango's, about "
        "other tasks and these very seeds; and the t-interval of the mean over seeds, about other seeds."
    )
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _levels(spec: TableSpec, results: Mapping[Key, CellResult]) -> Iterator[str]:
    """A table of success by level of difficulty for each suite that has levels, on its last split."""
    for suite, columns in spec.suites.items():
        split = columns.splits[-1]
        found = {name: results.get((name, suite, suite, split)) for name in spec.agents}
        cells = {name: cell.result.levels for name, cell in found.items() if cell and cell.result.levels}
        levels = sorted({level for by_level in cells.values() for level in by_level})
        if not levels:
            continue
        rows = [["Agent", *(f"level {level}" for level in levels)], ["---"] + ["---:"] * len(levels)]
        for name, by_level in cells.items():
            rates = [f"{100 * by_level[n].success_rate:.1f}" if n in by_level else NOTHING for n in levels]
            rows.append([name, *rates])
        yield f"### By level on {_heading(suite, columns, split)}"
        yield "Success in percent, over all seeds."
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _failures(spec: TableSpec, results: Mapping[Key, CellResult]) -> Iterator[str]:
    """A table of failure modes for each suite, on its last split; agents that failed nowhere are left out."""
    for suite, columns in spec.suites.items():
        split, rows = columns.splits[-1], []
        for name in spec.agents:
            found = results.get((name, suite, suite, split))
            if found is None or not found.result.overall.modes:
                continue
            overall = found.result.overall
            shares = [overall.modes.get(mode, 0) / overall.episodes for mode in FailureMode]
            rows.append(f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")
        if rows:
            titles = " | ".join(MODE_WORDS[mode] for mode in FailureMode)
            rule = "|---|" + "---:|" * len(FailureMode)
            yield f"### Failure modes on {_heading(suite, columns, split)}"
            yield "Percent of all episodes."
            yield "\n".join([f"| Agent | {titles} |", rule, *rows])


def write_section(file: Path, name: str, text: str) -> None:
    """Writes `text` into a Markdown file between marks with the table's name; what else it holds stays.

    Raises:
        ConfigError: The file is no text, or has the first mark without the second.
    """
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
