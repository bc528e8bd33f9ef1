"""What happens now and then: evaluation rounds, checkpoints, the choice of the best, trimming the store."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from threading import Event

from distrl.core import checkpoints
from distrl.core.rundir import TASKS_FILE
from distrl.core.types import Purpose
from distrl.learner.eval_rounds import EvalRound
from distrl.learner.parts import Parts
from distrl.learner.phases import announce_part
from distrl.learner.scheduler import LAST_ROUND
from distrl.learner.task_statistics import write_table

POLL_S = 0.25
MIN_MEASURED = 0.9
"""Share of a round's episodes without which it is not compared: those that fault are not any ones."""
_log = logging.getLogger(__name__)


class Rounds:
    """Starts and finishes evaluation rounds, and writes checkpoints.

    A round measures the weights of the checkpoint that is written when it starts, so that "best" names
    weights that were really measured. (Workers may act with slightly newer ones before the round is
    over, and with older ones before they have fetched these; with `policy_lag` with older ones throughout.
    The last round counts only what the final weights did.)

    Args:
        parts: The learner's.
        before_save: Called before a checkpoint is written: what covers several updates must end there, for
            a run that is resumed makes those after it again.
    """

    def __init__(self, parts: Parts, before_save: Callable[[], None] = lambda: None) -> None:
        self.parts, self._before_save = parts, before_save
        self._config = parts.config.learner
        self._measured: set[str] = set()
        self._has_waited = False

    def after_update(self) -> None:
        """Starts a round or writes a checkpoint when it is time for it."""
        updates = self.parts.progress.updates
        is_due = self._config.eval_every > 0 and updates % self._config.eval_every == 0
        if is_due and not self._waits():
            self.start()
        elif is_due or updates % self._config.checkpoint_every == 0:
            self.save()

    def _waits(self) -> bool:
        """Whether the next round is left out for the one under way, which happens once for each."""
        self._has_waited = self.parts.scheduler.is_evaluating and not self._has_waited
        return self._has_waited

    def start(self, min_version: int = -1) -> None:
        """Writes a checkpoint and starts a round for it, by weights of at least `min_version`.

        Weights that were not published yet are, for the round to be of the checkpoint's. With `policy_lag` it
        would not be of these either, and a version more would shorten the lag.
        """
        name = self.save()
        if self._config.eval_every:
            if not self.parts.is_published and not self._config.policy_lag:
                self.parts.publish()
            self._measured.add(name)
            self.parts.scheduler.start_eval(min_version)

    def finish(self) -> None:
        """Writes the results of the rounds that ended, and moves the pointer "best".

        A round whose episodes all came to nothing has no result; nor has one that the next cut short: what
        came in of it are its short episodes, most of which succeed. Nor does one move "best" of which less
        than `MIN_MEASURED` was measured.
        """
        parts = self.parts
        for done in parts.scheduler.take_evals():
            name, success = f"step_{done.updates}", done.success
            is_measured = name in self._measured
            self._measured.discard(name)
            if not done.is_complete:
                self._tell_of_cut(done)
                continue
            if success is None:
                _log.warning("validation after %d updates: no episode could be measured", done.updates)
                continue
            split = parts.config.tasks.validation
            parts.write_metrics(
                {
                    f"eval/{split}/success": success,
                    f"eval/{split}/episodes": float(len(done.scores)),
                    f"eval/{split}/updates": float(done.updates),
                    **{f"eval/{split}/reward/{name}": mean for name, mean in done.mean_rewards.items()},
                }
            )
            _log.info("validation after %d updates: %.3f", done.updates, success)
            if done.measured_share < MIN_MEASURED:
                _log.warning(
                    "validation after %d updates cannot be the best: only %d of its %d episodes were "
                    "measured, %d were given up and %d stay unjudged; the logs of the workers say why",
                    done.updates, len(done.scores), done.size, done.abandoned, done.num_unjudged,
                )  # fmt: skip
            elif is_measured and success >= self._best():
                checkpoints.point(parts.checkpointer.directory, "best", name, note=f"{success}")

    def _tell_of_cut(self, cut: EvalRound) -> None:
        """Says of a round that the next one cut short why it has no result."""
        given = 2 * self._config.eval_every
        if self.parts.progress.updates - cut.updates < given:
            _log.info(
                "validation after %d updates has no result, as the run ended first: %d episodes came in",
                cut.updates, len(cut.scores),
            )  # fmt: skip
            return
        _log.warning(
            "validation after %d updates took longer than %d updates and has no result: %d episodes came in; "
            "raise learner.eval_every or lower learner.eval_episodes",
            cut.updates, given, len(cut.scores),
        )  # fmt: skip

    def _best(self) -> float:
        """The success of the best checkpoint so far; among equals the later one is taken."""
        return float(checkpoints.note_of(self.parts.checkpointer.directory, "best") or -1.0)

    def last(self, stop: Event) -> None:
        """Measures the final weights, whatever `policy_lag` is.

        The wait ends when for `lease_ttl_s` nobody was at work on an episode of the round. Whoever is renews
        the lease, which `max_episode_minutes` bounds. If `stop` is set meanwhile, nothing is named "final":
        --resume measures again.
        """
        parts = self.parts
        name = self.save()
        directory = parts.checkpointer.directory
        episodes, online_s = parts.scheduler.accounted(Purpose.TRAIN), round(parts.online_s(), 1)
        note = json.dumps({"episodes": episodes, "online_s": online_s}, separators=(",", ":"))
        if checkpoints.pointed(directory, "final") == name:
            checkpoints.point(directory, "final", name, note)
            return
        newest = parts.publish(catch_up=True)
        self.start(newest.version)
        announce_part(parts, LAST_ROUND)
        seen = parts.clock()  # when a worker was last at work
        while parts.scheduler.is_evaluating and not stop.is_set():
            now = parts.clock()
            seen = now if parts.scheduler.is_eval_at_work else seen
            if now - seen >= self._config.lease_ttl_s:
                break
            parts.show(*parts.scheduler.eval_progress)
            parts.tend()
            parts.drain(POLL_S)
        self.finish()
        if stop.is_set():
            return
        if parts.scheduler.is_evaluating:
            _log.warning(
                "validation of the final weights has no result: for learner.lease_ttl_s=%g nobody was at "
                "work on its episodes",
                self._config.lease_ttl_s,
            )
        best = checkpoints.pointed(directory, "best") if self._config.keep_best else None
        checkpoints.point(directory, "final", best or name, note)

    def save(self) -> str:
        """Writes a checkpoint; then the store may forget what it does not refer to.

        If that of this update is there already it stays, and so does all that it refers to, although replay
        may have let go of some of that since. What training has not taken yet always stays.
        """
        self._before_save()
        parts, directory = self.parts, self.parts.checkpointer.directory
        former, last_id = checkpoints.pointed(directory, "latest"), parts.ingest.last_id
        name = parts.checkpointer.save(parts.progress.updates, parts.state_dict(), self._measured)
        if name != former and last_id is not None:
            parts.store.trim(parts.config.store.max_bytes, parts.ingest.needed_ids, before=last_id)
        write_table(directory.parent / TASKS_FILE, parts.scheduler.task_table())
        return name
