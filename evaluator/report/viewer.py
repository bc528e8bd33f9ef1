"""Pages and sections of episodes: a report's viewer and table, listings, one trajectory, a judge's errors."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.core.files import write_atomically
from distrl.core.importing import choose
from distrl.core.logs import one_line
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Trajectory, Verdict
from distrl.evaluator.agreement import AgreementReport, Judged, describe, disagreements
from distrl.evaluator.failure_modes import MODE_WORDS, FailureMode
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.report.compare import Choice
from distrl.evaluator.report.episodes import OUTCOME_WORDS, EpisodeView, TokenNames, episode_view
from distrl.evaluator.report.page import render
from distrl.evaluator.results import SPEC_FILE, LoadedEvaluation, read_spec
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.stores import Found, find_token_names, places_of, result_of

SHOT_WIDTH = 276
"""Pixels of an embedded screenshot: twice its width on the page."""
TRAJECTORY_SHOT_WIDTH, JUDGE_SHOT_WIDTH = 540, 300
MAX_BYTES = 24_000_000
"""Bytes of embedded screenshots on one page; further tasks are left out of the viewer."""


@dataclass(frozen=True)
class Example:
    """A task with its episode in each evaluation."""

    goal: str
    split: str
    template: str
    kind: str
    tone: str
    arms: tuple[tuple[str, EpisodeView], ...]

    @property
    def size_bytes(self) -> int:
        """Of its embedded screenshots."""
        return sum(view.size_bytes for _, view in self.arms)


@dataclass(frozen=True)
class Viewer:
    """The tasks shown, and how many more were chosen but do not fit."""

    examples: tuple[Example, ...]
    num_left_out: int = 0

    @property
    def anchors(self) -> dict[str, str]:
        """The anchors of the trajectories on the page, by id."""
        views = [view for example in self.examples for _, view in example.arms]
        return {view.trajectory_id: view.anchor for view in views}


def build_viewer(
    loaded: Mapping[str, LoadedEvaluation], choices: Sequence[Choice], max_bytes: int = MAX_BYTES
) -> Viewer:
    """Reads the chosen episodes, in this order, until their screenshots have `max_bytes`."""
    examples: list[Example] = []
    left_bytes = max_bytes
    with contextlib.ExitStack() as stack:
        stores = _Stores(loaded, stack)
        for choice in choices:
            example = _example(choice, loaded, stores)
            left_bytes -= example.size_bytes
            if left_bytes < 0:
                break
            examples.append(example)
    return Viewer(tuple(examples), len(choices) - len(examples))


class _Stores:
    """The stores of evaluations and their repetitions, and the names of their tokens, opened on demand."""

    def __init__(self, loaded: Mapping[str, LoadedEvaluation], stack: contextlib.ExitStack) -> None:
        self._loaded, self._stack = loaded, stack
        self._open: dict[tuple[str, int], TrajectoryStore] = {}
        self._names: dict[tuple[str, int], TokenNames | None] = {}

    def of(self, label: str, seed: int) -> TrajectoryStore:
        if (label, seed) not in self._open:
            self._open[label, seed] = self._loaded[label].open_store(seed)
            self._stack.callback(self._open[label, seed].close)
        return self._open[label, seed]

    def names(self, label: str, seed: int) -> TokenNames | None:
        if (label, seed) not in self._names:
            self._names[label, seed] = find_token_names(places_of(self.of(label, seed).path))
        return self._names[label, seed]


def _example(choice: Choice, loaded: Mapping[str, LoadedEvaluation], stores: _Stores) -> Example:
    arms = []
    for label, episode in choice.episodes:
        store = stores.of(label, episode.seed)
        trajectory = store.get(episode.trajectory_id)
        has_tokens = any(chat.completion.token_ids for step in trajectory.steps for chat in step.chats)
        names = stores.names(label, episode.seed) if has_tokens else None
        images = store.images(store.known_images(trajectory.image_digests))
        spec = loaded[label].evaluation.spec
        verdict = verdict_of(episode, trajectory, spec.judge)
        # A checkpoint is served under its own version number, which is unrelated to the run's versions.
        weights = Path(spec.subject.name).name if spec.subject.kind == "checkpoint" else None
        view = episode_view(
            trajectory, images, verdict, SHOT_WIDTH, token_names=names, weights=weights, mode=episode.mode
        )
        arms.append((label, view))
    first, newest = arms[-1][1], choice.episodes[-1][1]
    tone = "good" if newest.success else "bad"
    return Example(first.goal, first.split, first.template, choice.kind, tone, tuple(arms))


def verdict_of(episode: EpisodeResult, trajectory: Trajectory, judge: str) -> Verdict:
    """The verdict of an episode's evaluation, from the record: no judge is called again."""
    if judge == "ground_truth":
        said: Verdict = choose(JUDGES, judge)().judge(trajectory, {})
        return said
    return Verdict(success=episode.success, score=episode.score, reason=f"Judged by {judge}.")


def write_listing(
    file: Path, place: Path, found: Sequence[Found], words: str, max_bytes: int = MAX_BYTES
) -> None:
    """Writes the page.

    Args:
        file: The page.
        place: The run or the evaluation, as given to `distrl inspect`.
        found: The episodes.
        words: How they were chosen.
        max_bytes: Of embedded screenshots; further episodes are in the table only.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    examples: list[Example] = []
    left_bytes = max_bytes
    for one in found:
        example = _found_example(one)
        left_bytes -= example.size_bytes
        if left_bytes < 0:
            break
        examples.append(example)
    viewer = Viewer(tuple(examples), len(found) - len(examples))
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


def _found_example(found: Found) -> Example:
    trajectory, result, store = found.trajectory, found.result, found.store
    images = store.images(store.known_images(trajectory.image_digests))
    has_tokens = any(chat.completion.token_ids for step in trajectory.steps for chat in step.chats)
    names = find_token_names(places_of(store.path)) if has_tokens else None
    verdict = verdict_of(result, trajectory, _judge_of(store))
    view = episode_view(trajectory, images, verdict, SHOT_WIDTH, token_names=names, mode=result.mode)
    return Example(view.goal, view.split, view.template, "", view.tone, (("", view),))


def _judge_of(store: TrajectoryStore) -> str:
    """The judge of the evaluation that filled a store."""
    home = store.path.parent
    return read_spec(home).judge if (home / SPEC_FILE).is_file() else "ground_truth"


def write_stored_trajectory(file: Path, store: TrajectoryStore, trajectory: Trajectory) -> None:
    """Writes the page of a trajectory in a store; see `write_trajectory_page`."""
    images = store.images(store.known_images(trajectory.image_digests))
    names = find_token_names(places_of(store.path))
    result = result_of(store, trajectory)
    verdict = verdict_of(result, trajectory, _judge_of(store))
    write_trajectory_page(file, trajectory, images, verdict, names, result.mode)


def write_trajectory_page(
    file: Path,
    trajectory: Trajectory,
    images: Mapping[str, bytes],
    verdict: Verdict,
    token_names: TokenNames | None = None,
    mode: FailureMode | None = None,
) -> None:
    """Writes the page.

    Args:
        file: The page.
        trajectory: The episode.
        images: Its encoded screenshots by digest; missing ones show as empty frames.
        verdict: The judge's.
        token_names: From token id to text; ids are shown without it.
        mode: Why it failed, if it did.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    view = episode_view(
        trajectory, images, verdict, TRAJECTORY_SHOT_WIDTH, fold=False, token_names=token_names, mode=mode
    )
    html = render(
        "trajectory.html",
        title=f"{trajectory.task.id} · distrl",
        kind="trajectory",
        e=view,
        max_steps=trajectory.task.max_steps,
    )
    write_atomically(file, html)


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
    hint: str


def explorer(
    groups: Mapping[str, Iterable[EpisodeResult]], anchors: Mapping[str, str], places: Mapping[str, str]
) -> Explorer:
    """The table of episodes.

    Args:
        groups: Episodes by the label of their evaluation.
        anchors: The anchors of trajectories on the page, by id.
        places: The argument of `distrl inspect` for the episodes of a label.
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
    return "not solved" if words == "solved" else words  # a judge may contradict the worker's outcome


SHOWN = 24
"""The largest number of errors with screenshots."""

Episode = tuple[Trajectory, Mapping[str, bytes]]


@dataclass(frozen=True)
class Disagreement:
    """An error of the judge: its verdict and the ground truth."""

    judged: Judged
    said: str
    truth: str
    view: EpisodeView


def write_agreement_page(
    file: Path, report: AgreementReport, judged: Sequence[Judged], episodes: Iterator[tuple[Judged, Episode]]
) -> None:
    """Writes the page.

    Args:
        file: The page.
        report: The numbers.
        judged: All verdicts.
        episodes: The episodes of the errors to show, worst first; see `worst`.

    Raises:
        MissingDependency: jinja2 is not installed.
    """
    html = render(
        "agreement.html",
        title=f"{report.judge} against ground truth · distrl",
        kind="judge",
        r=report,
        describe=describe,
        shown=[_disagreement(one, *episode) for one, episode in episodes],
        num_wrong=len(disagreements(judged)),
    )
    write_atomically(file, html)


def worst(judged: Sequence[Judged]) -> list[Judged]:
    """The errors to show on a page, worst first."""
    return disagreements(judged)[:SHOWN]


def _disagreement(judged: Judged, trajectory: Trajectory, images: Mapping[str, bytes]) -> Disagreement:
    verdict: Verdict = judged.verdict
    return Disagreement(
        judged=judged,
        said="success" if verdict.success else "failure",
        truth="success" if judged.truth else "failure",
        view=episode_view(trajectory, images, verdict, JUDGE_SHOT_WIDTH),
    )
