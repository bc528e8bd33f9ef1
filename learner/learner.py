"""The learner's training loop.

    workers ─► network thread (LearnerServer) ─► store commit ─► bounded queue ─┐
                                                                                ▼
                              ┌───────────────────────────  training thread: Learner.run
                              │ a request at a time           drain · draw · update · priorities
                              ▼                               publish · validate · checkpoint
                        prefetch thread ── ready batches ─────────►
                              ▲ decoded screenshots
                        announced and decode threads ◄── what the network thread puts into the queue

The training thread waits for two things only, each with a deadline: an episode (the network thread's queue)
and a batch (the prefetch thread's). Weights leave through `LearnerServer.publish_weights`, which any thread
may call. The update itself (forward, loss, backward, step) is `train_step.TrainStep.step`.
"""

from __future__ import annotations

import shutil
from threading import Event

from distrl.core.errors import MismatchError, NotFinite
from distrl.core.rundir import WARM_UP
from distrl.core.types import Purpose
from distrl.learner.checkpoint import Checkpointer
from distrl.learner.context import (
    POLL_S,
    Context,
    Progress,
    alone,
    drain,
    enter_phase,
    expect_episodes,
    poll,
    publish,
)
from distrl.learner.scheduler import DONE, TRAINING
from distrl.learner.updates import Updates
from distrl.learner.validation import Validation
from distrl.learner.warm_start import Cloning, critic_warm_up, demonstrate, warm_up


class Learner:
    """Runs the phases: demonstrations → warm-up → training → done."""

    def __init__(self, context: Context, stop: Event, updates: Updates | None = None) -> None:
        self.context, self.stop = context, stop
        self.updates = updates or Updates(context)
        self.validation = Validation(context, self.updates.write_freshness)

    @property
    def progress(self) -> Progress:
        return self.context.progress

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
        """Collects demonstrations and clones them. If stopped meanwhile, --resume continues from there."""
        context = self.context
        saved = Checkpointer(context.checkpointer.directory.parent / WARM_UP, context.train_step, keep=1)
        cloning = Cloning(context)
        try:
            if (state := saved.load()) is not None:
                cloning.load_state_dict(state)
            with alone(context):
                demonstrate(context, cloning, self.stop)
                warm_up(context, cloning, self.stop)
        finally:
            cloning.close()
        if self.progress.is_warm:
            shutil.rmtree(saved.directory, ignore_errors=True)
        elif cloning.num_updates:
            saved.save(cloning.num_updates, cloning.state_dict())

    def train(self) -> None:
        context = self.context
        enter_phase(context, TRAINING)
        publish(context)
        self.validation.after_update()  # a crash may have lost the result of the checkpoint's round
        while not self.stop.is_set() and not self.is_over():
            context.clock.start_online()
            accounted = context.scheduler.accounted(Purpose.TRAIN)
            context.report.show(accounted, context.config.learner.episodes)
            poll(context)
            if context.server.takes_checkpoint():
                self.validation.save()
            if self.updates.owed() >= 1:
                drain(context, 0.0)
            else:
                self.updates.wait(POLL_S)
                if not context.has_arrivals:
                    expect_episodes(context, "the workers have sent none since the learner's start")
            self.validation.finish()
            if self.updates.owed() < 1 or not critic_warm_up(context, self.updates, self.stop):
                continue
            before = self.progress.updates
            self.update()
            if self.progress.updates > before and not self.is_over():  # else the last round is due
                self.validation.after_update()
        context.clock.stop_online()
        if not self.stop.is_set():
            self.validation.last(self.stop)
            online_s = context.clock.online_s()
            context.report.write({**context.scheduler.metrics(), "time/online_s": online_s})
        self.validation.save()
        if not self.stop.is_set():
            enter_phase(context, DONE)
            context.server.shutdown("the run is complete")

    def update(self) -> None:
        """One update. If a mismatch or skipped batches end the run, what was learnt so far is saved."""
        try:
            with alone(self.context):
                self.updates.make()
        except (MismatchError, NotFinite):
            self.validation.save()
            raise

    def is_over(self) -> bool:
        """Whether every episode has had its updates, or the time is over."""
        config = self.context.config.learner
        learnt = (
            self.context.scheduler.accounted(Purpose.TRAIN) >= config.episodes and self.updates.owed() < 1
        )
        return learnt or self.context.clock.share() >= 1.0
