"""From committed trajectories to replay, demonstrations and statistics. Used by the training thread.

Also here: the trajectories that the learner must not touch again (`Quarantine`). Work on a trajectory may
raise, which quarantines it at once, or end the process, which leaves no time for that. So the ids in work
are written to a file. The ids that it names when a learner starts were in work when the last one died: the
first time a trajectory becomes a suspect, the second time it is quarantined. A suspect whose work ends well
is cleared, so that a learner that is killed for other reasons loses nothing. The file survives the process,
not the machine: it is written without a flush to disk, in a few microseconds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distrl.configs.learner import LearnerConfig
from distrl.core.errors import DistrlError, NotStored, PolicyError, RankError, StoreError
from distrl.core.files import writing
from distrl.core.policies.base import Policy
from distrl.core.policies.images import ImageCache
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Trajectory, shown_images
from distrl.learner.episodes import Episode, GroupStats, compile_episode, verify
from distrl.learner.replay import Replay
from distrl.learner.scheduler import TaskScheduler

ROLLING = 100
MAX_ARRIVED = 32
MANY_IN_VAIN = 50
NOTE = ".in_work.json"
COUNTERS = ("num_refused", "num_unjudged", "num_stale")
_log = logging.getLogger(__name__)


class Ingest:
    """Takes trajectories in the order of their commits, each once.

    One with which anything goes wrong (a broken screenshot, tokens that the policy does not have) is
    quarantined and counted: a single bad worker must not end the run. A training episode without a verdict
    is left out: it must not be learnt from as a failure. Neither counts towards `learner.episodes` or pays
    for updates, which would be made on what is in replay already. Episodes of a group wait here until the
    scheduler closes it. Imagined episodes enter a replay of their own and pay for updates; in counts and
    rates they are no training episodes. With `learner.stale: drop`, what has become too old leaves replay.
    Demonstrations are kept for the warm start, and after it only to be rehearsed.
    """

    def __init__(
        self,
        ingested: queue.Queue[Trajectory],
        store: TrajectoryStore,
        policy: Policy,
        images: ImageCache,
        replay: Replay,
        scheduler: TaskScheduler,
        version: Callable[[], int],
        config: LearnerConfig,
    ) -> None:
        self.queue = ingested
        self._store, self._policy, self._images = store, policy, images
        self._replay, self._scheduler = replay, scheduler
        self._version, self._config = version, config
        self.quarantine = Quarantine(store)
        self._held: dict[str, Episode] = {}
        self._announced: dict[str, int] = {}  # pictures of trajectories that wait in the queue, by id
        self._checked = -1  # the version at which replay was searched for what is too old
        self.episodes: dict[str, Episode] = {}  # of what is in replay
        self.demonstrations: list[Episode] = []  # failed ones too: all their completions are the expert's
        self._clones = True  # whether demonstrations are still of use
        self.last_id: str | None = None
        self.num_refused = self.num_unjudged = self.num_stale = 0
        self._arrived: deque[Episode] = deque(maxlen=MAX_ARRIVED)
        self._success: deque[float] = deque(maxlen=ROLLING)
        self._window: list[dict[str, float]] = []
        self._num_in_vain = 0  # training episodes in a row that could not be used

    def announce(self, trajectory: Trajectory) -> None:
        """Starts to decode a trajectory's screenshots before it is taken, if there is room. Any thread."""
        if not self._is_used(trajectory):
            return
        shown = {digest for step in trajectory.steps for chat in step.chats for digest in chat.images}
        num_waiting = sum(list(self._announced.values()))  # taken by the training thread meanwhile
        if shown and self._images.has_room(num_waiting + len(shown)):
            self._announced[trajectory.id] = len(shown)
            self._images.announce(sorted(shown))

    def close(self) -> None:
        """Ends the decoding of what was announced."""
        self._images.close()

    def end_warm_start(self) -> None:
        """Lets go of all demonstrations, also of those that people will play, unless they are rehearsed."""
        self._clones = self._config.demonstrations.rehearsal > 0.0
        if not self._clones:
            self.demonstrations.clear()

    def _is_used(self, trajectory: Trajectory) -> bool:
        """Whether there may be something to learn from it."""
        has_place = {
            Purpose.DEMO: self._clones,
            Purpose.EVAL: False,
            Purpose.IMAGINED: self._replay.imagined is not None,
        }
        return has_place.get(trajectory.purpose, True) and trajectory.fault is Fault.NONE

    def drain(self, timeout_s: float) -> int:
        """Takes all that has arrived, waiting up to `timeout_s` for the first. Returns how many."""
        count = 0
        while True:
            try:
                trajectory = self.queue.get(timeout=timeout_s) if count == 0 else self.queue.get_nowait()
            except queue.Empty:
                break
            self.take(trajectory)
            count += 1
        self._release()  # groups close by time too
        self._drop_stale()
        if not len(self._replay):  # all were too old, or of no use
            self._scheduler.forgive_updates()
        return count

    def take(self, trajectory: Trajectory, replayed: bool = False) -> None:
        """Takes one trajectory. `replayed`: it comes from the store after a restart."""
        self.last_id = trajectory.id
        self._announced.pop(trajectory.id, None)
        if not self._is_used(trajectory):
            self._scheduler.account(trajectory, replayed, is_usable=False)
            return
        episode = self._examine(trajectory)
        self._scheduler.account(trajectory, replayed, episode is not None)
        if trajectory.purpose is Purpose.DEMO:
            if episode is not None:
                self.demonstrations.append(episode)
            return
        is_real = trajectory.purpose is Purpose.TRAIN
        if is_real:
            self._watch(episode is not None)
        if is_real and episode is not None:
            self._arrived.append(episode)
            self._record(trajectory, episode)
        if trajectory.group_id:
            if episode is not None:
                self._held[episode.id] = episode
            self._scheduler.join(trajectory, episode.total_reward if episode else None, replayed)
            self._release()
        elif episode is not None:
            self._add(episode)

    def _release(self) -> None:
        for closed in self._scheduler.pop_groups():
            for name in closed.members:
                episode = self._held.pop(name, None)
                if episode is not None:  # else it has been quarantined since it joined
                    self._add(replace(episode, group=closed.stats))

    def drop(self, names: Sequence[str]) -> None:
        """Takes quarantined trajectories out of replay, of their groups and of what has arrived."""
        self._replay.discard(names)
        self.demonstrations[:] = [one for one in self.demonstrations if one.id not in names]
        for name in names:
            self.episodes.pop(name, None)
            self._held.pop(name, None)
        kept = [episode for episode in self._arrived if episode.id not in self.quarantine.ids]
        self._arrived = deque(kept, maxlen=MAX_ARRIVED)

    def _add(self, episode: Episode) -> None:
        if self._config.stale == "drop" and self._is_stale(episode):
            self.num_stale += 1
            return
        replay = self._replay.imagined if episode.is_imagined else self._replay
        assert replay is not None
        evicted = replay.add(episode.id)
        self.episodes[episode.id] = episode
        if evicted is not None:
            self.episodes.pop(evicted, None)

    def _is_stale(self, episode: Episode) -> bool:
        return 0 <= episode.oldest_version < self._version() - self._config.max_staleness

    def _drop_stale(self) -> None:
        """With `stale: drop`, once for each version, takes what is too old out of replay."""
        if self._config.stale != "drop" or self._version() == self._checked:
            return
        self._checked = self._version()
        stale = [name for name, episode in self.episodes.items() if self._is_stale(episode)]
        self._replay.discard(stale)
        for name in stale:
            del self.episodes[name]
        self.num_stale += len(stale)

    def _examine(self, trajectory: Trajectory) -> Episode | None:
        """What can be learnt from it; None, and counted, if nothing can, or if it is quarantined."""
        if trajectory.id not in self.quarantine.ids:
            with self.quarantine.working("compilation", [trajectory.id]):
                try:
                    return self._usable(trajectory)
                except Exception as error:
                    if isinstance(error, StoreError) and not isinstance(error, NotStored):
                        raise  # of the disk, not of the trajectory
                    self.quarantine.add(trajectory.id, error)
        self.num_refused += 1
        return None

    def _compile(self, trajectory: Trajectory) -> Episode | None:
        return compile_episode(trajectory, self._policy, self._images.get, self._config.time_limit == "cut")

    def _usable(self, trajectory: Trajectory) -> Episode | None:
        """The episode, its images decoded; None, and counted, if there is nothing to learn from."""
        if trajectory.purpose is Purpose.TRAIN and trajectory.outcome is Outcome.UNJUDGED:
            self.num_unjudged += 1
            return None
        if trajectory.purpose is not Purpose.TRAIN:  # compilation decodes pictures: they are bounded before
            shown = [digest for step in trajectory.steps for chat in step.chats for digest in chat.images]
            shown += shown_images(trajectory.next_prompt)
            self._images.get(shown, is_one_episode=True)
        episode = self._compile(trajectory)
        if episode is None:
            self.num_refused += 1
            _log.warning("trajectory %s is not used: a step of it has no tokens", trajectory.id)
            return None
        images = self._images.get(episode.digests, is_one_episode=True)
        most = self._policy.max_sequence_tokens(self._config.max_new_tokens)
        verify(episode, self._policy, images, most)
        return episode

    def _watch(self, is_usable: bool) -> None:
        """Warns, once each time, when training episodes have long brought nothing to learn from."""
        self._num_in_vain = 0 if is_usable else self._num_in_vain + 1
        if self._num_in_vain == MANY_IN_VAIN:
            _log.warning(
                "the last %d training episodes cannot be used (of all so far, %d have no verdict and %d "
                "cannot be read): they do not count towards learner.episodes, so the run continues until "
                "learner.max_minutes; stop it, fix the judge or the workers, and resume",
                MANY_IN_VAIN, self.num_unjudged, self.num_refused,
            )  # fmt: skip

    def _record(self, trajectory: Trajectory, episode: Episode) -> None:
        self._success.append(trajectory.success)
        parts = trajectory.reward_parts
        self._window.append(
            {
                "reward/total": parts.total,
                **{f"reward/{name}": value for name, value in parts},
                "episode/length": float(len(trajectory.steps)),
                "episode/duration_s": trajectory.duration_s,
                "off_policy/ingest_staleness": float(self._version() - episode.oldest_version),
            }
        )

    def pop_arrived(self) -> list[Episode]:
        """The newest training episodes that arrived since the last call, in their order."""
        arrived = list(self._arrived)
        self._arrived.clear()
        return arrived

    def metrics(self) -> dict[str, float]:
        """Means over the episodes since the last call, and the rolling success of the last 100."""
        window, self._window = self._window, []
        means = {
            name: sum(row[name] for row in window) / len(window) for name in (window[0] if window else ())
        }
        means["ingest/quarantined"] = float(len(self.quarantine.ids))
        means["ingest/refused"] = float(self.num_refused)
        means["ingest/unjudged"] = float(self.num_unjudged)
        if self._config.stale == "drop":
            means["replay/stale_dropped"] = float(self.num_stale)
        if self._success:
            means["train/success"] = sum(self._success) / len(self._success)
        return means

    def restore(self, state: Mapping[str, Any] | None = None) -> None:
        """After a restart: compiles what replay holds, then takes what arrived after it, each once.

        Args:
            state: As `state_dict` gives it; None without a checkpoint: all that the store has is taken.
        """
        if state is None:
            state = self.state_dict()
        else:  # of which there is none before the warm start is over
            self.end_warm_start()
        self._success.extend(state["rolling"])
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
        for name in self._replay.all_ids:
            episode = self._stored(name)
            if episode is None:
                self._replay.discard([name])
            else:
                group = GroupStats(*state["groups"].get(name, ()))
                self.episodes[name] = replace(episode, group=group)
        held = {name: self._stored(name) for name in self._scheduler.held_ids()}
        self._held = {name: episode for name, episode in held.items() if episode is not None}
        self.last_id = state["last_id"]
        if self.last_id is not None and self._clones:
            later = set(self._store.ids(Purpose.DEMO, after=self.last_id))  # taken below
            given = [self._stored(name) for name in self._store.ids(Purpose.DEMO) if name not in later]
            self.demonstrations += [episode for episode in given if episode is not None]
        for name in self._store.ids(after=self.last_id):
            try:
                trajectory = self._store.get(name)
            except StoreError as error:
                _log.error("trajectory %s is lost to training: %s", name, error)
                continue
            self.take(trajectory, replayed=True)

    def _stored(self, name: str) -> Episode | None:
        """An episode; None if it is quarantined or of no use, or the store has it no more."""
        if name in self.quarantine.ids:
            return None
        with self.quarantine.working("compilation", [name]):
            try:
                trajectory = self._store.get(name)
                episode = self._compile(trajectory)
                self._scheduler.remember(trajectory)
            except NotStored as error:  # after going back to a checkpoint from before the store was trimmed
                _log.warning("trajectory %s leaves replay: %s", name, error.message)
                return None
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is of this trajectory
                self.quarantine.add(name, error)
                return None
        return episode

    @property
    def needed_ids(self) -> set[str]:
        """Trajectories that a restart must find in the store."""
        demonstrated = {episode.id for episode in self.demonstrations}
        return {*self._replay.all_ids, *self._held, *demonstrated, *([self.last_id] if self.last_id else [])}

    def state_dict(self) -> dict[str, Any]:
        return {
            "last_id": self.last_id,
            "rolling": list(self._success),
            "groups": {
                name: [episode.group.mean, episode.group.std, episode.group.count]
                for name, episode in self.episodes.items()
                if episode.group != GroupStats()
            },
            **{name: getattr(self, name) for name in COUNTERS},
        }


class Quarantine:
    """The quarantined trajectories of a store. The training thread adds; the prefetch thread notes work."""

    def __init__(self, store: TrajectoryStore) -> None:
        self._store, self._path = store, store.path.with_name(NOTE)
        self._lock, self._tokens = threading.Lock(), itertools.count()
        self._work: dict[int, tuple[str, list[str]]] = {}
        self.ids = {row.id for row in store.quarantined()}
        with writing(self._path):
            self._path.touch()
            self._file = self._path.open("r+b", buffering=0)
        self._suspects = self._convicted(*_read(self._path))
        self._write()

    def _convicted(self, suspects: set[tuple[str, str]], died: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Quarantines what the learner died at twice. Returns the suspects that are left."""
        for kind, name in sorted(died & suspects):
            self.add(name, f"the learner died twice during its {kind}")
        first = sorted({name for _, name in died - suspects} - self.ids)
        if first:
            _log.warning(
                "the learner died while processing %s; a trajectory that kills it again is quarantined",
                ", ".join(first[:5]) + (f" and {len(first) - 5} more" if len(first) > 5 else ""),
            )
        return {(kind, name) for kind, name in died | suspects if name not in self.ids}

    def add(self, name: str, reason: Exception | str) -> None:
        """Quarantines a trajectory for good; it is logged once."""
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        text = "".join(char if char.isprintable() else " " for char in text)[:500]
        if name not in self.ids:
            self.ids.add(name)
            self._store.quarantine(name, text)
            _log.warning("trajectory %s is quarantined: %s", name, text)

    @contextlib.contextmanager
    def working(self, kind: str, names: Sequence[str]) -> Iterator[None]:
        """Notes that trajectories are in work inside the block.

        The note stays if an unforeseen error leaves the block, which ends the learner, or a rank has ended.

        Args:
            kind: "compilation", "update" and so on: a suspect of one is cleared by work of the same kind.
        """
        token = next(self._tokens)
        with self._lock:
            self._work[token] = kind, list(names)
            self._write()
        try:
            yield
        except Exception as error:
            if isinstance(error, DistrlError) and not isinstance(error, RankError):
                self._end(token)
            raise
        except BaseException:  # stopped from outside
            self._end(token)
            raise
        with self._lock:
            self._suspects -= {(kind, name) for name in names}
        self._end(token)

    def blame(
        self,
        episodes: Sequence[Episode],
        attempt: Callable[[Episode], object],
        error: Exception,
        may_all_fail: bool = False,
    ) -> list[str]:
        """After `error` quarantines those of `episodes` with which `attempt` fails on each alone.

        Raises:
            Exception: `error`, if none is to blame: none fails, or all of several do, by what they share,
                unless they `may_all_fail`.
        """
        if isinstance(error, DistrlError) and not isinstance(error, PolicyError | NotStored):
            raise error
        alone = {episode.id: episode for episode in episodes}
        failures: dict[str, Exception] = {}
        for name, episode in alone.items():
            with self.working("batching", [name]):
                try:
                    attempt(episode)
                except Exception as found:  # noqa: BLE001 - whatever it is, it is of this trajectory
                    failures[name] = found
        if not failures or (len(failures) == len(alone) > 1 and not may_all_fail):
            raise error
        for name, failure in failures.items():
            self.add(name, failure)
        return list(failures)

    def _end(self, token: int) -> None:
        with self._lock:
            del self._work[token]
            self._write()

    def _write(self) -> None:
        """One line from the start of the file; what an earlier, longer one leaves behind it is not read."""
        note = {"suspects": sorted(self._suspects), "work": list(self._work.values())}
        with writing(self._path):
            self._file.seek(0)
            self._file.write(json.dumps(note, separators=(",", ":")).encode() + b"\n")


def _read(path: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The suspects, and what was in work; nothing from a file that is empty or damaged."""
    try:
        note = json.loads(path.read_bytes().partition(b"\n")[0] or b"{}")
        suspects = {(str(kind), str(name)) for kind, name in note.get("suspects", ())}
        return suspects, {(str(kind), str(name)) for kind, names in note.get("work", ()) for name in names}
    except (ValueError, TypeError, AttributeError):
        _log.warning("%s is damaged and starts empty", path)
        return set(), set()
