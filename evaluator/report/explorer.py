"""The table of all episodes: plain data for the page's script, which filters, sorts and pages it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.core.logs import one_line
from distrl.core.types import Fault
from distrl.evaluator.failure_modes import MODE_WORDS
from distrl.evaluator.report.episodes import OUTCOME_WORDS
from distrl.evaluator.results import LoadedEvaluation
from distrl.evaluator.statistics import EpisodeResult

COLUMNS = (
    *("evaluation", "seed", "split", "template", "task", "goal"),
    *("ended", "mode", "steps", "expert", "reward", "seconds"),
)
"""What a row holds, in this order; then the trajectory's id, and its anchor on the page ("" without one)."""

MAX_GOAL = 160
"""Characters of a goal in the table; the episode itself shows all of it."""


@dataclass(frozen=True)
class Explorer:
    """The table. `data` is JSON without any `<`, so that it may stand inside a script element."""

    data: str
    num_episodes: int
    num_shown: int
    hint: str


def explorer(
    groups: Mapping[str, Iterable[EpisodeResult]], anchors: Mapping[str, str], places: Mapping[str, str]
) -> Explorer:
    """The table of episodes.

    Args:
        groups: Episodes by the label of their evaluation.
        anchors: Where trajectories are on the page, by id.
        places: What `distrl inspect` is given to find a label's episodes.
    """
    rows = [_row(label, episode, anchors) for label, episodes in groups.items() for episode in episodes]
    data = {
        "columns": COLUMNS,
        "modes": {mode.value: title for mode, title in MODE_WORDS.items()},
        "places": dict(places),
        "rows": rows,
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    hint = next(iter(places.values()), "")
    return Explorer(text, len(rows), sum(bool(row[-1]) for row in rows), hint)


def explore(loaded: Mapping[str, LoadedEvaluation], anchors: Mapping[str, str]) -> Explorer:
    """The table of evaluations' episodes."""
    groups = {label: one.episodes for label, one in loaded.items()}
    return explorer(groups, anchors, {label: str(one.directory) for label, one in loaded.items()})


def _row(label: str, episode: EpisodeResult, anchors: Mapping[str, str]) -> Sequence[Any]:
    return (
        label,
        episode.seed,
        episode.split,
        episode.template,
        episode.task_id,
        one_line(textwrap.shorten(episode.goal, MAX_GOAL, placeholder=" …")),
        _ended(episode),
        episode.mode.value if episode.mode is not None else "",
        episode.num_steps,
        episode.expert_steps,
        round(episode.reward, 3),
        round(episode.duration_s, 2),
        episode.trajectory_id[:16],
        anchors.get(episode.trajectory_id, ""),
    )


def _ended(episode: EpisodeResult) -> str:
    if episode.fault is not Fault.NONE:
        return f"{episode.fault.value} fault"
    if episode.success:
        return "solved"
    words = OUTCOME_WORDS[episode.outcome]
    return "not solved" if words == "solved" else words  # a judge may contradict the worker's own word
