"""Pages and sections of episodes: a report's viewer and table, listings, one trajectory, a judge's errors."""

from __future__ import annotations

import contextlib
import itertools
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distrl.core.files import write_atomically
from distrl.core.logs import one_line
from distrl.core.types import Trajectory
from distrl.evaluator.agreement import AgreementReport, Judged, describe, disagreements
from distrl.evaluator.failure_modes import MODE_WORDS
from distrl.evaluator.report.compare import Choice
from distrl.evaluator.report.episodes import EpisodeView, ended, episode_view
from distrl.evaluator.report.page import render
from distrl.evaluator.results import LoadedEvaluation, verdict_on
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.stores import Found, StoredEpisodes

SHOT_WIDTH = 276
"""Pixels of an embedded screenshot: twice its width on the page."""
TRAJECTORY_SHOT_WIDTH, JUDGE_SHOT_WIDTH = 540, 300
MAX_BYTES = 24_000_000
"""Bytes of embedded screenshots on one page; further tasks are left out of the viewer."""


@dataclass(frozen=True)
class Example:
    """A task with its episode in each evaluation, by label; `kind` as in `Choice`."""

    kind: str
    arms: tuple[tuple[str, EpisodeView], ...]


@dataclass(frozen=True)
class Viewer:
    """The tasks shown, and how many more were chosen but do not fit."""

    examples: tuple[Example, ...]
    num_left_out: int = 0

    @property
    def anchors(self) -> dict[str, str]:
        """The anchors of the trajectories on the page, by id."""
        views = [view for example in self.examples for _, view in example.arms]
        return {view.trajectory.id: view.anchor for view in views}


def _fitting(examples: Iterator[Example], num: int, max_bytes: int) -> Viewer:
    """The first of `num` examples whose screenshots have at most `max_bytes` together."""
    shown: list[Example] = []
    for example in examples:
        max_bytes -= sum(view.size_bytes for _, view in example.arms)
        if max_bytes < 0:
            break
        shown.append(example)
    return Viewer(tuple(shown), num - len(shown))


def build_viewer(
    loaded: Mapping[str, LoadedEvaluation], choices: Sequence[Choice], max_bytes: int = MAX_BYTES
) -> Viewer:
    """Reads the chosen episodes, in this order, until their screenshots have `max_bytes`."""
    with contextlib.ExitStack() as stack:
        labels = {label for choice in choices for label, _ in choice.episodes}
        stores = {
            label: stack.enter_context(contextlib.closing(StoredEpisodes(loaded[label].directory)))
            for label in labels
        }

        def view(label: str, episode: EpisodeResult) -> EpisodeView:
            store = stores[label].store_of(episode.trajectory_id)
            return stored_view(Found(store.get(episode.trajectory_id), episode, store), SHOT_WIDTH)

        examples = (
            Example(choice.kind, tuple((label, view(label, episode)) for label, episode in choice.episodes))
            for choice in choices
        )
        return _fitting(examples, len(choices), max_bytes)


def stored_view(found: Found, max_width: int) -> EpisodeView:
    """The view of a stored episode; see `episode_view`."""
    spec, chats = found.spec, [chat for step in found.trajectory.steps for chat in step.chats]
    has_tokens = any(chat.completion.token_ids for chat in chats)
    # A checkpoint is served under its own version number, which is unrelated to the run's versions.
    is_checkpoint = spec is not None and spec.subject.kind == "checkpoint"
    return episode_view(
        found.trajectory,
        found.images(),
        verdict_on(found.trajectory),
        max_width,
        token_names=found.token_names() if has_tokens else None,
        weights=spec.subject.label if spec is not None and is_checkpoint else None,
        mode=found.result.mode,
    )


def write_listing(
    file: Path, place: Path, found: Sequence[Found], words: str, max_bytes: int = MAX_BYTES
) -> None:
    """Writes the page of a list of episodes.

    Args:
        place: The run or the evaluation, as given to `distrl inspect`.
        words: How they were chosen.
        max_bytes: Of embedded screenshots; further episodes are in the table only.
    """
    examples = (Example("", (("", stored_view(one, SHOT_WIDTH)),)) for one in found)
    viewer = _fitting(examples, len(found), max_bytes)
    table = explorer({"": [one.result for one in found]}, viewer.anchors, {"": str(place)})
    html = render(
        "listing.html",
        title=f"{place} · distrl",
        kind="episodes",
        place=str(place),
        words=words,
        viewer=viewer,
        explorer=table,
    )
    write_atomically(file, html)


def write_trajectory_page(file: Path, found: Found, origin: Found | None = None) -> None:
    """Writes the page of an episode; of an imagined one, also how its `origin` went on from there."""
    view = stored_view(found, TRAJECTORY_SHOT_WIDTH)
    title = f"{found.trajectory.task.id} · distrl"
    beside: tuple[Example, ...] = ()
    if origin is not None and found.trajectory.branch is not None:
        real = stored_view(origin, SHOT_WIDTH)
        real = replace(real, steps=real.steps[len(found.trajectory.branch.past) :])
        beside = (Example("", (("imagined", stored_view(found, SHOT_WIDTH)), ("real", real))),)
    write_atomically(file, render("trajectory.html", title=title, kind="trajectory", e=view, beside=beside))


COLUMNS = (
    *("evaluation", "seed", "split", "template", "task", "goal"),
    *("ended", "mode", "steps", "expert", "reward", "seconds"),
)
"""The columns of a row; after them the trajectory's id, and its anchor on the page ("" without one)."""

MAX_GOAL = 160
"""Characters of a goal in the table; the episode itself shows the whole goal."""


@dataclass(frozen=True)
class Explorer:
    """The table. `data` is JSON without any `<`, so that a script element can contain it."""

    data: str
    num_episodes: int
    num_shown: int


def explorer(
    groups: Mapping[str, Iterable[EpisodeResult]], anchors: Mapping[str, str], places: Mapping[str, str]
) -> Explorer:
    """The table of episodes by the label of their evaluation; `places` is what `distrl inspect` takes."""
    rows = [_row(label, episode, anchors) for label, episodes in groups.items() for episode in episodes]
    data = {
        "columns": COLUMNS,
        "modes": {mode.value: title for mode, title in MODE_WORDS.items()},
        "places": dict(places),
        "rows": rows,
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return Explorer(text, len(rows), sum(bool(row[-1]) for row in rows))


def _row(label: str, episode: EpisodeResult, anchors: Mapping[str, str]) -> Sequence[Any]:
    return (
        label,
        episode.seed,
        episode.split,
        episode.template,
        episode.task_id,
        one_line(textwrap.shorten(episode.goal, MAX_GOAL, placeholder=" …")),
        ended(episode.fault, episode.success, episode.outcome),
        episode.mode.value if episode.mode is not None else "",
        episode.num_steps,
        episode.expert_steps,
        round(episode.reward, 3),
        round(episode.duration_s, 2),
        episode.trajectory_id[:16],
        anchors.get(episode.trajectory_id, ""),
    )


SHOWN = 24
"""The largest number of errors with screenshots."""

Episode = tuple[Trajectory, Mapping[str, bytes]]


def write_agreement_page(
    file: Path, report: AgreementReport, judged: Sequence[Judged], episodes: Iterator[tuple[Judged, Episode]]
) -> None:
    """Writes the page of a judge.

    Args:
        episodes: The episodes of the `disagreements`, read as far as they are shown.
    """
    html = render(
        "agreement.html",
        title=f"{report.judge} against ground truth · distrl",
        kind="judge",
        r=report,
        describe=describe,
        shown=[
            (one, episode_view(trajectory, images, one.verdict, JUDGE_SHOT_WIDTH))
            for one, (trajectory, images) in itertools.islice(episodes, SHOWN)
        ],
        num_wrong=len(disagreements(judged)),
    )
    write_atomically(file, html)
