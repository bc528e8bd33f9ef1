"""A running learner as an observer sees it: its status, and while somebody looks its slots and pictures.

    any thread: status, wall, picture, command ◄── lock ── observer thread ── Watch / Command ──► learner
                                                                   ◄── Wall + pictures, each second ──┘

The learner may be missing, restart, or answer with anything: then `state` and `note` say so, and the thread
keeps trying.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from distrl.core.errors import DistrlError, NetworkError, ProtocolError
from distrl.core.messages import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    Command,
    Reject,
    Status,
    Wall,
    Watch,
    Watching,
)
from distrl.core.security import Security
from distrl.core.slot_view import Hand
from distrl.core.sockets import Channel, Wire
from distrl.core.types import Record

EVERY_S, PLAYED_S = 1.0, 0.25  # the second while somebody plays a slot
ANSWER_S = 2.0
LOST_S = 5.0
"""A learner that has not answered for so long counts as lost."""
COMMAND_S = 5.0
MAX_BYTES = 64 * 2**20
"""Of all pictures; what comes beyond it is dropped."""

Wants = Callable[[], tuple[Watching, tuple[str, ...]]]
"""What viewers want now: how much, and the slots that they follow."""


@dataclass(frozen=True)
class Picture:
    """A slot's newest picture, as bytes that nobody here decodes."""

    data: bytes
    number: int


class Observer:
    """A connection to the learner at `control`, with its own thread.

    Args:
        run_id: The run that is expected there; "" for any.

    Attributes:
        state: "joining", "joined", "lost" or "refused"; `note` says why.
    """

    def __init__(self, control: str, security: Security | None, wants: Wants, run_id: str = "") -> None:
        self.control, self._wants, self._run_id = control, wants, run_id
        self._wire = Wire(security)
        self._name = self._wire.full_name(f"observer-{socket.gethostname()}-{os.getpid()}"[:100])
        self.state, self.note = "joining", ""
        self.status: Status | None = None
        self.wall: Wall | None = None
        self.heard_at = 0.0  # monotonic
        self._pictures: dict[tuple[str, int], Picture] = {}
        self._known = 0
        self._commands: queue.Queue[tuple[Command, queue.Queue[Record]]] = queue.Queue(16)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        """Connects in the background; raises SecurityError if keys are missing."""
        self._channel = self._wire.connect_dealer(self.control)
        self._thread.start()

    def close(self) -> None:
        """Ends the connection."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
            self._channel.close()
        self._wire.close()

    def refresh(self) -> None:
        """Asks at once, because viewers want something else now."""
        self._wake.set()

    def picture(self, worker: str, slot: int) -> Picture | None:
        """The newest picture of a slot."""
        return self._pictures.get((worker, slot))

    def command(self, action: str, hand: Hand | None = None) -> None:
        """Sends the learner an owner's command, see `Command`; NetworkError if it refuses or is silent."""
        answer: queue.Queue[Record] = queue.Queue(1)
        try:
            message = Command.model_validate({"name": self._name, "action": action, "hand": hand})
            self._commands.put_nowait((message, answer))
            self._wake.set()
            found = answer.get(timeout=COMMAND_S)
        except (queue.Full, queue.Empty) as error:
            raise NetworkError(f"The learner at {self.control} does not answer.", "Try again.") from error
        if isinstance(found, Reject):
            raise NetworkError(f"The learner refuses: {found.reason}.", "Use a key with the role owner.")

    # ---- observer thread ----

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                is_full = self._ask(self._channel)
            except DistrlError as error:  # not a message of this version, or the connection is gone
                is_full = False
                self._failed("refused" if isinstance(error, ProtocolError) else "", error.message)
            if time.monotonic() - self.heard_at > LOST_S and self.state == "joined":
                self._failed("lost", "the learner does not answer; trying again")
            every_s = PLAYED_S if self.status is not None and self.status.hands else EVERY_S
            if not is_full and self._wake.wait(max(0.05, every_s - (time.monotonic() - started))):
                self._wake.clear()

    def _failed(self, state: str, note: str) -> None:
        if state:
            self.state, self.note = state, note
        elif self.state != "joined":
            self.note = note

    def _ask(self, channel: Channel) -> bool:
        """A command or a Watch, and its answer. Returns whether more pictures are ready."""
        try:
            command, answer = self._commands.get_nowait()
            channel.send(command, timeout_s=0.5)
            while (received := channel.recv(ANSWER_S)) is not None:
                if isinstance(received.message, Status | Reject):
                    answer.put_nowait(received.message)
                    return True
                self._take(received.message, received.blobs)
            return True
        except queue.Empty:
            pass
        wants, followed = self._wants()
        channel.send(Watch(name=self._name, wants=wants, followed=followed, known=self._known), timeout_s=0.5)
        received = channel.recv(ANSWER_S)
        while received is not None:
            self._take(received.message, received.blobs)
            if isinstance(received.message, Wall):
                return len(received.blobs) == MAX_PICTURES
            received = channel.recv(0.0)
        return False

    def _take(self, message: Record, blobs: list[memoryview]) -> None:
        if isinstance(message, Reject):
            self.state, self.note = "refused", message.reason
        if not isinstance(message, Wall):
            return
        if self._run_id and message.status.run_id != self._run_id:
            self.state, self.note = (
                "refused",
                f"another run, {message.status.run_id}, answers at {self.control}",
            )
            return
        if len(blobs) != len(message.pictures) or any(len(blob) > MAX_PICTURE_BYTES for blob in blobs):
            self.state, self.note = "refused", "it sends pictures that do not fit their names"
            return
        listed = {(report.worker, view.slot) for report in message.reports for view in report.slots}
        kept = {key: one for key, one in self._pictures.items() if key in listed}
        for (worker, slot), blob in zip(message.pictures, blobs, strict=True):
            if (worker, slot) in listed:
                kept[worker, slot] = Picture(bytes(blob), message.number)
        if sum(len(one.data) for one in kept.values()) <= MAX_BYTES:
            self._pictures = kept
        self._known = message.number
        self.status, self.wall = message.status, message
        self.state, self.note, self.heard_at = "joined", "", time.monotonic()
