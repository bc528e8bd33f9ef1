"""What a worker's slots do now, with pictures of their screens, for people who watch.

    slot threads ── SlotSign, a few attributes a step ──► board thread, while somebody watches ──► link thread
                                                          SlotReport and pictures, once a second

A picture is a small copy of the screenshot that the slot has taken anyway. Only where screenshots are not
encoded (`worker.screenshot_format: none`) the slot draws one itself, between two steps and at most once a
second. While nobody watches nothing is drawn, shrunk or sent.
"""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from PIL import Image
from pydantic import ValidationError

from distrl.core.actions import Action
from distrl.core.errors import EnvError
from distrl.core.messages import MAX_NAME, MAX_PICTURE_BYTES, MAX_PICTURES, Lease, SlotReport, Status
from distrl.core.slot_view import DeviceView, Hand, SlotView, Touch
from distrl.core.types import Observation, Task
from distrl.workers.envs.base import Frame

EVERY_S, PLAYED_S = 1.0, 0.2
"""From one report to the next; the second while a person plays a slot."""
AGAIN_S = 10.0
"""A picture that has not changed is sent again after this, because a report may be lost."""
LEFT_S = 5.0
"""A person's episode ends when nobody plays it and nothing has happened for so long."""
SMALL, LARGE = 200, 800
"""The longer edge of a picture in pixels, and that of a slot that somebody follows."""
QUALITY = 60
MAX_KEPT = 512  # small pictures, about 4 KB each
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shown:
    """A slot's screen: its digest and encoded bytes; None where `worker.screenshot_format` is none."""

    digest: str
    data: bytes | None


@dataclass(frozen=True)
class Thumbnail:
    """A small JPEG picture of the screen `digest`."""

    digest: str
    data: bytes
    width: int
    height: int


class SlotSign:
    """What one slot does now. Its thread writes, the board's reads: each attribute is replaced as a whole."""

    def __init__(self, board: SlotBoard | None = None, name: str = "") -> None:
        self._board, self._name = board, name
        self.state: Literal["acting", "thinking", "played", "resetting", "waiting", "pausing"] = "waiting"
        self.lease: Lease | None = None
        self.task: Task | None = None
        self.device = ""
        self.step = 0
        self.since = time.monotonic()
        self.action: Action | None = None
        self.shown: Shown | None = None
        self.drawn: Thumbnail | None = None
        self._drawn_at = 0.0
        self.hand: Hand | None = None  # of a person who plays the slot
        self._taken, self.hint = 0, ""
        self._told = threading.Event()

    def waits(self, is_pause: bool = False) -> None:
        """The slot waits for an environment or a lease, or pauses after a failure."""
        self.state = "pausing" if is_pause else "waiting"
        self.lease = self.task = None

    def begins(self, lease: Lease, device: str) -> None:
        """An episode begins, on a device of the pool or on none ("")."""
        self.state, self.device, self.step, self.action, self.hint = "resetting", device, 0, None, ""
        self.since, self.task, self.lease = time.monotonic(), lease.task, lease

    def shows(self, frame: Frame, seen: Observation, data: bytes, is_drawn: bool) -> None:
        """The slot sees a screen; `data` is its picture if `is_drawn`."""
        self.shown = Shown(seen.image, data if is_drawn else None)
        now = time.monotonic()
        if is_drawn or self._board is None or (self.hand is None and now - self._drawn_at < EVERY_S):
            return
        if (size := self._board.size_for(self._name)) and (
            self.drawn is None
            or self.drawn.digest != seen.image
            or size > max(self.drawn.width, self.drawn.height)
        ):
            self._drawn_at = now
            with contextlib.suppress(EnvError, OSError):  # whoever watches must not end the episode
                self.drawn = shrunk(seen.image, frame.image, size)

    def thinks(self) -> None:
        """The agent, or a person, decides."""
        is_played = self.lease is not None and self.lease.by_hand is not None
        self.state = "played" if is_played else "thinking"

    def acts(self, action: Action) -> None:
        """The environment executes an action."""
        self.state, self.action, self.since, self.step = "acting", action, time.monotonic(), self.step + 1

    def told(self, hand: Hand | None) -> None:
        """What a person does here; None where no person plays. Called by the link's thread."""
        if hand != self.hand:
            self.hand = hand
            self._told.set()

    @property
    def is_given_up(self) -> bool:
        """Whether the episode is to end because a person takes the slot over, or has left it."""
        if self.lease is None or self.lease.by_hand is None:
            return self.lease is not None and self.hand is not None
        return self.hand is None and time.monotonic() - self.since > LEFT_S

    def wait_hand(self, timeout_s: float) -> Action | None:
        """A person's next action; None if none comes in time, or it is no action."""
        self._told.wait(timeout_s)
        self._told.clear()
        hand = self.hand
        if hand is None or hand.action is None or hand.number <= self._taken:
            return None
        self._taken, self.hint = hand.number, ""
        try:
            return Action.model_validate(hand.action.model_dump())
        except ValidationError:
            self.hint = "It is not an action."
            return None

    def view(self, slot: int, picture: Thumbnail | None) -> SlotView:
        """The slot as it travels."""
        lease, task = self.lease, self.task
        shape = (picture.digest, picture.width, picture.height) if picture is not None else ("", 0, 0)
        about = {}
        if lease is not None and task is not None:
            about = {
                "task": task.id[:MAX_NAME],
                "goal": task.goal[:500],
                "purpose": lease.purpose,
                "step": self.step,
                "max_steps": task.max_steps,
                "touch": _touch(self.action),
                "hand": self._taken if lease.by_hand is not None else None,
                "hint": self.hint[:MAX_NAME],
            }
        return SlotView(
            slot=slot,
            state=self.state,
            device=self.device[:MAX_NAME] if lease is not None else "",
            idle_s=max(0.0, time.monotonic() - self.since),
            **dict(zip(("picture", "width", "height"), shape, strict=True)),
            **about,
        )


def _touch(action: Action | None) -> Touch | None:
    if action is None:
        return None
    points = [
        None if point is None else tuple(min(1.0, max(0.0, part)) for part in point)
        for point in (action.point, action.to)
    ]
    return Touch(kind=action.kind.value, point=points[0], to=points[1], text=action.text[:MAX_NAME])


def shrunk(digest: str, image: Image.Image, size: int) -> Thumbnail:
    """A JPEG of `image` whose longer edge has at most `size` pixels."""
    small = image.convert("RGB")
    small.thumbnail((size, size), Image.Resampling.BILINEAR, reducing_gap=1.5)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=QUALITY)
    return Thumbnail(digest, buffer.getvalue(), *small.size)


class SlotBoard:
    """The signs of a worker's slots.

    Args:
        devices: Returns the devices of its pool.
    """

    def __init__(self, worker: str, devices: Callable[[], Sequence[DeviceView]] = tuple) -> None:
        self._worker, self._devices = worker, devices
        self._signs: dict[int, SlotSign] = {}
        self._level, self._followed = "status", frozenset[str]()
        self._hands: dict[str, Hand] = {}
        self._asked_at = float("-inf")
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready: tuple[SlotReport, list[bytes]] | None = None
        # Board thread only:
        self._kept: OrderedDict[str, Thumbnail] = OrderedDict()
        self._sent: dict[int, tuple[str, int, float]] = {}  # by slot: digest, width, when

    def watch_devices(self, devices: Callable[[], Sequence[DeviceView]]) -> None:
        """Where the pool's devices are listed."""
        self._devices = devices

    def sign(self, slot: int) -> SlotSign:
        """The sign of a slot; the same one each time."""
        return self._signs.setdefault(slot, SlotSign(self, f"{self._worker}/{slot}"))

    def size_for(self, name: str) -> int:
        """How large a picture of a slot is wanted now, 0 for none."""
        if self._level != "pictures" or time.monotonic() - self._asked_at > 2 * EVERY_S:
            return 0
        return LARGE if name in self._followed else SMALL

    def take(self, status: Status) -> tuple[SlotReport, list[bytes]] | None:
        """A new report, if `status` says that people watch. Called several times a second."""
        self._level, self._followed = status.watched, frozenset(status.followed)
        self._hands = {hand.slot: hand for hand in status.hands}
        for slot, sign in list(self._signs.items()):
            sign.told(self._hands.get(f"{self._worker}/{slot}"))
        if status.watched == "status":
            return None
        self._asked_at = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="board", daemon=True)
            self._thread.start()
        self._wake.set()
        ready, self._ready = self._ready, None
        return ready

    # ---- board thread ----

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if time.monotonic() - self._asked_at > EVERY_S:
                self._sent.clear()
                continue
            try:
                self._ready = self.report()
            except Exception:  # noqa: BLE001 - the episodes go on without being watched
                _log.exception("a report of the slots failed")
            is_played = any(sign.hand is not None for sign in list(self._signs.values()))
            time.sleep(PLAYED_S if is_played else EVERY_S)

    def report(self) -> tuple[SlotReport, list[bytes]]:
        """What the slots do now, and the pictures that have changed."""
        now, views, pictures = time.monotonic(), [], list[tuple[int, Thumbnail]]()
        for slot, sign in sorted(self._signs.items()):
            picture = self._picture(sign, self.size_for(f"{self._worker}/{slot}"))
            views.append(sign.view(slot, picture))
            is_sendable = picture is not None and len(picture.data) <= MAX_PICTURE_BYTES
            if picture is None or not is_sendable or len(pictures) == MAX_PICTURES:
                continue
            digest, width, sent_at = self._sent.get(slot, ("", 0, 0.0))
            if (digest, width) != (picture.digest, picture.width) or now - sent_at > AGAIN_S:
                self._sent[slot] = picture.digest, picture.width, now
                pictures.append((slot, picture))
        report = SlotReport(
            worker=self._worker,
            slots=tuple(views),
            devices=tuple(self._devices()),
            pictures=tuple(slot for slot, _ in pictures),
        )
        return report, [picture.data for _, picture in pictures]

    def _picture(self, sign: SlotSign, size: int) -> Thumbnail | None:
        shown = sign.shown
        if not size or shown is None:
            return None
        if shown.data is None:
            return sign.drawn
        if size == SMALL and shown.digest in self._kept:
            self._kept.move_to_end(shown.digest)
            return self._kept[shown.digest]
        with Image.open(io.BytesIO(shown.data)) as image:
            image.draft("RGB", (size, size))  # JPEG: decodes fewer pixels
            made = shrunk(shown.digest, image, size)
        if size == SMALL:
            self._kept[shown.digest] = made
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made
