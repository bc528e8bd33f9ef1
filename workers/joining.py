"""Waiting for a learner that may come later, or never."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from distrl.core.errors import LearnerUnreachable
from distrl.workers.client import LearnerLink

POLL_S = 0.25  # how often a waiting process looks at the stop flag
REMIND_S = 30.0
_log = logging.getLogger(__name__)


def wait_for_learner(
    link: LearnerLink,
    address: str,
    setting: str,
    wait_s: float | None,
    stop: threading.Event,
    say: Callable[[str], None] = _log.info,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Waits for the learner's first answer. Returns False if `stop` was set meanwhile, or the run is over.

    Args:
        link: The connection, started.
        address: The learner's control address.
        setting: What to correct if that is the wrong one, e.g. "network.control".
        wait_s: How long to wait, in seconds; None waits as long as it takes.
        stop: Ends the wait.
        say: Receives a line at the start and every `REMIND_S` seconds.
        clock: Monotonic seconds.

    Raises:
        LearnerUnreachable: There was none within `wait_s`, or one of another protocol version.
    """
    limit = "" if wait_s is None else f" (at most {wait_s:g} s)"
    say(f"waiting for the learner at {address}{limit}")
    start = clock()
    remind_s = REMIND_S
    while not stop.is_set() and not link.shutdown.is_set():
        try:
            link.wait_connected(POLL_S)
        except LearnerUnreachable:
            waited_s = clock() - start
            if link.misfit:
                raise LearnerUnreachable(
                    f"The learner at {address} does not understand this process: {link.misfit}.",
                    "Run the same distrl version everywhere.",
                ) from None
            if wait_s is not None and waited_s >= wait_s:
                raise LearnerUnreachable(
                    f"No learner answered at {address} within {wait_s:g} s.",
                    f"Start `distrl run-learner`, or correct {setting}; check that the keys match.",
                ) from None
            if waited_s >= remind_s:
                remind_s += REMIND_S
                say(
                    f"still waiting for the learner at {address} ({waited_s:.0f} s): "
                    f"start `distrl run-learner`, or correct {setting}; check that the keys match"
                )
        else:
            return True
    return False
