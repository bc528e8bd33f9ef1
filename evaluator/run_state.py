"""The state of a run, from its directory: whether it is complete, what ended it, whether it was trained."""

from __future__ import annotations

import json
from dataclasses import dataclass

from distrl.configs.schema import Config
from distrl.core.checkpoints import note_of, pointed
from distrl.core.errors import NoUpdates
from distrl.core.rundir import RunDir
from distrl.evaluator.results import RESULTS_FILE

WARM_START, FINAL = "step_0", "final"
AFTER = "after training"
"""The label of a run's result in reports; the label of its start is the goal's."""


@dataclass(frozen=True)
class Ending:
    """The state of a run when its result was named.

    Attributes:
        amount, wanted: Training episodes (environment steps in continuous control): done, and configured.
        online_s: Seconds that count towards `learner.max_minutes`.
        is_solved: Whether the mean return reached the goal's target.
    """

    amount: int
    wanted: int
    online_s: float
    is_solved: bool = False

    def is_out_of_time(self, config: Config) -> bool:
        """Whether `learner.max_minutes` ended it early."""
        minutes = config.learner.max_minutes
        is_short = self.amount < self.wanted and not self.is_solved
        return is_short and minutes is not None and self.online_s >= 60.0 * minutes


def read_ending(run: RunDir, config: Config) -> Ending | None:
    """How the run ended; None if it has no result."""
    note = note_of(run.checkpoints, FINAL)
    if pointed(run.checkpoints, FINAL) is None:
        return None
    try:
        data, goal = json.loads(note), config.goal
        mean_return = data.get("return")
        is_solved = goal.target is not None and mean_return is not None and mean_return >= goal.target
        return Ending(int(data[goal.counter]), goal.amount, float(data["online_s"]), is_solved)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_complete(run: RunDir, config: Config) -> bool:
    """Whether the run has its result, and `config` asks for no more training."""
    ending = read_ending(run, config)
    if ending is None:
        return False
    return ending.amount >= ending.wanted or ending.is_solved or ending.is_out_of_time(config)


def is_untrained(run: RunDir) -> bool:
    """Whether the run ended without an update of the policy."""
    return pointed(run.checkpoints, FINAL) is not None and pointed(run.checkpoints, "latest") == WARM_START


def arms(run: RunDir, config: Config) -> dict[str, str]:
    """The checkpoints that a run's report compares, by label; if start and result are the same, only one.

    Runs of continuous control have no checkpoint of their start, unless they ended there.
    """
    result = pointed(run.checkpoints, FINAL)
    found = {config.goal.start: WARM_START} if (run.checkpoints / WARM_START).is_dir() else {}
    return found if result in (None, WARM_START) else {**found, AFTER: str(result)}


def is_measured(run: RunDir, config: Config) -> bool:
    """Whether these checkpoints are evaluated, if the run evaluates them itself."""
    names = arms(run, config).values() if config.local.workers else ()
    return all((run.evaluations / name / RESULTS_FILE).is_file() for name in names)


def check_trained(run: RunDir, config: Config) -> None:
    """Raises NoUpdates if a run ended before its first update."""
    ending = read_ending(run, config) if is_untrained(run) else None
    if ending is None:
        return
    limited, limit, goal = ending.is_out_of_time(config), config.learner.max_minutes, config.goal
    what = f"learner.max_minutes={limit:g} ended the run" if limited else "the run ended"
    raise NoUpdates(
        f"The policy was not updated: {what} after {ending.amount:,} {goal.unit}, and the first update needs "
        f"{goal.first:,}.",
        f"Raise {_limit(ending, config)} and continue with --resume.",
    )


def describe_stopped(run: RunDir, command: str) -> str:
    """One line on a run that was stopped: the command that continues it, and whether training starts over."""
    text = f"Stopped. Continue with: {command}"
    if pointed(run.checkpoints, "latest") is None and pointed(run.warm_up, "latest") is None:
        text += " (it had no checkpoint yet: training begins again, with the episodes that are stored)"
    return text


def describe_complete(run: RunDir, config: Config) -> str:
    """Two lines on a complete run: the key that continues it, and its report."""
    ending = read_ending(run, config)
    assert ending is not None
    report = f"Report: {run.report}" if run.report.is_file() else f"Report: run distrl report {run.path}"
    return f"{run.path} is complete. To continue it, raise {_limit(ending, config)}.\n{report}"


def _limit(ending: Ending, config: Config) -> str:
    """The key that ended a complete run; raising it continues the run."""
    if ending.is_out_of_time(config):
        return "learner.max_minutes"
    if ending.is_solved:
        return "learner.algorithm.stop_at_return"
    return config.goal.key


def describe(run: RunDir, config: Config, amount: float = 0.0) -> str:
    """One line on an unusual state of the run; "" if it is complete and was trained.

    Args:
        amount: The value of the goal's counter in the metrics so far.
    """
    ending, goal = read_ending(run, config), config.goal
    if pointed(run.checkpoints, FINAL) is None or (ending and not is_complete(run, config)):
        return f"This run is not complete: {amount:,.0f} of {goal.amount:,} {goal.unit} so far."
    try:
        check_trained(run, config)
    except NoUpdates as error:
        return str(error)
    if pointed(run.checkpoints, FINAL) == WARM_START:
        return "The result is the warm start: no later checkpoint validated better (learner.keep_best)."
    if ending is None or not ending.is_out_of_time(config):
        return ""
    limit = f"learner.max_minutes={config.learner.max_minutes:g}"
    return f"{limit} ended this run after {ending.amount:,} of {ending.wanted:,} {goal.unit}."
