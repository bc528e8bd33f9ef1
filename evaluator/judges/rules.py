"""The judge `rules`: what a user writes down about the end of an episode, where no state can be asked.

The first rule that is for the task decides: all that it asks for is there, or it is not. A task that no rule
is for is unjudged, and so is one whose rule asks for texts of the screen that nobody recorded.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any

from distrl.configs.judge import Rule, RulesConfig
from distrl.core.types import Task, Trajectory
from distrl.core.verdicts import Verdict
from distrl.evaluator.judges.base import acted, screens, undecided
from distrl.evaluator.judges.written_rules import NAME, written_rules


class RulesJudge:
    """Judges by rules.

    Args:
        config: The rules, or the file where they are.

    Raises:
        ConfigError: There are none, or one is wrong.
    """

    name = "rules"

    def __init__(self, config: RulesConfig) -> None:
        self._rules = written_rules(config)

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """What the first rule for the task says. `images` are not looked at."""
        for number, rule in enumerate(self._rules, start=1):
            values = _values(rule, trajectory.task)
            if values is None:
                continue
            try:
                missing = next(_missing(rule, trajectory, values), "")
            except (KeyError, IndexError) as error:
                return undecided(self.name, f"Rule {number} asks for {error}, which the task does not have.")
            except _NotRecorded:
                return undecided(
                    self.name,
                    f"Rule {number} asks for texts, and none were recorded: worker.texts is not set, or "
                    "the screen could not be read.",
                )
            reason = f"Rule {number}: {missing or 'all that it asks for is there.'}"
            return Verdict(success=not missing, score=float(not missing), reason=reason, judge=self.name)
        return undecided(self.name, "No rule is for this task.")


class _NotRecorded(Exception):
    """A rule asks for texts that the episode does not have."""


def _values(rule: Rule, task: Task) -> dict[str, Any] | None:
    """What can stand for {name} in the rule's patterns; None if the rule is not for this task."""
    if not fnmatch.fnmatchcase(task.id, rule.task) or not re.search(rule.template, task.template):
        return None
    found = re.search(rule.goal, task.goal, re.IGNORECASE)
    if found is None:
        return None
    return {**task.params, **{name: value or "" for name, value in found.groupdict().items()}}


def _missing(rule: Rule, trajectory: Trajectory, values: Mapping[str, Any]) -> Iterator[str]:
    """What the rule asks for and the episode does not have, one sentence each."""
    last, steps = screens(trajectory)[-1], acted(trajectory)
    if rule.app and not _fits(rule.app, last.app, values):
        yield f"{last.app or 'no known app'} is in front."
    if (rule.text or rule.not_text) and last.texts is None:
        raise _NotRecorded
    for pattern in rule.text:
        if not any(_fits(pattern, text, values) for text in last.texts or ()):
            yield f"{pattern!r} is not on the screen."
    for pattern in rule.not_text:
        if any(_fits(pattern, text, values) for text in last.texts or ()):
            yield f"{pattern!r} is on the screen."
    for pattern in rule.typed:
        if not any(_fits(pattern, step.action.text, values) for step in steps if step.action.kind == "type"):
            yield f"{pattern!r} was not typed."
    for left, top, right, bottom in rule.tapped:
        points = [step.action.point for step in steps if step.action.kind == "tap"]
        if not any(p is not None and left <= p[0] <= right and top <= p[1] <= bottom for p in points):
            yield f"nothing in {[left, top, right, bottom]} was tapped."
    kinds = [step.action.kind for step in trajectory.steps]
    if rule.last and kinds[-len(rule.last) :] != rule.last:
        yield f"the last actions are {', '.join(kinds[-len(rule.last) :])}."
    if rule.max_steps is not None and len(kinds) > rule.max_steps:
        yield f"it took {len(kinds)} steps."


def _fits(pattern: str, text: str, values: Mapping[str, Any]) -> bool:
    """Whether a text has what `pattern` is for, {names} replaced; case does not count.

    Raises:
        KeyError: There is no such name.
    """
    filled = NAME.sub(lambda name: re.escape(str(values[name[1]])), pattern)
    return re.search(filled, text, re.IGNORECASE) is not None
