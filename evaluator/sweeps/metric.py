"""Whether a sweep's metric and curve exist: told before the first run as far as known, else after it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from distrl.configs.sweep import Sweep
from distrl.core.errors import ConfigError
from distrl.core.metrics import FAMILIES
from distrl.core.rundir import RunDir
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.sweeps.runs import FIELDS, RETURN, RunResult

SHOWN = 12
"""How many names are listed where none is near."""


def check_metric(sweep: Sweep) -> None:
    """Makes sure that the sweep's runs can have its metric and its curve.

    Of an evaluation all numbers are known beforehand, of the names in metrics.jsonl what they begin with. The
    rest is known when a run is finished, see `not_measured`.

    Raises:
        ConfigError: They cannot.
    """
    evaluated, splits = _evaluated(sweep), _test_splits(sweep)
    recorded = [f"eval/{split}/success" for split in _validation_splits(sweep)]
    if not _is_recorded(sweep.curve, sweep):
        raise _unknown("curve", sweep.curve, recorded)
    joined, _, number = sweep.metric.rpartition("/")
    asked = joined.split("+")
    is_evaluated = sweep.metric in evaluated or (number in FIELDS and set(asked) <= set(splits))
    if is_evaluated or _is_recorded(sweep.metric, sweep):
        return
    if number in FIELDS and splits and joined and "/" not in joined:
        missing = next(split for split in asked if split not in splits)
        raise ConfigError(
            f"The sweep's metric {sweep.metric} asks for the split {missing!r}, which is not in tasks.test.",
            _hint(missing, splits),
        )
    raise _unknown("metric", sweep.metric, evaluated + recorded)


def not_measured(sweep: Sweep, result: RunResult) -> str | None:
    """What a finished run lacks of the metric or the curve, in a line; None if it has both.

    Without a curve of the learner's own rounds of evaluation nothing is wrong: they can be switched off.
    """
    if not result.is_finished:
        return None
    if result.after is None:
        what, name, known = "metric", sweep.metric, _evaluated(sweep)
    elif not result.curve and not sweep.curve.startswith("eval/"):
        what, name, known = "curve", sweep.curve, []
    else:
        return None
    rows = RunMetrics.read(RunDir(result.directory).metrics).rows
    hint = _hint(name, known + sorted({name for row in rows for name in row}))
    return f"{result.directory} has no {name}, which is the sweep's {what}. {hint}"


def _unknown(what: str, name: str, known: Sequence[str]) -> ConfigError:
    family, slash, rest = name.partition("/")
    near = difflib.get_close_matches(family, sorted(FAMILIES), n=1, cutoff=0.75) if slash else []
    likely = [f"{one}/{rest}" for one in near if one != family]
    hint = _hint(name, [*known, *likely])
    return ConfigError(f"The sweep's {what} {name} is nothing that its runs measure.", hint)


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]}?"
    more = ", …" if len(known) > SHOWN else ""
    return f"There are: {', '.join(known[:SHOWN])}{more}."


def _is_recorded(name: str, sweep: Sweep) -> bool:
    """Whether the names in metrics.jsonl are of this form."""
    family, _, rest = name.partition("/")
    if family == "eval" and "/" in rest:
        return rest.startswith(tuple(f"{split}/" for split in _validation_splits(sweep)))
    return family in FAMILIES


def _evaluated(sweep: Sweep) -> list[str]:
    """The numbers of the evaluations before and after, of single splits."""
    returns = [RETURN] if any(run.config.goal.metric == RETURN for run in sweep.runs) else []
    return returns + [f"{split}/{number}" for split in _test_splits(sweep) for number in FIELDS]


def _test_splits(sweep: Sweep) -> list[str]:
    found = [
        split for run in sweep.runs if run.config.goal.metric != RETURN for split in run.config.tasks.test
    ]
    return list(dict.fromkeys(found))


def _validation_splits(sweep: Sweep) -> list[str]:
    found = [run.config.tasks.validation for run in sweep.runs if run.config.goal.metric != RETURN]
    return list(dict.fromkeys(found))
