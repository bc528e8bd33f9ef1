"""Waiting for a learner that may come later, or never."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from distrl.core.errors import LearnerUnreachable
from distrl.workers.client import LearnerLink

POLL_S = 0.25  # how often a waiting process looks at the stop flag
_log = logging.getLogger(__name__)


def wait_for_learner(
    link: LearnerLink,
    address: str,
    setting: str,
    timeout_s: float,
    stop: threading.Event,
    say: Callable[[str], None] = _log.info,
) -> bool:
    """Waits for the learner's first answer. Returns False if `stop` was set meanwhile, or the run is over.

    Args:
        link: The connection, started.
        address: The learner's control address.
        setting: What to correct if that is the wrong one, e.g. "network.control".
        timeout_s: How long to wait.
        stop: Ends the wait.
        say: Told what is being waited for.

    Raises:
        LearnerUnreachable: There was none within `timeout_s`, or none of this protocol version.
    """
    say(f"looking for the learner at {address}, for up to {timeout_s:g} s")
    deadline = time.monotonic() + timeout_s
    while not stop.is_set() and not link.shutdown.is_set():
        try:
            link.wait_connected(POLL_S)
        except LearnerUnreachable:
            if time.monotonic() >= deadline and link.misfit:
                raise LearnerUnreachable(
                    f"The learner at {address} and this process do not fit together: {link.misfit}.",
                    "Run the same distrl version everywhere.",
                ) from None
            if time.monotonic() >= deadline:
                raise LearnerUnreachable(
                    f"No learner answered at {address} within {timeout_s:g} s.",
                    f"Start `distrl run-learner`, or correct {setting}; keys must fit too.",
                ) from None
        else:
            return True
    return False
