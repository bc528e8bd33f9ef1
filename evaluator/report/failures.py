"""Failure modes, as in the paper's figure 10: how often each is in each evaluation, with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.evaluator.failure_modes import MODE_NOTES, MODE_WORDS, FailureMode
from distrl.evaluator.results import LoadedEvaluation
from distrl.evaluator.statistics import EpisodeResult

MAX_LINKS = 3
PER_MODE = 1
"""Episodes that the viewer has at least of each mode of each evaluation, if there are any."""


@dataclass(frozen=True)
class ModeCell:
    """A mode in an evaluation: how many episodes, their share of all, and where some are on the page."""

    label: str
    mode: FailureMode
    count: int
    share: float
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModeRow:
    """A mode over all evaluations."""

    mode: FailureMode
    title: str
    note: str
    cells: tuple[ModeCell, ...]


@dataclass(frozen=True)
class ModeBar:
    """An evaluation's failures side by side; `unknown` are those that an older version did not classify."""

    label: str
    episodes: int
    failures: int
    unknown: int
    cells: tuple[ModeCell, ...]


@dataclass(frozen=True)
class ModeTable:
    """The failures of a split."""

    split: str
    rows: tuple[ModeRow, ...]
    bars: tuple[ModeBar, ...]


def failure_tables(loaded: Mapping[str, LoadedEvaluation], anchors: Mapping[str, str]) -> list[ModeTable]:
    """A table for each split in which anything failed.

    Args:
        loaded: Evaluations by label, oldest first.
        anchors: Where trajectories are on the page, by id.
    """
    splits = dict.fromkeys(split for one in loaded.values() for split in one.evaluation.splits)
    tables = []
    for split in splits:
        counted = {
            label: [e for e in one.episodes if e.split == split and e.counts]
            for label, one in loaded.items()
            if split in one.evaluation.splits
        }
        bars = tuple(_bar(label, episodes, anchors) for label, episodes in counted.items())
        if any(bar.failures for bar in bars):
            tables.append(ModeTable(split, _rows(bars), bars))
    return tables


def failure_data(tables: Sequence[ModeTable]) -> dict[str, Any]:
    """The same as plain data, by split and evaluation."""
    return {
        table.split: {
            bar.label: {
                "episodes": bar.episodes,
                "failures": bar.failures,
                "unknown": bar.unknown,
                "modes": {cell.mode.value: cell.count for cell in bar.cells},
            }
            for bar in table.bars
        }
        for table in tables
    }


def _bar(label: str, episodes: Sequence[EpisodeResult], anchors: Mapping[str, str]) -> ModeBar:
    failed = [episode for episode in episodes if not episode.success]
    cells = []
    for mode in FailureMode:
        found = [episode.trajectory_id for episode in failed if episode.mode is mode]
        links = tuple(anchors[one] for one in found if one in anchors)[:MAX_LINKS]
        share = len(found) / len(episodes) if episodes else 0.0
        cells.append(ModeCell(label, mode, len(found), share, links))
    unknown = sum(episode.mode is None for episode in failed)
    return ModeBar(label, len(episodes), len(failed), unknown, tuple(cells))


def _rows(bars: Sequence[ModeBar]) -> tuple[ModeRow, ...]:
    return tuple(
        ModeRow(mode, MODE_WORDS[mode], MODE_NOTES[mode], tuple(bar.cells[place] for bar in bars))
        for place, mode in enumerate(FailureMode)
    )
