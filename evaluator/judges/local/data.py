"""What a judge is fitted to: stored episodes with ground truth, and the split of their tasks."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from distrl.core.errors import JudgeError, PolicyError
from distrl.core.types import Fault, Purpose, Task, Trajectory
from distrl.evaluator.agreement import Judged
from distrl.evaluator.judges.local.features import Features, Reader
from distrl.evaluator.report.viewer import worst
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.judging import first_steps


class HoldOut(str, Enum):
    """What the held-out episodes do not share with the others: their task, or nothing but themselves."""

    TASK = "task"
    EPISODE = "episode"


@dataclass(frozen=True)
class Example:
    """An episode, and whether it has done its task.

    Attributes:
        source: Where it is stored.
        trajectory_id: There.
        task: Which one.
        num_steps: How many of its steps were looked at.
        truth: Whether the environment gave full credit.
    """

    source: Path
    trajectory_id: str
    task: Task
    num_steps: int
    truth: bool
    features: Features

    @property
    def kin(self) -> str:
        """See `kin_of`."""
        return kin_of(self.task)


def kin_of(task: Task) -> str:
    """Equal for tasks that differ in their seed or their place in the list alone."""
    return json.dumps([task.template, task.goal, task.params], sort_keys=True)


def choose_episodes(sources: Sequence[Path], limit: int, rng: random.Random) -> list[tuple[Path, str]]:
    """At most `limit` stored episodes, drawn from all sources alike.

    Raises:
        StoreError: A source has no store.
    """
    shares: list[list[tuple[Path, str]]] = []
    for source in sources:
        store = StoredEpisodes(source)
        try:
            found = [(source, name) for name in store.ids()]
        finally:
            store.close()
        rng.shuffle(found)
        shares.append(found)
    mixed = [pair for turn in range(max(map(len, shares), default=0)) for pair in _turn(shares, turn)]
    return mixed[:limit]


def _turn(shares: Sequence[Sequence[tuple[Path, str]]], turn: int) -> list[tuple[Path, str]]:
    return [share[turn] for share in shares if turn < len(share)]


def read_examples(
    episodes: Iterable[tuple[Path, str]],
    reader: Reader,
    rng: random.Random,
    left_out: Callable[[str, PolicyError], None],
) -> Iterable[Example]:
    """The examples in stored episodes, one or two in each that a judge could be asked about.

    That is one that ended without a fault, has ground truth, and was ended by the agent saying that it is
    done, or by success. (That a step limit's episode counts as failed says nothing of its screen: with
    `require_complete` it does so whatever it shows.) A demonstration gives a second one: the episode up to an
    earlier step, where the expert's answer tells whether the task was done by then.

    Args:
        episodes: Where they are stored, and their ids.
        reader: Makes features of them.
        rng: Draws the earlier steps.
        left_out: Called with the id of an episode that has a broken screenshot, and what is wrong with it.

    Raises:
        StoreError: A store cannot be read.
    """
    stores = {}
    try:
        for source, name in episodes:
            if source not in stores:
                stores[source] = StoredEpisodes(source)
            store = stores[source]
            trajectory = store.get(name)
            if not is_askable(trajectory):
                continue
            parts = _parts(trajectory, rng)
            images = store.images(trajectory.image_digests)
            for part, truth in parts:
                try:
                    features = reader.read(part, images)
                except PolicyError as error:
                    left_out(name, error)
                    break
                yield Example(source, name, part.task, len(part.steps), truth, features)
    finally:
        for store in stores.values():
            store.close()


def stored_examples(
    judged: Iterable[Judged], examples: Iterable[Example]
) -> Iterator[tuple[Judged, tuple[Trajectory, Mapping[str, bytes]]]]:
    """The worst of the verdicts on `examples`, each with what was looked at."""
    sources = {(example.trajectory_id, example.num_steps): example.source for example in examples}
    for one in worst(list(judged)):
        store = StoredEpisodes(sources[one.trajectory_id, one.verdict.step])
        try:
            trajectory = first_steps(store.get(one.trajectory_id), one.verdict.step)
            yield one, (trajectory, store.images(trajectory.image_digests))
        finally:
            store.close()


def is_askable(trajectory: Trajectory) -> bool:
    """Whether its ground truth says something of what its screens show."""
    if trajectory.fault is not Fault.NONE or not trajectory.steps or trajectory.ground_truth is None:
        return False
    return trajectory.steps[-1].action.kind == "complete" or trajectory.ground_truth == 1.0


def _parts(trajectory: Trajectory, rng: random.Random) -> list[tuple[Trajectory, bool]]:
    """What examples are made of, each with its truth: the episode, and an earlier part of a demonstration."""
    whole = [(trajectory, trajectory.ground_truth == 1.0)]
    return whole + (_earlier(trajectory, rng) if trajectory.purpose is Purpose.DEMO else [])


def check_episodes(
    episodes: Iterable[tuple[Path, str]], rng: random.Random, held_out: float, by: HoldOut, seed: int
) -> None:
    """Finds out what `split` will say of the examples in stored episodes, without looking at a picture.

    Args:
        episodes: Where they are stored, and their ids.
        rng: In the state that `read_examples` will have it in.
        held_out, by, seed: See `split`.

    Raises:
        JudgeError: There is nothing to learn from, or a part would be empty.
        StoreError: A store cannot be read.
    """
    truths: list[bool] = []
    groups: list[str] = []
    with contextlib.ExitStack() as stack:
        stores: dict[Path, StoredEpisodes] = {}
        for source, name in episodes:
            if source not in stores:
                stores[source] = stack.enter_context(contextlib.closing(StoredEpisodes(source)))
            trajectory = stores[source].get(name)
            found = _parts(trajectory, rng) if is_askable(trajectory) else []
            truths += [truth for _, truth in found]
            groups += [kin_of(trajectory.task) if by is HoldOut.TASK else name] * len(found)
    _places(truths, groups, held_out, by, seed)


def _earlier(trajectory: Trajectory, rng: random.Random) -> list[tuple[Trajectory, bool]]:
    """A part of a demonstration that ended well: the task was done there if the expert says there as at the
    end that it is."""
    steps = trajectory.steps
    if trajectory.ground_truth != 1.0 or steps[-1].action.kind != "complete" or len(steps) < 3:
        return []
    count = rng.randrange(1, len(steps) - 1)
    said = [step.chats[-1].completion.text for step in (steps[count], steps[-1])]
    return [(first_steps(trajectory, count), said[0] == said[1])]


@dataclass(frozen=True)
class Split:
    """Examples to fit to, to calibrate with, and to measure on; no task, or no episode, is in two of them."""

    fitted: list[Example]
    calibration: list[Example]
    held_out: list[Example]


def split(examples: Sequence[Example], held_out: float, by: HoldOut, seed: int) -> Split:
    """Splits tasks or episodes at random. Tasks that differ in their seed alone are one.

    Args:
        examples: All.
        held_out: The share of the tasks or episodes to measure on; half as many are for calibration.
        by: What no two parts share.
        seed: Of the drawing.

    Raises:
        JudgeError: There is nothing to learn from, or a part would be empty.
    """
    groups = [example.kin if by is HoldOut.TASK else example.trajectory_id for example in examples]
    places = _places([example.truth for example in examples], groups, held_out, by, seed)
    parts: tuple[list[Example], ...] = ([], [], [])
    for example, place in zip(examples, places, strict=True):
        parts[place].append(example)
    return Split(*parts)


def _places(
    truths: Sequence[bool], groups: Sequence[str], held_out: float, by: HoldOut, seed: int
) -> list[int]:
    """Where each example goes: 0 to fit to, 1 to calibrate with, 2 to measure on; groups stay together."""
    if len(set(truths)) < 2:
        raise JudgeError(
            f"{len(truths)} usable episodes, and not both solved and failed ones among them.",
            "Name stores that have both, such as a run's own.",
        )
    drawn = sorted(set(groups))
    random.Random(f"split/{seed}").shuffle(drawn)
    first, second = round(held_out * len(drawn)), round(1.5 * held_out * len(drawn))
    if not 0 < first < second < len(drawn):
        raise JudgeError(
            f"{len(drawn)} {by.value}s are too few to hold out {100 * held_out:g}% and half as many again.",
            "Name more episodes, or set another --held-out.",
        )
    place = {group: 2 if index < first else 1 if index < second else 0 for index, group in enumerate(drawn)}
    return [place[group] for group in groups]
