"""One mode for each failed episode: on constructed paths, and for what agents do wrong on a phone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from episode_factory import make_task

from distrl.configs.schema import WorkerConfig
from distrl.core.messages import Lease
from distrl.core.types import (
    ActionRecord,
    Observation,
    Outcome,
    Purpose,
    Task,
    TimeStep,
    Trajectory,
)
from distrl.evaluator.failure_modes import FailureMode, failure_mode
from distrl.evaluator.suites import load_suite
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.episode import EpisodeRunner

MISTAKE, STUCK, WRONG, PREMATURE, LIMIT = FailureMode


def episode(
    screens: str, last: str = "tap", distances: Sequence[int | None] = (), actions: Sequence[str] = ()
) -> Trajectory:
    """An episode over `screens`, one letter each, the last one final; actions are taps if not given."""
    measured = list(distances) or [None] * len(screens)
    path = [
        Observation(image=letter, width=9, height=20, distance=distance)
        for letter, distance in zip(screens, measured, strict=True)
    ]
    kinds = list(actions) or ["tap"] * (len(screens) - 2) + [last]
    steps = tuple(
        TimeStep(observation=screen, chats=(), action=ActionRecord(kind=kind), done=place == len(kinds) - 1)
        for place, (screen, kind) in enumerate(zip(path, kinds, strict=False))
    )
    truncated = kinds[-1] not in ("complete", "impossible", "submit")
    return Trajectory(
        id="0" * 32,
        task=make_task(),
        steps=steps,
        final=path[-1],
        outcome=Outcome.STEP_LIMIT if truncated else Outcome.FAILURE,
        truncated=truncated,
    )


@pytest.mark.parametrize(
    ("distances", "screens", "last", "mode"),
    [
        ([3, 2, 2], "abb", "complete", PREMATURE),  # said done on the way
        ([3, 3], "aa", "complete", PREMATURE),  # at once
        ([3, 2, 1, 1], "abbb", "impossible", PREMATURE),
        ([3, 4, 5, 5], "abcc", "impossible", PREMATURE),  # gave up, wherever
        ([3, 2, 1, 1, 1], "abcdd", "complete", WRONG),  # went on beside the goal
        ([3, 2, 3, 3], "abcc", "complete", WRONG),
        ([3, 4, 4], "abb", "complete", WRONG),
        ([3, 2, 1, 2, 3, 3, 3], "abcdefg", "tap", MISTAKE),
        ([3, 4, 5, 4, 5], "abcde", "tap", MISTAKE),  # astray from the start
        ([3, 2, 1, 1, 1, 1], "abcccc", "tap", STUCK),
        ([3, 2, 3, 2, 3, 2, 3], "abababa", "tap", STUCK),  # to and fro
        ([4, 4, 4, 4], "aaaa", "tap", STUCK),  # at the start
        ([5, 4, 3, 2], "abcd", "tap", LIMIT),
        ([5, 4, 5, 4, 3, 4], "abcdef", "tap", LIMIT),  # the last step was wrong: no time to mend it
        ([2, 1, 0, 0, 0, 0], "abcccc", "tap", LIMIT),  # solved, and never said so
        ([2, 1, 0, 3, 3, 3], "abcdef", "tap", MISTAKE),  # solved, and undone
        ([2, 1, None, None, None], "abcde", "tap", MISTAKE),  # where the expert knows no way
    ],
)
def test_by_distance(distances: Sequence[int | None], screens: str, last: str, mode: FailureMode) -> None:
    assert failure_mode(episode(screens, last, distances)) is mode


@pytest.mark.parametrize(
    ("screens", "actions", "mode"),
    [
        ("aaa", ["tap", "complete"], PREMATURE),  # said done without having done a thing
        ("abb", ["tap", "complete"], WRONG),
        ("abb", ["tap", "impossible"], PREMATURE),
        ("abc", ["tap", "submit"], WRONG),  # the environment ended it
        ("abccccc", ["tap"] * 6, STUCK),
        ("abababa", ["tap"] * 6, STUCK),
        ("aaa", ["tap"] * 2, LIMIT),  # too short to call it stuck
        ("abacdef", ["tap"] * 6, MISTAKE),  # came back to a, then elsewhere
        ("abcdefg", ["tap", "tap", "back", "tap", "tap", "tap"], MISTAKE),
        ("abcdefg", ["tap"] * 6, LIMIT),
    ],
)
def test_by_screens_where_no_distance_is_known(
    screens: str, actions: Sequence[str], mode: FailureMode
) -> None:
    assert failure_mode(episode(screens, actions=actions)) is mode
    assert failure_mode(Trajectory(id="0" * 32, task=make_task())) is None


def play(task: Task, distances: bool) -> Trajectory:
    """Plays `task` as its expert does."""
    runner = EpisodeRunner(
        PhoneEnv(width=180, height=400), AutoUIAgent(), None, WorkerConfig(), distances=distances
    )
    played = runner.run(Lease(id="x", task=task, purpose=Purpose.DEMO))
    assert played is not None
    return played[0]


def test_distances_fall_by_one_with_each_step_of_the_expert_and_leave_the_phone_alone() -> None:
    task = next(task for task in load_suite("quickstart", "test") if task.template == "shop_search")
    measured, plain = (play(task, distances) for distances in (True, False))
    path = [step.observation.distance for step in measured.steps]
    assert path == list(range(len(path) - 1, -1, -1))
    assert [step.observation.image for step in measured.steps] == [
        step.observation.image for step in plain.steps
    ]
    assert {step.observation.distance for step in plain.steps} == {None}
    assert measured.success == 1.0
