"""Finds stored trajectories in a run, an evaluation or a store file, and the texts of their tokens."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from distrl.core.actions import Action
from distrl.core.errors import NotStored, StoreError, TaskError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.results import (
    EPISODES_FILE,
    SPEC_FILE,
    STORE_FILE,
    EvaluationSpec,
    episode_result,
    read_episodes,
    read_spec,
)
from distrl.evaluator.statistics import EpisodeResult
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.episode import BLANK, encode


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
        outcome: A word of `ENDINGS`.
        success: Whether they were solved. Faulted ones are neither.
        seed: Of the repetition.
    """

    template: str | None = None
    outcome: str | None = None
    mode: FailureMode | None = None
    success: bool | None = None
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
            and self.split in (None, episode.split)
            and self.task in (None, episode.task_id)
            and self.seed in (None, episode.seed)
        )


@dataclass(frozen=True)
class Found:
    """A stored episode: its record, its numbers, and the store with its screenshots."""

    trajectory: Trajectory
    result: EpisodeResult
    store: TrajectoryStore

    @property
    def spec(self) -> EvaluationSpec | None:
        """The evaluation that it is from, if any."""
        home = self.store.path.parent
        return read_spec(home) if (home / SPEC_FILE).is_file() else None

    def images(self) -> dict[str, bytes]:
        """The screenshots by digest: those that are stored, and those that can be drawn now."""
        stored = self.store.images(self.store.known_images(self.trajectory.image_digests))
        return stored | drawn(self.trajectory)

    def token_names(self) -> Callable[[int], str] | None:
        """A function from token id to text; None if there is no tokenizer for its store."""
        return _names_beside(self.store.path)


def drawn(trajectory: Trajectory) -> dict[str, bytes]:
    """The screenshots of an episode that was recorded without, by digest: a simulated phone plays it again.

    They end where the phone lists other elements than the record, or where it cannot do what the record says.
    """
    steps, last = trajectory.steps, [trajectory.final] if trajectory.final else []
    if not steps or steps[0].observation.width != BLANK[0]:
        return {}
    env, found = PhoneEnv(), dict[str, bytes]()
    try:
        frame = env.reset(trajectory.task)
        for past in trajectory.branch.past if trajectory.branch else ():
            frame = env.step(Action(**past.action.model_dump())).frame
        for place, seen in enumerate([*(step.observation for step in steps), *last]):
            if seen.elements not in (None, env.elements()):
                break
            found[seen.image] = encode(frame.image, "jpeg")
            if place < len(steps):
                frame = env.step(Action(**steps[place].action.model_dump())).frame
    except (TaskError, ValidationError):  # the task of another environment, or an action without its point
        pass
    return found


class StoredEpisodes:
    """The episodes at a place, oldest first: of a store, or of all of an evaluation's repetitions."""

    def __init__(self, place: Path) -> None:
        files = [place / STORE_FILE if place.is_dir() else place]
        if not files[0].exists():
            parts = (file for file in place.glob(f"seed-*/{STORE_FILE}") if file.parent.name[5:].isdecimal())
            files = sorted(parts, key=lambda file: int(file.parent.name[5:])) or files
        if not files[0].is_file():
            raise StoreError(
                f"There is no trajectory store {files[0]}.", "Pass a run, an evaluation or a store.sqlite3."
            )
        if not files[0].stat().st_size:  # SQLite would turn it into a store
            raise StoreError(f"{files[0]} is empty.", "Restore it, or name another store.")
        self.stores = [TrajectoryStore(file) for file in files]

    def hold(self) -> None:
        """See `TrajectoryStore.hold`."""
        for store in self.stores:
            store.hold()

    def ids(self, purpose: Purpose | None = None) -> list[str]:
        return [name for store in self.stores for name in store.ids(purpose)]

    def real_ids(self) -> list[str]:
        """Without those of imagined episodes."""
        imagined = set(self.ids(Purpose.IMAGINED))
        return [name for name in self.ids() if name not in imagined]

    def get(self, trajectory_id: str) -> Trajectory:
        return self.store_of(trajectory_id).get(trajectory_id)

    def kept(self, ids: Iterable[str]) -> Iterator[Trajectory]:
        """Those of these trajectories that are not trimmed meanwhile, as a running learner does."""
        for name in ids:
            with contextlib.suppress(NotStored):
                yield self.get(name)

    def store_of(self, trajectory_id: str) -> TrajectoryStore:
        """The store with this trajectory; the first if none has it."""
        return next((store for store in self.stores if trajectory_id in store), self.stores[0])

    def images(self, digests: Iterable[str]) -> dict[str, bytes]:
        *first, last = self.stores
        wanted, found = set(digests), dict[str, bytes]()
        for store in first:
            found |= store.images(store.known_images(wanted - found.keys()))
        return found | last.images(wanted - found.keys())

    def shown(self, trajectory: Trajectory) -> dict[str, bytes]:
        """Its screenshots by digest: stored, or drawn now. NotStored if one is neither."""
        return self.images(trajectory.image_digests) | drawn(trajectory)

    def find(self, filters: Filters | None = None, limit: int | None = None) -> Iterator[Found]:
        """At most `limit` episodes that match the filters, the newest first.

        The numbers are those of the evaluation; other episodes' numbers are computed from their own score.
        """
        filters, count = filters or Filters(), 0
        for store in reversed(self.stores):
            known = _known(store)
            names = [n for n in reversed(store.ids()) if n not in known or filters.fits(known[n])]
            for trajectory in self.kept(names):
                if limit is not None and count >= limit:
                    return
                result = known.get(trajectory.id) or episode_result(trajectory)
                if filters.fits(result):
                    count += 1
                    yield Found(trajectory, result, store)

    def one(self, prefix: str) -> Found:
        """The episode whose id is, or begins with, `prefix`; raises StoreError for none or several."""
        named = [(store, name) for store in self.stores for name in store.ids()]
        found = [(store, name) for store, name in named if prefix and name.startswith(prefix)]
        matches = [(store, name) for store, name in found if name == prefix] or found
        if not matches:
            place = self.stores[0].path
            raise StoreError(f"{place} has no trajectory {prefix!r}.", "List them without --trajectory.")
        if len(matches) > 1:
            raise StoreError(f"{len(matches)} trajectories begin with {prefix!r}.", "Give more of the id.")
        store, name = matches[0]
        trajectory = store.get(name)
        return Found(trajectory, _known(store).get(name) or episode_result(trajectory), store)

    def results(self) -> Iterator[EpisodeResult]:
        """The numbers of every episode."""
        return (found.result for found in self.find())

    def count(self) -> int:
        return sum(store.count() for store in self.stores)

    def close(self) -> None:
        for store in self.stores:
            store.close()


def _known(store: TrajectoryStore) -> dict[str, EpisodeResult]:
    """An evaluation's results of the episodes in its store, by trajectory."""
    return {episode.trajectory_id: episode for episode in read_episodes(store.path.parent / EPISODES_FILE)}


TOKENIZER_FILE = "tokenizer.json"


def find_token_names(places: list[Path]) -> Callable[[int], str] | None:
    """A function from token id to text, from the newest tokenizer file below `places`; None if there is none.

    The file is the embedded policy's or the tokenizers library's. Both need the extra `train`.
    """
    files = [file for place in places if place.is_dir() for file in place.rglob(TOKENIZER_FILE)]
    if not files or importlib.util.find_spec("torch") is None:
        return None
    from distrl.core.policies.tokenizer import token_names

    return token_names(max(files, key=lambda file: file.stat().st_mtime))


@functools.lru_cache(maxsize=8)
def _names_beside(store: Path) -> Callable[[int], str] | None:
    """The names of the tokens in a store: of its run, or of the checkpoint that was measured."""
    home = store.resolve().parent  # of an evaluation in its run: RUN/evaluations/NAME, or NAME/seed-S
    places = [folder / "checkpoints" for folder in (home, *home.parents[:3])]
    if (home / SPEC_FILE).is_file():
        subject = read_spec(home).subject
        places += [Path(subject.name)] if subject.kind == "checkpoint" else []
    return find_token_names(places)
