"""The judge `rules`: conditions that a user writes about the end of an episode, for screens without a state.

The first rule that matches the task decides: either all its conditions hold, or they do not. A task that no
rule matches is unjudged, and so is one whose rule needs elements of the screen that were not recorded.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from distrl.configs.judge import NAME, Rule, RulesConfig
from distrl.configs.parse import read_yaml
from distrl.core.actions import ActionKind
from distrl.core.errors import ConfigError
from distrl.core.importing import did_you_mean
from distrl.core.types import Task, Trajectory, Verdict
from distrl.core.user_errors import first_problem
from distrl.evaluator.judges.base import acted, screens

_KINDS = [kind.value for kind in ActionKind]


class RulesJudge:
    """Judges by rules.

    Args:
        config: The rules, or the file that contains them.

    Raises:
        ConfigError: The list of rules is empty, or a rule is not valid.
    """

    name = "rules"

    def __init__(self, config: RulesConfig) -> None:
        self._rules = written_rules(config)

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The verdict of the first rule that matches the task. `images` are unused."""
        for number, rule in enumerate(self._rules, start=1):
            values = _values(rule, trajectory.task)
            if values is None:
                continue
            try:
                missing = next(_missing(rule, trajectory, values), "")
            except (KeyError, IndexError) as error:
                return Verdict.none(self.name, f"Rule {number} needs {error}, which the task does not have.")
            except _NotRecorded:
                return Verdict.none(
                    self.name,
                    f"Rule {number} needs the elements of the last screen, but none were recorded: "
                    "worker.elements is not set, or the screen could not be read.",
                )
            reason = f"Rule {number}: {missing or 'all conditions hold.'}"
            return Verdict(success=not missing, score=float(not missing), reason=reason, judge=self.name)
        return Verdict.none(self.name, "No rule matches this task.")


class _NotRecorded(Exception):
    """A rule needs elements that the episode does not have."""


def _values(rule: Rule, task: Task) -> dict[str, Any] | None:
    """The values of {name} in the rule's patterns; None if the rule does not match the task."""
    if not fnmatch.fnmatchcase(task.id, rule.task) or not re.search(rule.template, task.template):
        return None
    found = re.search(rule.goal, task.goal, re.IGNORECASE)
    if found is None:
        return None
    return {**task.params, **{name: value or "" for name, value in found.groupdict().items()}}


def _missing(rule: Rule, trajectory: Trajectory, values: Mapping[str, Any]) -> Iterator[str]:
    """The rule's conditions that do not hold, one sentence each."""
    last, steps = screens(trajectory)[-1], acted(trajectory)
    if rule.app and not _fits(rule.app, last.app, values):
        yield f"{last.app or 'an unknown app'} is in front."
    if (rule.text or rule.not_text) and last.elements is None:
        raise _NotRecorded
    texts = [text for one in last.elements or () for text in (one.text, one.description) if text]
    for pattern in rule.text:
        if not any(_fits(pattern, text, values) for text in texts):
            yield f"{pattern!r} is not on the screen."
    for pattern in rule.not_text:
        if any(_fits(pattern, text, values) for text in texts):
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
    """Whether `pattern`, with {names} replaced, matches a text; case is ignored.

    Raises:
        KeyError: A name is unknown.
    """
    filled = NAME.sub(lambda name: re.escape(str(values[name[1]])), pattern)
    return re.search(filled, text, re.IGNORECASE) is not None


def written_rules(config: RulesConfig) -> list[Rule]:
    """All rules, first the configuration's, then the file's.

    Raises:
        ConfigError: The list of rules is empty, or a rule in the file is not valid.
    """
    rules = config.rules
    if config.path:
        file = Path(config.path).expanduser()
        try:
            rules = [*rules, *TypeAdapter(list[Rule]).validate_python(read_yaml(file))]
        except ValidationError as error:
            first = error.errors()[0]
            is_unknown = first["type"] == "extra_forbidden"
            hint = did_you_mean(str(first["loc"][-1]), Rule.model_fields) if is_unknown else ""
            raise ConfigError(f"{file}: {first_problem(error)}.", f"{hint}Write a list of rules.") from error
    if not rules:
        raise ConfigError("The judge 'rules' has no rules.", "Set judge.path or judge.rules.")
    for number, rule in enumerate(rules, start=1):
        for kind in set(rule.last) - set(_KINDS):
            raise ConfigError(
                f"Rule {number}: {kind!r} in `last` is not a kind of action.",
                f"{did_you_mean(kind, _KINDS)}Use {', '.join(_KINDS)}.",
            )
    return rules
