"""A running learner as an observer sees it: its status, and while somebody looks its slots and pictures.

    any thread: status, wall, pictures ◄── each replaced as a whole ── observer thread ── Watch ──► learner
                                                                ◄── Wall + pictures, each second ──┘

The learner may be missing, restart, or answer with anything: then `state` and `note` say so, and the thread
keeps trying.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

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
from distrl.core.sockets import Received, Wire

EVERY_S, PLAYED_S, SOON_S = 1.0, 0.25, 0.05
"""Seconds between two requests: normally, while a person plays a slot, and while more pictures are ready."""
ANSWER_S = 2.0
LOST_S = 5.0
"""A learner that has not answered for so long counts as lost."""
COMMAND_S = 5.0
MAX_BYTES = 64 * 2**20
"""Of all pictures; what comes beyond it is dropped."""

Wants = Callable[[], tuple[Watching, tuple[str, ...]]]


class Observer:
    """A connection to the learner at `control`, with its own thread; without an address it does nothing.

    Args:
        wants: Returns what viewers want now: how much, and the slots that they follow.
        run_id: The run that is expected there; "" for any.

    Attributes:
        state: "joining", "joined", "lost" or "refused", and `note` says why; "none" without an address, and
            after a learner has ended in order.
        status: The learner's newest, None before the first.
        wall: What it said last.
        heard_at: When that was, in monotonic seconds.
        wake: Set it to have the learner asked at once, because viewers want something else.
        pictures: By slot, as WORKER/SLOT, a number that changes with the picture, and its bytes (JPEG).

    Raises:
        SecurityError: The address needs keys that are missing.
    """

    def __init__(self, control: str, security: Security | None, wants: Wants, run_id: str = "") -> None:
        self.control, self._security, self._wants, self._run_id = control, security, wants, run_id
        self.state, self.note = "joining" if control else "none", ""
        self.status: Status | None = None
        self.wall: Wall | None = None
        self.heard_at = 0.0
        self.pictures: dict[str, tuple[int, bytes]] = {}
        self._stop, self.wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._wire = Wire(security)
        self._name = self._wire.full_name(f"observer-{socket.gethostname()}-{os.getpid()}"[:100])
        if control:
            self._channel = self._wire.connect_dealer(control)
            self._thread.start()

    def close(self) -> None:
        """Ends the connection."""
        self._stop.set()
        self.wake.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
            self._channel.close()
        self._wire.close()

    def command(self, action: str, hand: Hand | None = None) -> None:
        """Sends the learner an owner's command, see `Command`; NetworkError if it refuses or is silent."""
        command = Command.model_validate({"name": self._name, "action": action, "hand": hand})
        with Wire(self._security) as wire:
            channel = wire.connect_dealer(self.control)
            channel.send(command, timeout_s=COMMAND_S)
            received = channel.recv(COMMAND_S)
        answer = received.message if received is not None else None
        if isinstance(answer, Reject):
            raise NetworkError(f"The learner refuses: {answer.reason}.", "Use a key with the role owner.")
        if not isinstance(answer, Status):
            raise NetworkError(f"The learner at {self.control} does not answer.", "Try again.")

    # ---- observer thread ----

    def _run(self) -> None:
        while not self._stop.is_set():
            is_full = False
            try:
                is_full = self._ask()
            except ProtocolError as error:  # not a message of this version
                self.state, self.note = "refused", error.message
            except DistrlError as error:  # the connection is gone
                if self.state in ("joining", "lost"):
                    self.note = error.message
            if self.state == "joined" and time.monotonic() - self.heard_at > LOST_S:
                self.state, self.note = "lost", "the learner does not answer; trying again"
                if self.status is not None and self.status.phase == "done":
                    self.state, self.note = "none", ""
            is_played = self.status is not None and bool(self.status.hands)
            self.wake.wait(SOON_S if is_full else PLAYED_S if is_played else EVERY_S)
            self.wake.clear()

    def _ask(self) -> bool:
        """A Watch and its answer. Returns whether more pictures are ready."""
        wants, followed = self._wants()
        known = self.wall.number if self.wall is not None else 0
        watch = Watch(name=self._name, wants=wants, followed=followed, known=known)
        self._channel.send(watch, timeout_s=0.5)
        deadline, is_full = time.monotonic() + ANSWER_S, False
        received = self._channel.recv(ANSWER_S)
        while received is not None:  # also earlier answers that came late
            self._take(received)
            is_full = len(received.blobs) == MAX_PICTURES
            # A learner that floods this process has it read on later.
            received = self._channel.recv(0.0) if time.monotonic() < deadline else None
        return is_full

    def _take(self, received: Received) -> None:
        message, blobs, problem = received.message, received.blobs, ""
        if isinstance(message, Reject):
            problem = message.reason
        elif not isinstance(message, Wall):
            return
        elif self._run_id and message.status.run_id != self._run_id:
            problem = f"another run, {message.status.run_id}, answers at {self.control}"
        elif len(blobs) != len(message.pictures) or any(len(blob) > MAX_PICTURE_BYTES for blob in blobs):
            problem = "it sends pictures that do not fit their names"
        else:
            listed = {f"{report.worker}/{view.slot}" for report in message.reports for view in report.slots}
            new = {
                f"{worker}/{slot}": (message.number, bytes(blob))
                for (worker, slot), blob in zip(message.pictures, blobs, strict=True)
            }
            kept = {name: one for name, one in (self.pictures | new).items() if name in listed}
            if sum(len(data) for _, data in kept.values()) <= MAX_BYTES:
                self.pictures = kept
            self.status, self.wall, self.heard_at = message.status, message, time.monotonic()
        self.state, self.note = ("refused", problem) if problem else ("joined", "")
