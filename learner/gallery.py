"""The slots as observers see them: the newest report and picture of each, kept only while someone watches.

    observers ── Watch ──► leases of some seconds ──► Status.watched ──► workers ── SlotReport + pictures ──┐
        ▲                                                                                                   │
        └──────────────────── Wall + what is new ◄── the newest of each slot, bounded in bytes ◄────────────┘

Used by the network thread. Pictures are bytes that nothing here decodes. When nobody watches, reports are
dropped and what was kept is forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from distrl.core.errors import ProtocolError
from distrl.core.messages import (
    MAX_FOLLOWED,
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    RejectCode,
    SlotReport,
    Status,
    Wall,
    Watch,
    Watching,
)
from distrl.core.slot_view import Hand

LEASE_S = 5.0
"""How long an observer counts as watching after its newest request."""

HAND_S = 120.0
"""How long a person keeps a slot without a sign of life."""

OLD_S = 60.0
"""A report that was not renewed for so long is forgotten."""

MAX_OBSERVERS = 64
MAX_BYTES = 64 * 2**20
"""Of all reports and pictures together; beyond it the oldest workers' are forgotten."""

# A slot or device counts more than it takes: an observer gets all of them in one message of at most 16 MB.
_LISTED_BYTES = 4 * 4096

_LEVELS: tuple[Watching, ...] = get_args(Watching)


@dataclass
class _Seen:
    report: SlotReport
    at: float
    # By slot: the number of the picture, and its bytes.
    pictures: dict[int, tuple[int, bytes]]

    @property
    def size(self) -> int:
        num_listed = len(self.report.slots) + len(self.report.devices)
        return num_listed * _LISTED_BYTES + sum(len(data) for _, data in self.pictures.values())


@dataclass
class _Playing:
    hand: Hand
    until: float
    task: str  # that the slot had when it was taken over, "" if unknown
    has_lease: bool = False


class Gallery:
    """The observers of a run, what they see, and the slots that they play."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._observers: OrderedDict[bytes, tuple[float, Watch]] = OrderedDict()
        self._seen: OrderedDict[str, _Seen] = OrderedDict()  # the worker that was silent for longest first
        self._hands: dict[str, _Playing] = {}
        self._number = int(1000 * time.time())  # larger than any of an earlier process

    def watching(self) -> tuple[Watching, tuple[str, ...]]:
        """What the observers want together, and the slots that they follow; forgets those that left."""
        now = self._clock()
        for peer in [peer for peer, (until, _) in self._observers.items() if until < now]:
            del self._observers[peer]
        watches = [watch for _, watch in self._observers.values()]
        level = max((_LEVELS.index(watch.wants) for watch in watches), default=0)
        if level == 0:
            self._seen.clear()
        followed = dict.fromkeys(name for watch in watches for name in watch.followed)
        return _LEVELS[level], tuple(followed)[:MAX_FOLLOWED]

    def play(self, hand: Hand) -> None:
        """A person takes a slot over, keeps it or acts there; ProtocolError if too many are played."""
        before = self._hands.get(hand.slot)
        if before is None and len(self.hands()) >= MAX_FOLLOWED:
            raise ProtocolError(RejectCode.BUSY.value, f"{MAX_FOLLOWED} slots are already played by hand")
        worker, _, slot = hand.slot.rpartition("/")
        seen = self._seen.get(worker)
        views = seen.report.slots if seen is not None else ()
        task = next((view.task for view in views if str(view.slot) == slot), "")
        playing = self._hands.setdefault(hand.slot, _Playing(hand, 0.0, task))
        playing.until = self._clock() + HAND_S
        if hand.action is not None:
            self._number += 1
            playing.hand = hand.model_copy(update={"number": self._number})

    def leave(self, slot: str) -> None:
        """A person plays a slot, WORKER/SLOT, no longer."""
        self._hands.pop(slot, None)

    def hands(self) -> tuple[Hand, ...]:
        """The slots that people play."""
        now = self._clock()
        self._hands = {slot: one for slot, one in self._hands.items() if one.until >= now}
        return tuple(one.hand for one in self._hands.values())

    def without_lease(self, worker: str) -> list[tuple[int, str]]:
        """The slots of `worker` that people have taken over, once each, and their tasks."""
        found = []
        for name, one in self._hands.items():
            owner, _, slot = name.rpartition("/")
            if owner == worker and slot.isdecimal() and not one.has_lease:
                one.has_lease = True
                found.append((int(slot), one.task))
        return found

    def report(self, report: SlotReport, blobs: Sequence[bytes | memoryview], num_slots: int) -> None:
        """Takes a worker's report; ProtocolError if it does not fit together.

        Args:
            num_slots: How many slots the worker has announced.
        """
        slots = {view.slot for view in report.slots}
        if len(blobs) != len(report.pictures) or not slots.issuperset(report.pictures):
            raise ProtocolError(RejectCode.MALFORMED.value, "pictures and slots of a report differ")
        if max(slots, default=0) >= max(1, num_slots) or len(slots) != len(report.slots):
            raise ProtocolError(RejectCode.LIMIT.value, f"a report of {num_slots} slots names others")
        if (longest := max(map(len, blobs), default=0)) > MAX_PICTURE_BYTES:
            raise ProtocolError(RejectCode.LIMIT.value, f"a picture of {longest} bytes")
        if not self._observers:
            return
        before = self._seen.pop(report.worker, None)
        kept = {slot: one for slot, one in before.pictures.items() if slot in slots} if before else {}
        seen = self._seen[report.worker] = _Seen(report, self._clock(), kept)
        for slot, blob in zip(report.pictures, blobs, strict=True):
            self._number += 1
            seen.pictures[slot] = self._number, bytes(blob)
        self._forget()

    def _forget(self) -> None:
        oldest = self._clock() - OLD_S
        size = sum(seen.size for seen in self._seen.values())
        while self._seen:
            name, first = next(iter(self._seen.items()))
            if first.at >= oldest and size <= MAX_BYTES:
                return
            size -= first.size
            del self._seen[name]

    def watch(self, peer: bytes, watch: Watch, status: Status) -> tuple[Wall, list[bytes]]:
        """Renews an observer's lease; the answer, with the oldest of the pictures that it does not have."""
        if peer not in self._observers and len(self._observers) >= MAX_OBSERVERS:
            raise ProtocolError(RejectCode.BUSY.value, f"{MAX_OBSERVERS} observers are already connected")
        now = self._clock()
        self._observers[peer] = now + LEASE_S, watch
        if watch.wants == "status":
            return Wall(status=status), []
        known = watch.known if watch.known <= self._number else 0  # the clock was set back
        new = sorted(
            (number, name, slot)
            for name, seen in (self._seen.items() if watch.wants == "pictures" else ())
            for slot, (number, _) in seen.pictures.items()
            if number > known
        )[:MAX_PICTURES]
        wall = Wall(
            status=status,
            reports=tuple(seen.report for seen in self._seen.values()),
            ages_s=tuple(max(0.0, now - seen.at) for seen in self._seen.values()),
            number=new[-1][0] if new else known,
            pictures=tuple((name, slot) for _, name, slot in new),
        )
        return wall, [self._seen[name].pictures[slot][1] for _, name, slot in new]
