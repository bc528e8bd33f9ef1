"""A sweep: which runs it is made of. A YAML file with a base configuration, arms, a grid and seeds.

base: quickstart                     # a preset or a file; a relative path is seen from this file
set: {learner.episodes: 100000}      # for all runs; sections may be written out as well
arms:                                # by name, what each changes
  aride: {}
  uniform: {learner.replay.priority: uniform}
grid: {learner.replay.alpha: [0.5, 1.0]}       # each combination, of each arm
seeds: [0, 1, 2]
minutes: 10                          # of practice in each run: learner.max_minutes
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from distrl.configs.arms import choose, points, with_values
from distrl.configs.load import check_config, find_config, load_config
from distrl.configs.modules import find_modules
from distrl.configs.parse import read_yaml
from distrl.configs.presets import find_file
from distrl.configs.schema import Config
from distrl.configs.section import Positive, Section
from distrl.core.errors import ConfigError

SWEEPS_DIR = Path(__file__).resolve().parent / "sweeps"
MAX_RUNS = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]*")


class SweepSpec(Section):
    """What a sweep's file holds.

    Attributes:
        name: Of its directory; by default the file's.
        base: A preset or a configuration file.
        common: For all runs (the key is `set`).
        grid: Key → values; every combination is an arm.
        arms: Name → what it changes. With a grid, each arm has the whole grid.
        seeds: Each arm is run once with each.
        minutes: `learner.max_minutes`; by default the base's.
        metric: What is compared: SPLIT/success of the evaluation before and after, or of several splits as
            A+B/success (also score, steps, reward, invalid, repeats); of continuous control, return; or a
            name in metrics.jsonl, whose first and last values are taken. By default the success on the first
            test split, or the return.
        curve: A name in metrics.jsonl to plot over time; by default validation success.
        threshold: Of the curve; how long it takes to get there is part of the table.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    base: str
    common: dict[str, Any] = Field(default={}, alias="set")
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    arms: dict[str, dict[str, Any] | None] = {}
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)] = [0]
    minutes: Positive | None = None
    metric: str | None = None
    curve: str | None = None
    threshold: float | None = None

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, value: list[int]) -> list[int]:
        if len(set(value)) < len(value):
            raise ValueError("a seed appears twice")
        return value

    @field_validator("arms")
    @classmethod
    def _arms_name_directories(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name of an arm; use letters, digits and ._=,+-")
        return value


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep; `config` is all of its configuration, with its place."""

    arm: str
    seed: int
    config: Config

    @property
    def directory(self) -> Path:
        """SWEEP/ARM/seed-S."""
        return Path(self.config.runs_dir).expanduser() / self.config.name


@dataclass(frozen=True)
class Sweep:
    """A checked sweep.

    Attributes:
        directory: Where its runs, table and plot go.
        metric, curve: As in `SweepSpec`, defaults resolved.
        threshold: As in `SweepSpec`.
        runs: All of them, seed by seed: when time ends, all arms have had the same number.
    """

    name: str
    directory: Path
    metric: str
    curve: str
    threshold: float | None
    runs: tuple[PlannedRun, ...]

    @property
    def arms(self) -> list[str]:
        """The arms' names, in the order of the file."""
        return list(dict.fromkeys(run.arm for run in self.runs))


def load_sweep(
    path: str | Path,
    seeds: Sequence[int] | None = None,
    minutes: float | None = None,
    arms: Sequence[str] | None = None,
    runs_dir: str | None = None,
    name: str | None = None,
) -> Sweep:
    """Reads a sweep and checks the configuration of every run.

    Args:
        path: A YAML file, or a preset's name.
        seeds, minutes, runs_dir, name: In place of the file's, or of its base's.
        arms: Only these, by the name of an arm, or of an arm with its values in the grid.

    Raises:
        ConfigError: Something in the file, or in a run that it describes, is wrong.
    """
    file = find_file(path, SWEEPS_DIR, "sweep")
    spec = _read(file, {"seeds": list(seeds) if seeds else None, "minutes": minutes, "name": name})
    base = load_config(_base(spec.base, file))
    common = with_values(base.model_dump(mode="json"), spec.common, f"{file}: set")
    if spec.minutes is not None:
        common["learner"]["max_minutes"] = float(spec.minutes)
    shared = check_config(common, f"{file}: set")
    name = spec.name or file.stem
    directory = Path(runs_dir if runs_dir is not None else shared.runs_dir) / name
    num_runs = max(1, len(spec.arms)) * math.prod(map(len, spec.grid.values())) * len(spec.seeds)
    if num_runs > MAX_RUNS:
        raise ConfigError(f"{file}: {num_runs} runs are more than {MAX_RUNS}.", "Make the grid smaller.")
    found = dict(points(spec.arms, spec.grid, str(file)))
    chosen = choose(found, spec.arms, arms)
    configs = {}
    for arm, values in chosen.items():
        data = with_values(common, values, f"{file}: arm {arm}")
        data["runs_dir"] = str(directory / arm)
        configs[arm] = find_modules(check_config(data, f"{file}: arm {arm}"), file.parent)
        if not configs[arm].local.workers:
            raise ConfigError(
                f"{file}: arm {arm}: local.workers is 0, but a sweep measures its runs on this machine.",
                "Set local.workers to 1 or more, or make each run by `distrl train`.",
            )
    runs = tuple(
        PlannedRun(arm, seed, config.model_copy(update={"name": f"seed-{seed}", "seed": seed}))
        for seed in spec.seeds
        for arm, config in configs.items()
    )
    metric, curve = shared.goal.metric, shared.goal.curve
    return Sweep(
        name=name,
        directory=directory.expanduser(),
        metric=spec.metric or metric,
        curve=spec.curve or curve,
        threshold=spec.threshold,
        runs=runs,
    )


def _read(file: Path, instead: Mapping[str, Any]) -> SweepSpec:
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise ConfigError(f"{file} is no sweep.", "Write at least `base: quickstart` and `seeds: [0, 1]`.")
    data |= {key: value for key, value in instead.items() if value is not None}
    try:
        return SweepSpec.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise _explain(error, file) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file}: {error}.", "Use plain YAML data only.") from error


def _explain(error: ValidationError, file: Path) -> ConfigError:
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in problems[0]["loc"])
    if problems[0]["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in SweepSpec.model_fields.items()]
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
        hint = f"Did you mean `{near[0]}`?" if near else f"A sweep has: {', '.join(known)}."
        return ConfigError(f"{file}: unknown key `{path}`.", hint)
    expected = problems[0]["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return ConfigError(f"{file}: `{path}`: {expected}.")


def _base(base: str, file: Path) -> Path:
    """The base's file: beside the sweep's, else as on the command line."""
    beside = file.parent / Path(base).expanduser()
    return beside if beside.is_file() else find_config(Path(base).expanduser())
