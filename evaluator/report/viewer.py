"""The episodes that a report shows step by step: read from the stores, as many as fit into the page."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.core.importing import choose
from distrl.core.store import TrajectoryStore
from distrl.core.types import Trajectory
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.judges.base import Verdict
from distrl.evaluator.report.episodes import EpisodeView, TokenNames, episode_view
from distrl.evaluator.report.examples import Choice
from distrl.evaluator.results import LoadedEvaluation
from distrl.evaluator.statistics import EpisodeResult
from distrl.evaluator.token_names import find_token_names, places_of

SHOT_WIDTH = 276
"""Pixels of an embedded screenshot: twice its width on the page."""
MAX_BYTES = 24_000_000
"""Embedded screenshots of one page; tasks beyond it are left out of the viewer."""


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
    """The tasks that are shown, and how many more were chosen but do not fit."""

    examples: tuple[Example, ...]
    num_left_out: int = 0

    @property
    def anchors(self) -> dict[str, str]:
        """Where each shown trajectory is on the page, by its id."""
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
        # A checkpoint is served under a version of its own, which says nothing about the run's versions.
        weights = Path(spec.subject.name).name if spec.subject.kind == "checkpoint" else None
        view = episode_view(
            trajectory, images, verdict, SHOT_WIDTH, token_names=names, weights=weights, mode=episode.mode
        )
        arms.append((label, view))
    first, newest = arms[-1][1], choice.episodes[-1][1]
    tone = "good" if newest.success else "bad"
    return Example(first.goal, first.split, first.template, choice.kind, tone, tuple(arms))


def verdict_of(episode: EpisodeResult, trajectory: Trajectory, judge: str) -> Verdict:
    """What was said of an episode when it was measured. Nobody is asked again but the record."""
    if judge == "ground_truth":
        said: Verdict = choose(JUDGES, judge)().judge(trajectory, {})
        return said
    return Verdict(success=episode.success, score=episode.score, reason=f"Judged by {judge}.")
