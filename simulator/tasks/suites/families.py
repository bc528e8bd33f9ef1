"""Families of tasks: a template, parameter combinations, and ways to word the goal; instances made of them.

Of each family, every evaluation split gets combinations and wordings that `train` does not have.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from distrl.core.types import Task
from distrl.simulator.phone.interruptions import KINDS
from distrl.simulator.tasks.base import Params

Words = Callable[[Params], Mapping[str, object]]
INTERRUPTED = 3
"""One instance in so many is interrupted by something that the system or an app shows."""


def _same(params: Params) -> Params:
    return params


@dataclass(frozen=True)
class Family:
    """Tasks of one kind.

    Attributes:
        name: Part of the tasks' ids. template: The template of the simulated phone.
        combos: The parameters besides `layout`, one entry for each combination.
        train, test: How the goal is worded, as format strings.
        words: What fills the wording, from the parameters.
    """

    name: str
    template: str
    combos: tuple[Params, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    words: Words = _same


@dataclass(frozen=True)
class Split:
    """A split of a suite.

    Attributes:
        total: Instances, spread evenly over the families.
        pool: Where its combinations come from: "train", "val", "test", which share none, or "all". All but
            "train" have the wordings that are held out.
        layouts: The UI versions that its instances take turns in.
    """

    name: str
    total: int
    pool: str
    layouts: tuple[int, ...]


def product(**values: Sequence[object]) -> tuple[Params, ...]:
    """Every combination of the values."""
    return tuple(dict(zip(values, combo, strict=True)) for combo in itertools.product(*values.values()))


def zipped(**values: Sequence[object]) -> tuple[Params, ...]:
    """The first values together, the second together, and so on; shorter lists begin again."""
    size = max(len(column) for column in values.values())
    return tuple(
        {key: column[place % len(column)] for key, column in values.items()} for place in range(size)
    )


def _pools(combos: list[Params]) -> dict[str, list[Params]]:
    """Two to four combinations for "test", a fourth of them at most where they are few; one for "val"."""
    test = max(2, min(4, len(combos) // 4))
    return {
        "test": combos[:test],
        "val": combos[test : test + 1],
        "train": combos[test + 1 :],
        "all": combos,
    }


def instances(
    suite: str, families: Sequence[Family], splits: Sequence[Split], max_steps: int
) -> Iterator[tuple[Task, str]]:
    """The tasks of a suite, each with its wording."""
    for at, family in enumerate(families):
        combos = list(family.combos)
        random.Random(f"{suite}/1/{family.name}").shuffle(combos)
        for split in splits:
            pool = _pools(combos)[split.pool]
            wordings = family.train if split.pool == "train" else family.test
            count = split.total // len(families) + (at < split.total % len(families))
            for index in range(count):
                params = pool[index % len(pool)]
                place: Params = {"layout": split.layouts[(index + at) % len(split.layouts)]}
                if (index + at) % INTERRUPTED == 0:
                    place["interruptions"] = [KINDS[(5 * index + at) % len(KINDS)]]
                turn = index + at + index // len(wordings)  # no wording is always interrupted
                wording = wordings[turn % len(wordings)]
                name = f"{suite}/{family.name}/{split.name}/{index:04d}"
                yield (
                    Task(
                        id=name,
                        suite=suite,
                        template=family.template,
                        split=split.name,
                        goal=wording.format(**family.words(params)),
                        params={**place, **params},
                        seed=random.Random(f"1/{name}").getrandbits(31),
                        max_steps=max_steps,
                    ),
                    wording,
                )
