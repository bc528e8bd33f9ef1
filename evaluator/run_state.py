"""Where a run stands, read from its directory: over or not, what ended it, and whether it has learnt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil

from distrl.configs.schema import Config
from distrl.core.checkpoints import note_of, pointed, resolve
from distrl.core.errors import CheckpointError, NoUpdates
from distrl.core.rundir import RunDir
from distrl.evaluator.results import RESULTS_FILE

WARM_START, FINAL = "step_0", "final"
BEFORE, AFTER = "warm start", "after training"
"""What reports call the two checkpoints of a run."""


@dataclass(frozen=True)
class Ending:
    """What a run has come to when its result was named.

    Attributes:
        amount, wanted: Training episodes, or of continuous control environment steps: made, and asked for.
        online_s: Seconds that count towards `learner.max_minutes`.
        is_solved: Whether continuous control reached `learner.appo.stop_at_return`.
    """

    amount: int
    wanted: int
    online_s: float
    is_solved: bool = False

    def is_out_of_time(self, config: Config) -> bool:
        """Whether `learner.max_minutes` ended it before it was complete."""
        minutes = config.learner.max_minutes
        is_short = self.amount < self.wanted and not self.is_solved
        return is_short and minutes is not None and self.online_s >= 60.0 * minutes


def read_ending(run: RunDir, config: Config) -> Ending | None:
    """What the run came to; None if it has no result, or one of a version that did not note this."""
    note = note_of(run.checkpoints, FINAL)
    if pointed(run.checkpoints, FINAL) is None:
        return None
    try:
        if config.is_control:
            appo = config.learner.appo
            state = json.loads((resolve(run.checkpoints) / "state.json").read_bytes())["progress"]
            target = appo.stop_at_return
            is_solved = target is not None and note != "" and float(note) >= target
            return Ending(int(state["env_steps"]), appo.max_env_steps, float(state["earlier_s"]), is_solved)
        data = json.loads(note)
        return Ending(int(data["episodes"]), config.learner.episodes, float(data["online_s"]))
    except (OSError, ValueError, KeyError, TypeError, CheckpointError):
        return None


def is_complete(run: RunDir, config: Config) -> bool:
    """Whether the run has its result, and `config` asks for no more training than that."""
    ending = read_ending(run, config)
    if ending is None:
        return False
    return ending.amount >= ending.wanted or ending.is_solved or ending.is_out_of_time(config)


def is_untrained(run: RunDir) -> bool:
    """Whether the run has ended without an update of the policy."""
    return pointed(run.checkpoints, FINAL) is not None and pointed(run.checkpoints, "latest") == WARM_START


def arms(run: RunDir, is_control: bool) -> dict[str, str]:
    """The checkpoints that a run's report compares, by label; one that is both start and result only once."""
    result = pointed(run.checkpoints, FINAL)
    has_learnt = result is not None and result != WARM_START
    found = {} if is_control and has_learnt else {"before training" if is_control else BEFORE: WARM_START}
    return {**found, AFTER: str(result)} if has_learnt else found


def is_measured(run: RunDir, config: Config) -> bool:
    """Whether these are evaluated, if they are to be evaluated here."""
    names = arms(run, config.is_control).values() if config.local.workers else ()
    return all((run.evaluations / name / RESULTS_FILE).is_file() for name in names)


def check_trained(run: RunDir, config: Config) -> None:
    """Makes sure that a run that is complete has learnt something.

    Raises:
        NoUpdates: It ended before the first update.
    """
    ending = read_ending(run, config) if is_untrained(run) else None
    if ending is None:
        return
    learner = config.learner
    rule = "No update of reinforcement learning was made: "
    needed = max(learner.min_replay, ceil(1.0 / learner.updates_per_episode))
    needs = "" if config.is_control else f", and the first update needs {needed}"
    what = "the run ended"
    if ending.is_out_of_time(config):
        what = f"learner.max_minutes={learner.max_minutes:g} ended the run"
    raise NoUpdates(
        f"{rule}{what} after {ending.amount:,} {_kind(config)}{needs}.",
        f"Raise {_limit(ending, config)} and continue with --resume.",
    )


def describe_complete(run: RunDir, config: Config) -> str:
    """Two lines on a complete run: which key continues it, and where its report is."""
    ending = read_ending(run, config)
    assert ending is not None
    report = f"Report: {run.report}" if run.report.is_file() else f"Report: run distrl report {run.path}"
    return f"{run.path} is complete. To continue it, raise {_limit(ending, config)}.\n{report}"


def _limit(ending: Ending, config: Config) -> str:
    """The key that ended a complete run, and that continues it when it is raised."""
    if ending.is_out_of_time(config):
        return "learner.max_minutes"
    if ending.is_solved:
        return "learner.appo.stop_at_return"
    return "learner.appo.max_env_steps" if config.is_control else "learner.episodes"


def describe(run: RunDir, config: Config, amount: float = 0.0) -> str:
    """One line on what is unusual about where the run stands; "" for one that is complete and has learnt.

    Args:
        amount: Training episodes so far, or environment steps, as metrics have them.
    """
    ending, kind = read_ending(run, config), _kind(config)
    if pointed(run.checkpoints, FINAL) is None or (ending and not is_complete(run, config)):
        wanted = config.learner.appo.max_env_steps if config.is_control else config.learner.episodes
        return f"This run is not complete: {amount:,.0f} of {wanted:,} {kind} so far."
    try:
        check_trained(run, config)
    except NoUpdates as error:
        return str(error)
    if pointed(run.checkpoints, FINAL) == WARM_START:
        return "The result is the warm start: no later checkpoint validated better (learner.keep_best)."
    if ending is None or not ending.is_out_of_time(config):
        return ""
    limit = f"learner.max_minutes={config.learner.max_minutes:g}"
    return f"{limit} ended this run after {ending.amount:,} of {ending.wanted:,} {kind}."


def _kind(config: Config) -> str:
    return "environment steps" if config.is_control else "training episodes"
