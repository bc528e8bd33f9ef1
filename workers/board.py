"""What a worker's slots do now, with pictures of their screens, for people who watch.

    slot threads ── SlotSign, a few attributes a step ──► board thread, while people watch ────► link thread
                                                          SlotReport and pictures, once a second

A picture is a small copy of the screenshot that the slot has taken anyway. Only where screenshots are not
encoded (`worker.screenshot_format: none`) the slot draws one itself, between two steps and at most once a
second. Unless people watch, nothing is drawn, shrunk or sent.
"""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from PIL import Image
from pydantic import ValidationError

from distrl.core.actions import Action
from distrl.core.errors import EnvError
from distrl.core.messages import MAX_PICTURE_BYTES, MAX_PICTURES, Lease, SlotReport, Status
from distrl.core.packing import MAX_NAME
from distrl.core.slot_view import DeviceView, Hand, SlotView, Touch
from distrl.core.types import Observation, Task
from distrl.workers.envs.base import Frame

EVERY_S, PLAYED_S = 1.0, 0.2
"""Seconds from one report to the next: usually, and while a person plays a slot."""
AGAIN_S = 10.0
"""A picture that has not changed is sent again after this, because a report may be lost."""
LEFT_S = 5.0
"""Seconds without an action after which an episode ends whose person has left the slot."""
SMALL, LARGE = 200, 800
"""The longer edge of a picture in pixels, and that of a followed slot."""
QUALITY = 60
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Thumbnail:
    """A small JPEG picture of the screen `digest`."""

    digest: str
    data: bytes
    width: int
    height: int


class SlotSign:
    """What one slot does now. Its thread writes, the board's reads: each attribute is replaced as a whole."""

    def __init__(self, size: Callable[[], int] = int) -> None:
        self.size = size  # how large a picture is wanted now, 0 for none
        self.state: Literal["acting", "thinking", "played", "resetting", "waiting", "pausing"] = "waiting"
        self.lease: Lease | None = None
        self.task: Task | None = None
        self.device = ""
        self.step = 0
        self.since = time.monotonic()
        self.action: Action | None = None
        self.shown: tuple[str, bytes] | None = None  # the screen's digest and bytes, if it is encoded
        self.picture: Thumbnail | None = None  # of the board's thread; if it is not encoded, of the slot's
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
        self.shown = (seen.image, data) if is_drawn else None
        size, now = 0 if is_drawn else self.size(), time.monotonic()
        is_due = self.hand is not None or now - self._drawn_at >= EVERY_S
        if size and is_due and not _fits(self.picture, seen.image, size):
            self._drawn_at = now
            with contextlib.suppress(EnvError, OSError):  # whoever watches must not end the episode
                self.picture = shrunk(seen.image, frame.image, size)

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
        """A person's next action; None if none comes in time, or it is not a valid action."""
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
        lease, task, action = self.lease, self.task, self.action
        about: dict[str, Any] = {}
        if lease is not None and task is not None:
            about = {
                "device": self.device[:MAX_NAME],
                "task": task.id[:MAX_NAME],
                "goal": task.goal[:500],
                "purpose": lease.purpose,
                "step": self.step,
                "max_steps": task.max_steps,
                "hand": self._taken if lease.by_hand is not None else None,
                "hint": self.hint[:MAX_NAME],
            }
            if action is not None:
                about["touch"] = Touch(
                    kind=action.kind.value, point=action.point, to=action.to, text=action.text[:MAX_NAME]
                )
        if picture is not None:
            about |= {"picture": picture.digest, "width": picture.width, "height": picture.height}
        return SlotView(slot=slot, state=self.state, idle_s=max(0.0, time.monotonic() - self.since), **about)


def _fits(picture: Thumbnail | None, digest: str, size: int) -> bool:
    """Whether the picture shows that screen in that size, or larger."""
    return picture is not None and picture.digest == digest and max(picture.width, picture.height) >= size


def shrunk(digest: str, image: Image.Image, size: int) -> Thumbnail:
    """A JPEG of `image` whose longer edge has at most `size` pixels."""
    small = image.convert("RGB")
    small.thumbnail((size, size), Image.Resampling.BILINEAR, reducing_gap=1.5)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=QUALITY)
    return Thumbnail(digest, buffer.getvalue(), *small.size)


class SlotBoard:
    """The signs of a worker's slots.

    Attributes:
        devices: Returns the devices of its pool.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self.devices: Callable[[], Sequence[DeviceView]] = tuple
        self._signs: dict[int, SlotSign] = {}
        self._level, self._followed = "status", frozenset[str]()
        self._asked_at, self._next_at = float("-inf"), 0.0
        self._made: tuple[SlotReport, list[bytes]] | None = None
        self._sent: dict[int, tuple[str, int, float]] = {}  # by slot: digest, width, when

    def sign(self, slot: int) -> SlotSign:
        """The sign of a slot; the same one each time."""
        return self._signs.setdefault(slot, SlotSign(lambda: self._size(f"{self._worker}/{slot}")))

    def _size(self, name: str) -> int:
        if self._level != "pictures" or time.monotonic() - self._asked_at > 2 * EVERY_S:
            return 0
        return LARGE if name in self._followed else SMALL

    def take(self, status: Status) -> tuple[SlotReport, list[bytes]] | None:
        """A new report, if `status` says that people watch. Called several times a second."""
        self._level, self._followed = status.watched, frozenset(status.followed)
        hands = {hand.slot: hand for hand in status.hands}
        for slot, sign in list(self._signs.items()):
            sign.told(hands.get(f"{self._worker}/{slot}"))
        if status.watched == "status":
            self._made, self._sent = None, {}
            return None
        self._asked_at = time.monotonic()
        if self._next_at == float("inf"):
            return None  # it is being made
        made, self._made = self._made, None
        if self._asked_at >= self._next_at:
            self._next_at = float("inf")
            threading.Thread(target=self._make, name="board", daemon=True).start()
        return made

    # ---- board thread, one for each report ----

    def _make(self) -> None:
        try:
            self._made = self.report()
        except Exception:  # noqa: BLE001 - the episodes go on without being watched
            _log.exception("a report of the slots failed")
        is_played = any(sign.hand is not None for sign in list(self._signs.values()))
        self._next_at = time.monotonic() + (PLAYED_S if is_played else EVERY_S)

    def report(self) -> tuple[SlotReport, list[bytes]]:
        """What the slots do now, and the pictures that have changed."""
        now, views, pictures = time.monotonic(), [], list[tuple[int, Thumbnail]]()
        for slot, sign in sorted(self._signs.items()):
            picture = _picture(sign)
            views.append(sign.view(slot, picture))
            if picture is None or len(picture.data) > MAX_PICTURE_BYTES or len(pictures) == MAX_PICTURES:
                continue
            digest, width, sent_at = self._sent.get(slot, ("", 0, 0.0))
            if (digest, width) != (picture.digest, picture.width) or now - sent_at > AGAIN_S:
                self._sent[slot] = picture.digest, picture.width, now
                pictures.append((slot, picture))
        report = SlotReport(
            worker=self._worker,
            slots=tuple(views),
            devices=tuple(self.devices()),
            pictures=tuple(slot for slot, _ in pictures),
        )
        return report, [picture.data for _, picture in pictures]


def _picture(sign: SlotSign) -> Thumbnail | None:
    """The slot's picture, made of its encoded screen if it has changed; None if none is wanted."""
    size, shown = sign.size(), sign.shown
    if size and shown is not None and not _fits(sign.picture, shown[0], size):
        with Image.open(io.BytesIO(shown[1])) as image:
            image.draft("RGB", (size, size))  # JPEG: decodes fewer pixels
            sign.picture = shrunk(shown[0], image, size)
    return sign.picture if size else None
