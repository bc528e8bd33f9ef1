"""Finds stored trajectories in a run, an evaluation or a store file, and the texts of their tokens."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrl.core.errors import CheckpointError, StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.judges.ground_truth import GroundTruthJudge
from distrl.evaluator.results import (
    EPISODES_FILE,
    SPEC_FILE,
    STORE_FILE,
    episode_result,
    read_episodes,
    read_spec,
)
from distrl.evaluator.statistics import EpisodeResult


def open_store(place: Path) -> TrajectoryStore:
    """The store at `place`: a store file, or a run's or an evaluation's directory.

    Raises:
        StoreError: There is none, or its file is empty.
    """
    file = place / STORE_FILE if place.is_dir() else place
    if not file.is_file():
        raise StoreError(
            f"There is no trajectory store {file}.", "Pass a run, an evaluation or a store.sqlite3."
        )
    if not file.stat().st_size:  # SQLite would turn it into a store
        raise StoreError(f"{file} is empty.", "Restore it, or name another store.")
    return TrajectoryStore(file)


def open_stores(place: Path) -> list[TrajectoryStore]:
    """The store at `place`, or those of an evaluation's repetitions.

    Raises:
        StoreError: If there is none.
    """
    if place.is_dir() and not (place / STORE_FILE).exists():
        found = (file for file in place.glob(f"seed-*/{STORE_FILE}") if file.parent.name[5:].isdecimal())
        if parts := sorted(found, key=lambda file: int(file.parent.name[5:])):
            return [TrajectoryStore(part) for part in parts]
    return [open_store(place)]


class StoredEpisodes:
    """The episodes at a place, oldest first: of a store, or of all of an evaluation's repetitions.

    Args:
        place: A store file, or a run's or an evaluation's directory.

    Raises:
        StoreError: There is none.
    """

    def __init__(self, place: Path) -> None:
        self._stores = open_stores(place)

    def ids(self, purpose: Purpose | None = None) -> list[str]:
        """As `TrajectoryStore.ids`, one store after another."""
        return [name for store in self._stores for name in store.ids(purpose)]

    def get(self, trajectory_id: str) -> Trajectory:
        """As `TrajectoryStore.get`."""
        having = (store for store in self._stores if trajectory_id in store)
        return next(having, self._stores[0]).get(trajectory_id)

    def images(self, digests: Iterable[str]) -> dict[str, bytes]:
        """As `TrajectoryStore.images`."""
        *first, last = self._stores
        wanted, found = set(digests), dict[str, bytes]()
        for store in first:
            found |= store.images(store.known_images(wanted - found.keys()))
        return found | last.images(wanted - found.keys())

    def close(self) -> None:
        """Closes the files."""
        for store in self._stores:
            store.close()


def find_in(stores: Sequence[TrajectoryStore], prefix: str) -> tuple[TrajectoryStore, Trajectory]:
    """The trajectory whose id is, or begins with, `prefix`, and its store.

    Raises:
        StoreError: There is none, or several.
    """
    found = [(store, name) for store in stores for name in store.ids() if prefix and name.startswith(prefix)]
    exact = [(store, name) for store, name in found if name == prefix]
    matches = exact or found
    if not matches:
        raise StoreError(f"{stores[0].path} has no trajectory {prefix!r}.", "List them without --trajectory.")
    if len(matches) > 1:
        raise StoreError(f"{len(matches)} trajectories begin with {prefix!r}.", "Give more of the id.")
    store, name = matches[0]
    return store, store.get(name)


def ending(episode: Trajectory | EpisodeResult) -> str:
    """How it ended, in one word: its outcome or its fault, e.g. "success" or "device-fault"."""
    if episode.fault is not Fault.NONE:
        return f"{episode.fault.value}-fault"
    return episode.outcome.value


ENDINGS = (
    *(outcome.value for outcome in Outcome),
    *(f"{fault.value}-fault" for fault in Fault if fault is not Fault.NONE),
)
"""All words that `ending` gives."""


@dataclass(frozen=True)
class Filters:
    """Filters for episodes; None or 0 matches all.

    Attributes:
        template: Of the task.
        outcome: A word of `ENDINGS`.
        mode: Why they failed.
        success: Whether they were solved. Faulted ones are neither.
        min_steps: The fewest steps.
        split, task: The task's split, and its id.
        seed: Of the repetition.
    """

    template: str | None = None
    outcome: str | None = None
    mode: FailureMode | None = None
    success: bool | None = None
    min_steps: int = 0
    split: str | None = None
    task: str | None = None
    seed: int | None = None

    def fits(self, episode: EpisodeResult) -> bool:
        """Whether the episode matches."""
        return (
            self.template in (None, episode.template)
            and self.outcome in (None, ending(episode))
            and self.mode in (None, episode.mode)
            and (self.success is None or (episode.counts and episode.success is self.success))
            and episode.num_steps >= self.min_steps
            and self.split in (None, episode.split)
            and self.task in (None, episode.task_id)
            and self.seed in (None, episode.seed)
        )


@dataclass(frozen=True)
class Found:
    """A matching episode: its record, its numbers, and the store with its screenshots."""

    trajectory: Trajectory
    result: EpisodeResult
    store: TrajectoryStore


def find_episodes(
    stores: Sequence[TrajectoryStore], filters: Filters | None = None, limit: int | None = None
) -> Iterator[Found]:
    """At most `limit` episodes that match the filters, the newest first.

    The numbers are those of the evaluation; other episodes' numbers are computed from their own score.
    """
    filters, count = filters or Filters(), 0
    for store in reversed(stores):
        known = _known(store)
        for trajectory_id in reversed(store.ids()):
            if limit is not None and count >= limit:
                return
            if trajectory_id in known and not filters.fits(known[trajectory_id]):
                continue
            trajectory = store.get(trajectory_id)
            result = known.get(trajectory_id) or _result(trajectory)
            if filters.fits(result):
                count += 1
                yield Found(trajectory, result, store)


def all_results(stores: Sequence[TrajectoryStore]) -> Iterator[EpisodeResult]:
    """The numbers of every stored episode."""
    for store in stores:
        known = _known(store)
        for trajectory_id in store.ids():
            yield known.get(trajectory_id) or _result(store.get(trajectory_id))


def result_of(store: TrajectoryStore, trajectory: Trajectory) -> EpisodeResult:
    """The numbers of a trajectory of this store."""
    return _known(store).get(trajectory.id) or _result(trajectory)


def _known(store: TrajectoryStore) -> dict[str, EpisodeResult]:
    """An evaluation's results of the episodes in its store, by trajectory."""
    return {episode.trajectory_id: episode for episode in read_episodes(store.path.parent / EPISODES_FILE)}


def _result(trajectory: Trajectory) -> EpisodeResult:
    return episode_result(trajectory, GroundTruthJudge().judge(trajectory, {}), 0)


TOKENIZER_FILE = "tokenizer.json"


def find_token_names(places: list[Path]) -> Callable[[int], str] | None:
    """A function from token id to text, from the newest tokenizer file below `places`; None if there is none.

    The file is the embedded policy's or the tokenizers library's.
    """
    files = [file for place in places if place.is_dir() for file in place.rglob(TOKENIZER_FILE)]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        names = _hub_names(file) or _embedded_names(file)
        if names is not None:
            table = names
            return lambda token: table.get(token, str(token))
    return None


def places_of(store: Path) -> list[Path]:
    """Where the tokenizer of a store's policy may be: the run's checkpoints, or the checkpoint measured.

    Args:
        store: The store's file.
    """
    home = store.resolve().parent  # of an evaluation in its run: RUN/evaluations/NAME, or NAME/seed-S
    places = [folder / "checkpoints" for folder in (home, *home.parents[:3])]
    if (home / SPEC_FILE).is_file():
        subject = read_spec(home).subject
        places += [Path(subject.name)] if subject.kind == "checkpoint" else []
    return places


def _hub_names(file: Path) -> dict[int, str] | None:
    """The names in a file of the tokenizers library: its model's vocabulary and the added tokens."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        pairs = vocabulary.items() if isinstance(vocabulary, dict) else _ranked(vocabulary)
        names = {int(token): str(text) for text, token in pairs}
        names.update({int(entry["id"]): str(entry["content"]) for entry in content.get("added_tokens", ())})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # another kind of file
    return names


def _ranked(vocabulary: list[Any]) -> list[tuple[str, int]]:
    return [(entry[0], token) for token, entry in enumerate(vocabulary)]


def _embedded_names(file: Path) -> dict[int, str] | None:
    if importlib.util.find_spec("torch") is None:
        return None  # the embedded policy's tokenizer needs torch
    from distrl.core.policies.tokenizer import ActionTokenizer

    try:
        return dict(enumerate(ActionTokenizer.load(file.parent).vocabulary.tokens))
    except CheckpointError:
        return None
