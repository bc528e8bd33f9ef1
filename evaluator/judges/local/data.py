"""What a judge is fitted to: stored episodes with ground truth, and the split of their tasks."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from distrl.core.errors import JudgeError
from distrl.core.types import Fault, Purpose, Task, Trajectory
from distrl.evaluator.agreement import Judged, disagreements
from distrl.evaluator.judges.base import screens
from distrl.evaluator.judges.local.prompt import read_words
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.judging import first_steps

_log = logging.getLogger(__name__)

HoldOut = Literal["task", "episode"]
"""What the held-out episodes do not share with the others: their task, or only themselves."""


@dataclass(frozen=True)
class Example:
    """The first steps of an episode as the judge sees them, and whether they did its task.

    Attributes:
        words: Of `read_words`.
        screen: The last screenshot, encoded.
        truth: Whether the environment gave full credit.
        source, trajectory_id: Where the episode is stored, and its id there.
        num_steps: How many of its steps count.
    """

    words: tuple[str, ...]
    screen: bytes
    task: Task
    truth: bool = False
    source: Path = Path()
    trajectory_id: str = ""
    num_steps: int = 0

    @classmethod
    def of(cls, trajectory: Trajectory, images: Mapping[str, bytes], **stored: Any) -> Example:
        """What the judge sees of an episode.

        Raises:
            JudgeError: The elements of its last screen are missing.
        """
        last = screens(trajectory)[-1]
        if last.elements is None:
            raise JudgeError(
                f"The elements of the last screen of episode {trajectory.id} were not recorded.",
                "Set worker.elements to all.",
            )
        words = tuple(read_words(trajectory))
        return cls(words, images[last.image], trajectory.task, **stored)

    @property
    def kin(self) -> str:
        """Equal for tasks that differ only in their seed or their place in the list."""
        return json.dumps([self.task.template, self.task.goal, self.task.params], sort_keys=True)


def choose_episodes(sources: Sequence[Path], limit: int, rng: random.Random) -> list[tuple[Path, str]]:
    """At most `limit` stored episodes, drawn equally from all sources.

    Raises:
        StoreError: A source has no store.
    """
    shares = []
    for source in sources:
        with contextlib.closing(StoredEpisodes(source)) as store:
            found = [(source, name) for name in store.ids()]
        rng.shuffle(found)
        shares.append(found)
    mixed = [pair for turn in itertools.zip_longest(*shares) for pair in turn if pair is not None]
    return mixed[:limit]


def read_examples(episodes: Iterable[tuple[Path, str]], rng: random.Random) -> list[Example]:
    """The parts of stored episodes that a judge could be asked about, one or two in each.

    That is an episode that ended without a fault, has ground truth, and was ended by the agent reporting that
    it is done, or by success. (A failure at the step limit means nothing for its screen: with
    `require_complete` it fails whatever it shows.) A demonstration gives a second one: the episode up to an
    earlier step, where the expert's answer shows whether the task was done by then.

    Args:
        episodes: Where they are stored, and their ids.
        rng: Draws the earlier steps.

    Raises:
        StoreError: A store cannot be read.
        JudgeError: The elements of the last screen are missing in all of them. Others without are left out.
    """
    found: list[Example] = []
    problems: list[JudgeError] = []
    shown: dict[str, bytes] = {}  # many episodes end on the same screen
    with _Stores() as stores:
        for source, name in episodes:
            trajectory = stores[source].get(name)
            if not is_askable(trajectory):
                continue
            ends = [(len(trajectory.steps), trajectory.ground_truth == 1.0)]
            if trajectory.purpose is Purpose.DEMO:
                ends += _earlier(trajectory, rng)
            for count, truth in ends:
                part = first_steps(trajectory, count)
                last = screens(part)[-1].image
                if last not in shown:
                    shown[last] = stores[source].shown(part)[last]
                stored = {"truth": truth, "source": source, "trajectory_id": name, "num_steps": count}
                try:
                    found.append(Example.of(part, shown, **stored))
                except JudgeError as error:
                    problems.append(error)
    if problems and not found:
        raise problems[0]
    if problems:
        _log.warning("%d episodes are left out, such as: %s", len(problems), problems[0].message)
    return found


def stored_examples(
    judged: Iterable[Judged], examples: Iterable[Example]
) -> Iterator[tuple[Judged, tuple[Trajectory, Mapping[str, bytes]]]]:
    """The worst of the verdicts on `examples`, each with what was judged."""
    sources = {(example.trajectory_id, example.num_steps): example.source for example in examples}
    with _Stores() as stores:
        for one in disagreements(judged):
            store = stores[sources[one.trajectory_id, one.verdict.step]]
            trajectory = first_steps(store.get(one.trajectory_id), one.verdict.step)
            yield one, (trajectory, store.shown(trajectory))


class _Stores(dict[Path, StoredEpisodes]):
    """Stores by source, opened when they are needed."""

    def __missing__(self, source: Path) -> StoredEpisodes:
        self[source] = StoredEpisodes(source)
        return self[source]

    def __enter__(self) -> _Stores:
        return self

    def __exit__(self, *exception: object) -> None:
        for store in self.values():
            store.close()


def is_askable(trajectory: Trajectory) -> bool:
    """Whether its ground truth applies to what its screens show."""
    is_real = trajectory.fault is Fault.NONE and trajectory.purpose is not Purpose.IMAGINED
    if not is_real or not trajectory.steps or trajectory.ground_truth is None:
        return False
    return trajectory.steps[-1].action.kind == "complete" or trajectory.ground_truth == 1.0


def _earlier(trajectory: Trajectory, rng: random.Random) -> list[tuple[int, bool]]:
    """A number of steps of a demonstration that ended well, and whether the task was done by then: it was if
    the expert says there as at the end that it is."""
    steps = trajectory.steps
    if trajectory.ground_truth != 1.0 or steps[-1].action.kind != "complete" or len(steps) < 3:
        return []
    count = rng.randrange(1, len(steps) - 1)
    said = [step.chats[-1].completion.text for step in (steps[count], steps[-1])]
    return [(count, said[0] == said[1])]


def split(
    examples: Sequence[Example], held_out: float, by: HoldOut, seed: int
) -> tuple[list[Example], list[Example], list[Example]]:
    """Splits tasks or episodes at random; neither is in two of the results.

    Tasks that differ only in their seed are one.

    Args:
        held_out: The share of the tasks or episodes to measure on; half as many are for calibration.
        by: What no two results share.
        seed: Of the drawing.

    Returns:
        Those to fit to, to calibrate with, and to measure on.

    Raises:
        JudgeError: There is nothing to learn from, or a result would be empty.
    """
    if len({part.truth for part in examples}) < 2:
        raise JudgeError(
            f"{len(examples)} usable episodes, and not both solved and failed ones among them.",
            "Name stores that have both, such as a run's own.",
        )
    groups = [part.kin if by == "task" else part.trajectory_id for part in examples]
    drawn = sorted(set(groups))
    random.Random(f"split/{seed}").shuffle(drawn)
    first, second = round(held_out * len(drawn)), round(1.5 * held_out * len(drawn))
    if not 0 < first < second < len(drawn):
        raise JudgeError(
            f"{len(drawn)} {by}s are too few to hold out {100 * held_out:g}% and half as many again.",
            "Name more episodes, or set another --held-out.",
        )
    measured, calibrated = set(drawn[:first]), set(drawn[first:second])
    fitting: list[Example] = []
    calibration: list[Example] = []
    measuring: list[Example] = []
    for part, group in zip(examples, groups, strict=True):
        if group in measured:
            measuring.append(part)
        elif group in calibrated:
            calibration.append(part)
        else:
            fitting.append(part)
    return fitting, calibration, measuring
