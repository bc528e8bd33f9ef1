"""What a collection of demonstrations on disk is: written by `distrl collect`, read by it and by learners.

DIR/collection.json   a `CollectionSpec`
DIR/store.sqlite3     the episodes with their screenshots
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.rundir import is_free
from distrl.core.store import TrajectoryStore
from distrl.core.types import Number, Purpose, Record

COLLECTION_FILE = "collection.json"
STORE_FILE = "store.sqlite3"
LOCK_FILE = ".collection.lock"


class CollectionSpec(Record):
    """What is collected: so many episodes of a split's tasks; a resumed collection may be larger.

    Attributes:
        agent: The configuration's section `agent`, whose prompts and notation the episodes have.
        weights: By task template, how often its tasks are demonstrated.
    """

    suite: str
    split: str
    agent: dict[str, Any]
    weights: dict[str, Number] = {}
    noise: Number
    seed: int
    episodes: int


def lease_of(number: int, task_id: str) -> str:
    """The lease of the demonstration that was drawn as number `number`, from 0."""
    return f"collect-{number}-{task_id}"[:200]


def draw_number(lease_id: str) -> int:
    """The number that `lease_of` was given; -1 for another lease."""
    match = re.match(r"collect-(\d+)-", lease_id)
    return int(match[1]) if match else -1


def check_collection(path: Path, spec: CollectionSpec, resume: bool) -> None:
    """Checks that a collection may be written to `path`. Changes nothing."""
    if is_free(path, resume, LOCK_FILE):
        return
    theirs, ours = read_collection(path).model_dump(mode="json"), spec.model_dump(mode="json")
    for key, value in ours.items():
        if key != "episodes" and theirs[key] != value:
            raise RunDirectoryError(
                f"{path} holds another collection: its {key} is {json.dumps(theirs[key])}, "
                f"not {json.dumps(value)}.",
                "Use the same settings, or name another directory with --output.",
            )


def read_collection(path: Path) -> CollectionSpec:
    """What the collection in `path` holds."""
    file = path / COLLECTION_FILE
    if not file.is_file():
        raise RunDirectoryError(
            f"{path} does not contain a collection ({COLLECTION_FILE} is missing).",
            "Use a directory that `distrl collect` wrote.",
        )
    try:
        return CollectionSpec.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise RunDirectoryError(
            f"{file} is damaged or was written by another version.", "Collect again."
        ) from error


def check_dataset(path: Path, wanted: Mapping[str, Any], episodes: int) -> None:
    """Checks that a run can start from the collection in `path`.

    Args:
        wanted: Fields that its `CollectionSpec` must have.
    """
    theirs = read_collection(path).model_dump(mode="json")
    for key, value in wanted.items():
        if theirs[key] != value:
            raise ConfigError(
                f"The demonstrations in {path} have the {key} {json.dumps(theirs[key])}, "
                f"this run has {json.dumps(value)}.",
                "Collect them with this configuration, from its training tasks.",
            )
    with contextlib.closing(TrajectoryStore(path / STORE_FILE)) as store:
        count = store.count(Purpose.DEMO)
    if count < episodes:
        raise ConfigError(
            f"learner.demonstrations.episodes is {episodes}, but {path} holds {count}.",
            f"Set it to at most {count}, or collect more with `distrl collect --resume`.",
        )
