"""The learner's training loop.

    workers ─► network thread (LearnerServer) ─► store commit ─► bounded queue ─┐
                                                                                ▼
                              ┌───────────────────────────  training thread: Learner.run
                              │ requests (bounded)            drain · draw · update · priorities
                              ▼                               publish · evaluate · checkpoint
                        prefetch thread ── ready batches ─────────►

The training thread waits for two things only, each with a deadline: an episode (the network thread's queue)
and a batch (the prefetch thread's). Weights leave through `LearnerServer.publish_weights`, which any thread
may call.
"""

from __future__ import annotations

import logging
from threading import Event

from distrl.core.errors import MismatchError, NotFinite
from distrl.core.types import Purpose
from distrl.learner.parts import Parts, Progress
from distrl.learner.phases import Cloning, announce, critic_warm_up, demonstrate, warm_up
from distrl.learner.rounds import Rounds
from distrl.learner.scheduler import DONE, TRAINING
from distrl.learner.updates import Updates

POLL_S = 0.25
_log = logging.getLogger(__name__)


class Learner:
    """Runs the phases: demonstrations → warm-up → training → done.

    Args:
        parts: Everything that the learner is made of.
        stop: Set to end early; a checkpoint is written and `run` returns.
    """

    def __init__(self, parts: Parts, stop: Event) -> None:
        self.parts, self.stop = parts, stop
        self.updates = Updates(parts)
        self.rounds = Rounds(parts, self.updates.write_freshness)

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        return self.parts.progress

    def run(self) -> None:
        """Runs until all episodes are learnt from, the time is over, or `stop` is set."""
        try:
            if not self.progress.is_warm:
                self.start_warm()
            if self.progress.is_warm:
                self.train()
        finally:
            self.updates.close()

    def start_warm(self) -> None:
        """Collects demonstrations and clones them."""
        cloning = Cloning(self.parts)
        try:
            demonstrate(self.parts, cloning, self.stop)
            warm_up(self.parts, cloning, self.stop)
        finally:
            cloning.close()

    def train(self) -> None:
        """The online phase."""
        parts = self.parts
        announce(parts, TRAINING)
        parts.publish()
        if self.progress.updates == 0:
            self.rounds.start()
        while not self.stop.is_set() and not self.is_over():
            parts.start_online()
            parts.show(parts.scheduler.accounted(Purpose.TRAIN), parts.config.learner.episodes)
            parts.tend()
            if self.updates.owed() >= 1:
                parts.drain(0.0)
            else:
                self.updates.wait(POLL_S)
                if not parts.has_arrivals:
                    parts.expect_episodes("the workers have sent none since the learner's start")
            self.rounds.finish()
            if self.updates.owed() < 1 or not critic_warm_up(parts, self.updates, self.stop):
                continue
            before = self.progress.updates
            self.update()
            if self.progress.updates > before and not self.is_over():  # else the last round is due
                self.rounds.after_update()
        parts.stop_online()
        if not self.stop.is_set():
            self.rounds.last(self.stop)
            parts.write_metrics({**parts.scheduler.metrics(), "time/online_s": parts.online_s()})
        self.rounds.save()
        if not self.stop.is_set():
            announce(parts, DONE)
            parts.server.shutdown("the run is complete")

    def update(self) -> None:
        """One update. If a mismatch or skipped batches end the run instead, what was learnt so far is saved.

        Raises:
            MismatchError: See `MismatchProbe.measure`.
            NotFinite: Too many batches in a row were skipped.
        """
        try:
            self.updates.make()
        except (MismatchError, NotFinite):
            self.rounds.save()
            raise

    def is_over(self) -> bool:
        """Whether every episode has had its updates, or the time is over."""
        config = self.parts.config.learner
        learnt = self.parts.scheduler.accounted(Purpose.TRAIN) >= config.episodes and self.updates.owed() < 1
        return learnt or self.parts.time_share() >= 1.0
