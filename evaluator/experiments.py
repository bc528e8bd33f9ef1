"""Experiments: one YAML file that describes many runs (`distrl sweep`) or many measurements (`distrl table`).

Both start from a configuration and repeat every row over seeds: a sweep trains its rows, arms and points of a
grid; a table measures its rows, agents, on suites. docs/evaluation.md explains them; presets are in
configs/experiments.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from distrl.configs.load import PRESETS_DIR, check_config, find_config, find_file, find_modules, load_config
from distrl.configs.parse import read_yaml
from distrl.configs.schema import Config
from distrl.configs.section import Positive, Section
from distrl.core.errors import CheckpointError, ConfigError
from distrl.core.importing import look_in
from distrl.core.user_errors import check_known
from distrl.evaluator.evaluator import Evaluator
from distrl.evaluator.measure import Measured, measure, model_of, pool, seed_directory
from distrl.evaluator.prompted import NAME, as_prompted
from distrl.evaluator.results import RESULTS_FILE
from distrl.evaluator.runner import EvaluationStopped
from distrl.workers.virtual import as_simulated

if TYPE_CHECKING:
    import threading

EXPERIMENTS_DIR = PRESETS_DIR / "experiments"
SEED = "{seed}"
RESERVED = {
    "name": "runs are named after their arm and seed",
    "runs_dir": "runs are in the experiment's directory; set it in the base, or with --runs-dir",
    "seed": "list seeds under `seeds`",
}
FREE = ("options", "recipe", "guard", "weights", "ds_config")
"""Sections whose keys are the user's: a key that only one configuration has makes them differ."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
Values = dict[str, Any]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Suite(Section):
    """Columns of a table; `values` (the key is `set`) changes the configuration.

    `trained_on` is the suite of the table that agents are trained for, if it is another one. Such suites have
    a table of their own, as in the paper's figure 11.
    """

    values: Values = Field(default={}, alias="set")
    splits: Annotated[list[str], Field(min_length=1)] = ["train", "test"]
    title: str = ""
    trained_on: str = ""


class Agent(Section):
    """A table's row: exactly one of `agent`, `checkpoint` and `inference`.

    Attributes:
        checkpoint: A checkpoint or a run, for all suites or by suite. `{seed}` stands for the seed: each
            repetition then measures a different run.
        inference: Servers that run already.
        kind: The first column of the table, such as "Prompting".
        is_reference: For comparison only, such as the expert, and never the best (the key is `reference`).
        over: Another row, with which this one is compared.
    """

    agent: str | None = None
    checkpoint: str | dict[str, str] | None = None
    inference: list[str] = []
    values: Values = Field(default={}, alias="set")
    kind: str = ""
    is_reference: bool = Field(default=False, alias="reference")
    over: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Agent:
        if sum(bool(one) for one in (self.agent, self.checkpoint, self.inference)) != 1:
            raise ValueError("give exactly one of agent, checkpoint and inference")
        return self

    def checkpoint_for(self, suite: str, seed: int) -> str | None:
        """The checkpoint of this agent that was trained for `suite`; None if it names none."""
        found = self.checkpoint.get(suite) if isinstance(self.checkpoint, dict) else self.checkpoint
        return None if found is None else found.replace(SEED, str(seed))


class Gate(Section):
    """What has to hold for a sweep's comparison to mean anything, written down before its runs.

    Attributes:
        arm: The arm that is looked at.
        metric: A name in metrics.jsonl: its mean over each run of the arm.
        over: Another arm, in place of `metric`: by how much its result, the sweep's metric, is better.
        least, most: The gate holds if the mean over seeds lies between them.
    """

    arm: str
    metric: str | None = None
    over: str | None = None
    least: float | None = None
    most: float | None = None

    @model_validator(mode="after")
    def _is_one_number_with_a_limit(self) -> Gate:
        if (self.metric is None) == (self.over is None):
            raise ValueError("give exactly one of metric and over")
        if self.least is None and self.most is None:
            raise ValueError("give least, most or both")
        return self


class Tune(Section):
    """A key whose value is chosen for each arm: the one with the largest area under the sweep's curve.

    All `values` are run with `seeds`, which are among the sweep's, and the other seeds with the chosen one.
    """

    key: str
    values: Annotated[list[Any], Field(min_length=2)]
    seeds: Annotated[list[Seed], Field(min_length=1)]


class Experiment(Section):
    """The keys of an experiment's file.

    Attributes:
        values: For all rows (the key is `set`).
        seeds: Default: [0] for runs, [0, 1, 2] for measurements.
        grid: Key → values; every combination is an arm. With `arms`, each arm has the whole grid.
        arms: The arms, or the path of a file with them, beside this one or in configs/experiments.
        time: `virtual` runs are made by `distrl simulate`, and `minutes` are virtual.
        metric: SPLIT/success of the evaluation before and after, or of several splits as A+B/success (also
            score, steps, reward, invalid, repeats); of continuous control, return; or a name in
            metrics.jsonl, of which the first and the last values are taken.
        curve: A name in metrics.jsonl to plot over time; by default validation success.
        episodes: The most tasks of each split; all when null.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    title: str = ""
    base: str
    values: Values = Field(default={}, alias="set")
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    arms: dict[str, Values | None] = {}
    time: Literal["real", "virtual"] = "real"
    tune: Tune | None = None
    gates: dict[str, Gate] = {}
    minutes: Positive | None = None
    metric: str | None = None
    curve: str | None = None
    threshold: float | None = None
    suites: dict[str, Suite] = {}
    agents: dict[str, Agent] = {}
    episodes: Annotated[int, Field(ge=1)] | None = 128

    @field_validator("arms", "suites", "agents")
    @classmethod
    def _names_are_directories(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name; use letters, digits and ._=,+-")
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> Experiment:
        if self.seeds and len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed appears twice")
        if bool(self.suites) != bool(self.agents) or (self.agents and (self.arms or self.grid)):
            raise ValueError("give either `arms` and `grid` to train, or `suites` and `agents` to measure")
        if self.tune and not set(self.tune.seeds) < set(self.seeds or ()):
            raise ValueError("the seeds of `tune` must be some of `seeds`, not all")
        if self.gates and self.grid:
            raise ValueError("gates name arms, which a `grid` splits up: write the points as `arms`")
        for name, gate in self.gates.items():
            if unknown := {gate.arm, gate.over or gate.arm} - set(self.arms):
                raise ValueError(f"the gate {name!r} names the arm {min(unknown)!r}, which does not exist")
        for name, suite in self.suites.items():
            if suite.trained_on and suite.trained_on not in self.suites:
                raise ValueError(f"{name} cannot have trained_on {suite.trained_on!r}, which is not a suite")
        for name, agent in self.agents.items():
            if agent.over is not None and (agent.over == name or agent.over not in self.agents):
                raise ValueError(f"{name} cannot be compared with {agent.over!r}; `over` names another row")
        return self


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep; `config` is its whole configuration, with its place.

    `family` is the arm without the value that is tuned.
    """

    arm: str
    seed: int
    config: Config
    family: str = ""

    @property
    def directory(self) -> Path:
        """SWEEP/ARM/seed-S."""
        return Path(self.config.runs_dir).expanduser() / self.config.name


@dataclass(frozen=True)
class Sweep:
    """A checked sweep; `runs` are seed by seed: when time ends, all arms have had the same number."""

    name: str
    directory: Path
    metric: str
    curve: str
    threshold: float | None
    runs: tuple[PlannedRun, ...]
    is_virtual: bool = False
    tune: Tune | None = None
    gates: Mapping[str, Gate] = field(default_factory=dict)

    def families(self) -> dict[str, str]:
        """The family of each arm."""
        return {run.arm: run.family for run in self.runs}

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
        arms: Only these, by the name of an arm, or of an arm with its values in the grid.
    """
    spec, file = _read(path, seeds=seeds, minutes=minutes, name=name)
    if spec.agents:
        raise ConfigError(f"{file} describes measurements.", f"Run distrl table {path}.")
    seeds = spec.seeds or [0]
    common = with_values(_base(spec), spec.values, f"{file}: set")
    if spec.minutes is not None:
        common["learner"]["max_minutes"] = float(spec.minutes)
    shared = check_config(common, f"{file}: set")
    directory = Path(runs_dir if runs_dir is not None else shared.runs_dir) / spec.name
    configs, tuned = {}, {spec.tune.key: spec.tune.values} if spec.tune else {}
    grid = {**spec.grid, **tuned}
    for arm, values in _chosen(dict(_points(spec.arms, grid, str(file))), spec.arms, arms).items():
        data = with_values(common, values, f"{file}: arm {arm}")
        data["runs_dir"] = str(directory / arm)
        configs[arm] = find_modules(check_config(data, f"{file}: arm {arm}"), file.parent)
        if spec.time == "virtual":
            configs[arm] = as_simulated(configs[arm])
        if not configs[arm].local.workers:
            raise ConfigError(
                f"{file}: arm {arm}: local.workers is 0, but a sweep measures its runs on this machine.",
                "Set local.workers to 1 or more, or make each run with `distrl train`.",
            )
    runs = tuple(
        PlannedRun(
            arm,
            seed,
            config.model_copy(update={"name": f"seed-{seed}", "seed": seed}),
            arm.rpartition(",")[0] if spec.tune else arm,
        )
        for seed in sorted(seeds, key=lambda seed: not (spec.tune and seed in spec.tune.seeds))
        for arm, config in configs.items()
    )
    metric, curve = spec.metric or shared.goal.metric, spec.curve or shared.goal.curve
    is_virtual = spec.time == "virtual"
    place = directory.expanduser()
    return Sweep(spec.name, place, metric, curve, spec.threshold, runs, is_virtual, spec.tune, spec.gates)


def load_table(
    path: str | Path,
    agents: Sequence[str] | None = None,
    suites: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    episodes: int | None = None,
) -> Experiment:
    """Reads a table's file; only the rows `agents`, and the columns of `suites`."""
    spec, file = _read(path, seeds=seeds, episodes=episodes)
    if not spec.agents:
        raise ConfigError(f"{file} describes runs to train.", f"Run distrl sweep {path}.")
    for name in agents or ():
        check_known("agent", name, spec.agents)
    for name in suites or ():
        check_known("suite", name, spec.suites)
    look_in(file.parent.resolve())
    changes = {
        "agents": spec.agents if agents is None else {name: spec.agents[name] for name in agents},
        "suites": {name: suite for name, suite in spec.suites.items() if suites is None or name in suites},
        "seeds": spec.seeds or [0, 1, 2],
    }
    return spec.model_copy(update=changes)


def _read(path: str | Path, **instead: Any) -> tuple[Experiment, Path]:
    """The experiment in a file, with a base that is a path, and that file. `instead` overrides its values."""
    file = find_file(path, EXPERIMENTS_DIR, "experiment")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise ConfigError(
            f"{file} is not an experiment.", "Write at least `base: quickstart`, `seeds: [0, 1]`."
        )
    data |= {key: value for key, value in instead.items() if value is not None}
    data.setdefault("name", file.stem)
    if isinstance(data.get("arms"), str):
        shared = file.parent / data["arms"]
        data["arms"] = read_yaml(shared if shared.is_file() else EXPERIMENTS_DIR / data["arms"])
    try:
        spec = Experiment.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise _explain(error, file) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file}: {error}.", "Use plain YAML data only.") from error
    beside = file.parent / Path(spec.base).expanduser()
    base = beside if beside.is_file() else find_config(Path(spec.base).expanduser())
    return spec.model_copy(update={"base": str(base)}), file


def _base(spec: Experiment) -> Values:
    """The base, without what its policy has of its agent: the changes may give it another one."""
    config = load_config(spec.base)
    policy = config.policy.model_dump(mode="json", exclude_unset=True)
    return {**config.model_dump(mode="json"), "policy": policy}


def _explain(error: ValidationError, file: Path) -> ConfigError:
    """The first problem; an unknown key first, because a mistyped key often causes the others."""
    problem = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    path = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        sections: dict[str, type[Section]] = {"suites": Suite, "agents": Agent, "gates": Gate, "tune": Tune}
        section = sections[str(problem["loc"][0])] if len(problem["loc"]) > 1 else Experiment
        known = ", ".join(field.alias or name for name, field in section.model_fields.items())
        return ConfigError(f"{file}: unknown key `{path}`.", f"Known keys there: {known}.")
    return ConfigError(f"{file}: `{path}`: {problem['msg'].removeprefix('Value error, ')}.")


def _points(
    arms: Mapping[str, Values | None], grid: Mapping[str, Sequence[Any]], source: str
) -> Iterator[tuple[str, Values]]:
    """Name and values of each arm; with a grid, of each of its points. Without arms, of the base."""
    seen: set[str] = set()
    for arm, values in (arms or {"": None}).items():
        for point in itertools.product(*grid.values()):
            chosen = dict(zip(grid, point, strict=True))
            words = [arm] if arm else []
            words += [f"{_label(key, grid)}={_word(value)}" for key, value in chosen.items()]
            name = ",".join(words) or "base"
            if name.casefold() in seen:
                raise ConfigError(f"{source}: two arms are called {name!r}.", "Name them under `arms`.")
            seen.add(name.casefold())
            yield name, {**(values or {}), **chosen}


def _label(key: str, keys: Iterable[str]) -> str:
    """The last part of a key, or two if that is a position; the whole key if another ends like it."""
    parts = key.split(".")
    short = ".".join(parts[-2:] if parts[-1].isdigit() else parts[-1:])
    return key if any(other != key and other.endswith(f".{short}") for other in keys) else short


def _word(value: Any) -> str:
    """A value as a part of a directory's name."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if isinstance(value, int | float) else _UNSAFE.sub("-", text).strip("-") or "none"


def _chosen(
    points: Mapping[str, Values], arms: Mapping[str, Any], wanted: Sequence[str] | None
) -> Mapping[str, Values]:
    """The wanted `points`: by their own name, or by that of their arm."""
    if wanted is None:
        return points
    known = [*arms, *points]
    names = [name for want in wanted for name in ([want] if want in known else want.split(","))]
    for name in names:
        check_known("arm", name, known)
    prefixes = tuple(f"{name}," for name in names if name in arms)
    return {point: values for point, values in points.items() if point in names or point.startswith(prefixes)}


def with_values(data: Mapping[str, Any], values: Mapping[str, Any], source: str) -> Values:
    """A copy of `data` with `values` at their dotted keys; numbers are positions in lists.

    Sections merge, except that one with a `kind` replaces the old one.
    """
    changed: Values = copy.deepcopy(dict(data))
    for key, value in values.items():
        if key in RESERVED:
            raise ConfigError(f"{source}: `{key}` cannot be set in an experiment: {RESERVED[key]}.")
        _assign(changed, key.split("."), value, f"{source}: `{key}`")
    return changed


def _assign(data: Any, path: Sequence[str], value: Any, what: str) -> None:
    first, rest = path[0], path[1:]
    if isinstance(data, list):
        if not first.isdecimal() or int(first) >= len(data):
            raise ConfigError(
                f"{what}: {first!r} is not a position in a list of {len(data)}.", "Count from 0."
            )
        index: Any = int(first)
    elif isinstance(data, dict):
        index = first
        data.setdefault(first, None)
    else:
        raise ConfigError(f"{what} leads through {data!r}, which is not a section.", "Set that key itself.")
    if rest:
        data[index] = {} if data[index] is None else data[index]
        _assign(data[index], rest, value, what)
    elif isinstance(value, dict) and isinstance(data[index], dict) and "kind" not in value:
        for key, inner in value.items():
            _assign(data[index], [key], inner, what)
    else:
        data[index] = copy.deepcopy(value)


def difference(one: Any, other: Any) -> str | None:
    """The first dotted key that both configurations have with different values; "" if they are values."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return None if one == other else ""
    for name in [name for name in one if name in other]:
        is_free = name in FREE and one[name] != other[name]
        below = "" if is_free else difference(one[name], other[name])
        if below is not None:
            return f"{name}.{below}".rstrip(".")
    return None


@dataclass(frozen=True)
class Cell:
    """One agent on one suite of a table: the policy that each seed measures, and why some seeds have none."""

    agent: str
    suite: str
    splits: tuple[str, ...]
    config: Config
    directory: Path
    subjects: dict[int, Measured]
    missing: dict[int, str]

    def measured_seeds(self) -> list[int]:
        return [s for s in self.subjects if (seed_directory(self.directory, s) / RESULTS_FILE).is_file()]

    def open_seeds(self) -> list[int]:
        """The seeds still to be measured; raises DistrlError if the directory holds something else."""
        for seed, who in self.subjects.items():
            subject = who.subject(model_of(self.config, who))
            place = seed_directory(self.directory, seed)
            Evaluator(self.config, place, subject, self.splits, resume=True, seed=seed)
        measured = self.measured_seeds()
        return [seed for seed in self.subjects if seed not in measured]

    def measure(self, stop: threading.Event, say: Callable[[str], None]) -> None:
        """Measures the seeds that are left, each policy started once, and pools all of them.

        Raises:
            EvaluationStopped: `stop` was set; the same call continues.
        """
        by_policy: dict[Measured, list[int]] = {}
        for seed in self.open_seeds():
            by_policy.setdefault(self.subjects[seed], []).append(seed)
        for who, seeds in by_policy.items():
            say(f"{self.agent} on {self.suite}, seeds {', '.join(map(str, seeds))}")
            try:
                measure(self.config, who, self.directory, self.splits, True, stop, seeds=seeds)
            except EvaluationStopped as error:  # a table has no --resume
                raise EvaluationStopped(error.message, "Run the same command again to continue.") from None
        if self.subjects:
            pool(self.directory, list(self.subjects))


def plan_cells(spec: Experiment, directory: Path) -> list[Cell]:
    """The cells of the table, agent by agent."""
    return [_cell(spec, agent, suite, directory) for agent in spec.agents for suite in spec.suites]


def _cell(spec: Experiment, name: str, suite_name: str, directory: Path) -> Cell:
    suite = spec.suites[suite_name]
    trained_on = suite.trained_on or suite_name
    agent = spec.agents[name]
    subjects: dict[int, Measured] = {}
    missing: dict[int, str] = {}
    for seed in spec.seeds or ():
        who = Measured(inference=tuple(agent.inference), agent=agent.agent)
        if agent.checkpoint is not None:
            path = agent.checkpoint_for(trained_on, seed)
            if path is None:
                missing[seed] = f"no checkpoint is named for {trained_on}"
                continue
            who = Measured(checkpoint=Path(path).expanduser())
        try:
            who.subject()
        except CheckpointError as error:
            missing[seed] = str(error)
        else:
            subjects[seed] = who
    data = _base(spec)
    for values in (spec.values, suite.values, agent.values):
        data = with_values(data, values, spec.name)
    data["evaluate"]["episodes"] = spec.episodes
    config = check_config(data, spec.name)
    if agent.agent == NAME:
        config = as_prompted(config)
    place = directory / name / suite_name
    return Cell(name, suite_name, tuple(suite.splits), config, place, subjects, missing)
