"""Validation rounds: when they start, and what follows them: checkpoints, the best one, trimming the store.

Used by the training thread. `groups.EvalRound` has the episodes of a round.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from threading import Event

from distrl.core import checkpoints
from distrl.core.filmstrip import filmstrips
from distrl.core.types import Purpose
from distrl.learner.checkpoint import state_of
from distrl.learner.context import LAST_ROUND, POLL_S, Context, announce, drain, poll, publish
from distrl.learner.leases import MAX_ATTEMPTS

MIN_MEASURED = 0.9
"""Least share of a round's episodes for a comparison: episodes that fault are not a random sample."""
SHOWN = 3
"""Episodes of a round that trackers show."""

_log = logging.getLogger(__name__)


class Validation:
    """Starts and finishes evaluation rounds, and writes checkpoints.

    A round measures the weights of the checkpoint that is written when it starts, so that "best" names
    weights that were really measured. (Workers may act with slightly newer ones before the round is
    over, and with older ones before they have fetched these; with `policy_lag` with older ones throughout.
    The last round counts only what the final weights did.)

    Args:
        before_save: Called before a checkpoint is written: what covers several updates must end there, for
            a run that is resumed makes those after it again.
    """

    def __init__(self, context: Context, before_save: Callable[[], None] = lambda: None) -> None:
        self._context, self._before_save = context, before_save
        self._config = context.config.learner
        self._measured = ""  # the checkpoint of the round under way

    def after_update(self) -> None:
        """Starts a round, if none is under way, or writes a checkpoint when it is time for it."""
        updates = self._context.progress.updates
        is_due = self._config.eval_every > 0 and updates % self._config.eval_every == 0
        if is_due and not self._context.scheduler.is_evaluating:
            self.finish()  # the round before may have ended during this update
            self.start()
        elif is_due or updates % self._config.checkpoint_every == 0:
            self.save()

    def start(self, min_version: int = -1) -> None:
        """Writes a checkpoint and starts a round for it, by weights of at least `min_version`.

        Weights that were not published yet are, for the round to be of the checkpoint's. With `policy_lag` it
        would not be of these either, and a version more would shorten the lag.
        """
        name = self.save()
        if self._config.eval_every:
            self._measured = name
            if not self._context.is_published and not self._config.policy_lag:
                publish(self._context)
            self._context.scheduler.start_eval(min_version)

    def finish(self) -> None:
        """Writes the result of the round that ended, if one did, and moves the pointer "best".

        A round of which no episode was measured has no result. One of which less than `MIN_MEASURED` was
        measured does not move "best".
        """
        context, done = self._context, self._context.scheduler.pop_eval()
        if done is None:
            return
        success, self._measured = done.success, ""
        if success is None:
            _log.warning("validation after %d updates: no episode was measured", done.updates)
            return
        split = context.config.tasks.validation
        context.report.write(
            {
                f"eval/{split}/success": success,
                f"eval/{split}/episodes": float(len(done.scores)),
                f"eval/{split}/updates": float(done.updates),
                **{f"eval/{split}/reward/{name}": mean for name, mean in done.mean_rewards.items()},
            }
        )
        _log.info("validation after %d updates: %.3f", done.updates, success)
        newest = context.store.ids(Purpose.EVAL)[-SHOWN:]
        context.report.writer.show(done.updates, partial(filmstrips, context.store, newest, "validation"))
        directory = context.checkpointer.directory
        if len(done.scores) < MIN_MEASURED * done.size:
            _log.warning(
                "validation after %d updates cannot be the best: only %d of its %d episodes were "
                "measured, %d were given up and %d have no verdict; see the logs of the workers",
                done.updates, len(done.scores), done.size, done.abandoned,
                done.size - len(done.scores) - done.abandoned,
            )  # fmt: skip
        elif success >= float(checkpoints.note_of(directory, "best") or -1.0):  # of equals the later one
            checkpoints.point(directory, "best", f"step_{done.updates}", note=f"{success}")

    def last(self, stop: Event) -> None:
        """Measures the final weights, regardless of `policy_lag`.

        The wait ends when no worker held a lease of the round for `lease_ttl_s`, or no episode of it ended
        for as long as all attempts at one may take, as when a server never takes the final weights. If `stop`
        is set meanwhile, nothing is named "final": --resume measures again.
        """
        context = self._context
        name = self.save()
        directory = context.checkpointer.directory
        episodes = context.scheduler.accounted(Purpose.TRAIN)
        online_s = round(context.clock.online_s(), 1)
        note = json.dumps({"episodes": episodes, "online_s": online_s}, separators=(",", ":"))
        if checkpoints.pointed(directory, "final") == name:
            checkpoints.point(directory, "final", name, note)
            return
        newest = publish(context, catch_up=True)
        self.start(newest.version)
        announce(context, LAST_ROUND)
        longest_s = 60.0 * MAX_ATTEMPTS * self._config.max_episode_minutes
        active_at = advanced_at = context.clock.now()  # when a worker last held a lease; when one was done
        num_done = 0
        while (progress := context.scheduler.eval_progress) is not None and not stop.is_set():
            now = context.clock.now()
            active_at = now if progress.is_leased else active_at
            if progress.done > num_done:
                num_done, advanced_at = progress.done, now
            if now - active_at >= self._config.lease_ttl_s or now - advanced_at >= longest_s:
                break
            context.report.show(progress.done, progress.size)
            poll(context)
            drain(context, POLL_S)
        self.finish()
        if stop.is_set():
            return
        if context.scheduler.is_evaluating:
            _log.warning(
                "validation of the final weights has no result: no worker was active on it for %g s "
                "(learner.lease_ttl_s), or no episode by these weights ended for %.0f minutes",
                self._config.lease_ttl_s, longest_s / 60.0,
            )  # fmt: skip
        best = checkpoints.pointed(directory, "best") if self._config.keep_best else None
        checkpoints.point(directory, "final", best or name, note)

    def save(self) -> str:
        """Writes a checkpoint; then the store may forget what it does not refer to.

        If that of this update is there already it stays, and so does all that it refers to, although replay
        may have let go of some of that since. What training has not taken yet always stays.
        """
        self._before_save()
        context = self._context
        former = checkpoints.pointed(context.checkpointer.directory, "latest")
        last_id = context.ingest.last_id
        name = context.checkpointer.save(context.progress.updates, state_of(context), {self._measured})
        if name != former and last_id is not None:
            context.store.trim(context.config.store.max_bytes, context.ingest.needed_ids, before=last_id)
        return name
