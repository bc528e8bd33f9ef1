"""Reading and checking the rules that a user writes: what could never come true is told, not judged by."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from distrl.configs.judge import Rule, RulesConfig
from distrl.configs.parse import read_yaml
from distrl.core.actions import ActionKind
from distrl.core.errors import ConfigError
from distrl.core.fields import first_problem

NAME = re.compile(r"\{([A-Za-z_]\w*)\}")
"""What stands for a named group of the goal or a param of the task."""

_KINDS = [kind.value for kind in ActionKind]


def written_rules(config: RulesConfig) -> list[Rule]:
    """All rules, those of the configuration before those of the file.

    Raises:
        ConfigError: There are none, or one is wrong.
    """
    rules = [*config.rules, *(_read(Path(config.path).expanduser()) if config.path else [])]
    if not rules:
        raise ConfigError("The judge 'rules' has no rules.", "Set judge.rules.path or judge.rules.rules.")
    for number, rule in enumerate(rules, start=1):
        _check_patterns(rule, number)
        _check_kinds(rule, number)
        _check_boxes(rule, number)
    return rules


def _read(file: Path) -> list[Rule]:
    try:
        return TypeAdapter(list[Rule]).validate_python(read_yaml(file))
    except ValidationError as error:
        first = error.errors()[0]
        hint = (
            _near(str(first["loc"][-1]), list(Rule.model_fields))
            if first["type"] == "extra_forbidden"
            else ""
        )
        raise ConfigError(f"{file}: {first_problem(error)}.", f"{hint}It is a list of rules.") from error


def _check_patterns(rule: Rule, number: int) -> None:
    filled = {"app": [rule.app], "text": rule.text, "not_text": rule.not_text, "typed": rule.typed}
    patterns = {"template": [rule.template], "goal": [rule.goal]}
    patterns |= {key: [NAME.sub("x", pattern) for pattern in found] for key, found in filled.items()}
    for key, found in patterns.items():
        for pattern in found:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"Rule {number}: {key} {pattern!r} is no regular expression: {error}.",
                    "Correct it; a sign that stands for itself has a \\ before it.",
                ) from error


def _check_kinds(rule: Rule, number: int) -> None:
    for kind in rule.last:
        if kind not in _KINDS:
            raise ConfigError(
                f"Rule {number}: last has {kind!r}, which is no kind of action.",
                f"{_near(kind, _KINDS)}There are {', '.join(_KINDS)}.",
            )


def _check_boxes(rule: Rule, number: int) -> None:
    for box in rule.tapped:
        left, top, right, bottom = box
        if not (0.0 <= left < right <= 1.0 and 0.0 <= top < bottom <= 1.0):
            raise ConfigError(
                f"Rule {number}: nothing can be tapped in {box}.",
                "Write [left, top, right, bottom] in shares of the screen: from 0 to 1, and not in pixels.",
            )


def _near(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {near[0]!r}? " if near else ""
