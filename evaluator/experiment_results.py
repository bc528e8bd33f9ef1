"""The results of sweeps: runs read from disk, means over seeds, and the table and plot of them.

DIR/table.md     as printed                             DIR/results.json  all numbers
DIR/table.csv    a row per arm, with intervals          DIR/curves.png    mean curves over time

A results file, DIR/results.json or that of `distrl sweep --results`, holds the finished runs:

{"settings": {DIGEST: {"metric": …, "curve": …, "config": {…}}},
 "runs": [{"arm": …, "seed": …, "settings": DIGEST, "after": …, "curve": […], …}], …}
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from distrl import __version__
from distrl.configs.load import check_config
from distrl.configs.schema import Config
from distrl.core.checkpoints import pointed
from distrl.core.errors import ConfigError, MissingDependency, RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.metrics import FAMILIES
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.evaluator.experiments import PlannedRun, Sweep, difference
from distrl.evaluator.report.chart import Point, rolling_mean, short_number
from distrl.evaluator.report.drawing import LINE, finish, new_figure
from distrl.evaluator.report.metrics import ELAPSED, UPDATES, RunMetrics
from distrl.evaluator.report.training import learning_curve
from distrl.evaluator.results import RESULTS_FILE
from distrl.evaluator.run_state import FINAL, WARM_START, is_untrained
from distrl.evaluator.statistics import Interval, Summary, t_interval

TABLE_FILE, CSV_FILE, JSON_FILE, PLOT_FILE = "table.md", "table.csv", "results.json", "curves.png"
NOTHING = "–"
SMOOTHED = 3
"""Rounds whose mean must be at the threshold: a single round of a few dozen episodes may be luck."""

GRID = 60
"""Points of a mean curve."""

MOST = 10
"""Arms in a picture; of more, the best."""

# Distinguishable with colour blindness (Okabe & Ito 2008), then by dashes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b5b5b")
FIELDS = {
    "success": "success_rate",
    "score": "mean_score",
    "steps": "mean_steps",
    "reward": "mean_reward",
    "invalid": "invalid_rate",
    "repeats": "repeat_rate",
}
"""Names in metrics of an evaluation's numbers."""

RETURN = "return"
"""The metric of continuous control: the mean return of an evaluation."""


@dataclass(frozen=True)
class Block:
    """A part of the results: a title, a text and a table, each of which may be empty."""

    title: str = ""
    text: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    left: int = 1

    def markdown(self) -> str:
        """Markdown; the first `left` columns are text, the others are numbers."""
        parts = [part for part in (self.title, self.text) if part]
        if self.header:
            rule = ["---"] * self.left + ["---:"] * (len(self.header) - self.left)
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in (self.header, rule, *self.rows)))
        return "\n\n".join(parts)

    def show(self, console: Console) -> None:
        """Prints it, with Markdown's marks as styles."""
        for part in filter(None, (self.title.lstrip("# "), self.text.replace("```", "").strip())):
            console.print(f"\n{part}", soft_wrap=True)
        if self.header:
            table = Table(*self.header[: self.left])
            for heading in self.header[self.left :]:
                table.add_column(heading, justify="right")
            for row in self.rows:
                table.add_row(*(Text(cell.strip("*"), _style(cell)) for cell in row))
            console.print(table)


def _style(cell: str) -> str:
    """Of **best** and *reference* cells."""
    return "bold" if cell.startswith("**") else "italic" if cell.startswith("*") else ""


def as_markdown(blocks: Sequence[Block]) -> str:
    """All of them."""
    return "\n\n".join(block.markdown() for block in blocks) + "\n"


@dataclass(frozen=True)
class RunResult:
    """The results of a run.

    Attributes:
        is_finished: Whether it is complete, evaluations included.
        before, after: The sweep's metric, at the start and at the end; None if it was not measured.
        splits: Success on each test split, before and after.
        curve: (seconds of the run, value).
        reached_s: When the curve was at the threshold first; None if never, or without one.
        elapsed_s, episodes, updates: The amount of training.
    """

    arm: str
    seed: int
    directory: Path
    is_finished: bool = False
    before: float | None = None
    after: float | None = None
    splits: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    reached_s: float | None = None
    elapsed_s: float = 0.0
    episodes: float = 0.0
    updates: float = 0.0


@dataclass(frozen=True)
class _Measured:
    """An evaluation: summaries by split, or of continuous control the mean return."""

    splits: dict[str, Summary]
    mean_return: float | None

    def number(self, split: str, name: str) -> float | None:
        """A number of a split, or of several joined by +, weighted by their episodes."""
        if name == RETURN:
            return self.mean_return
        names = split.split("+")
        if not set(names) <= set(self.splits):
            return None
        found = [self.splits[name] for name in names]
        episodes = sum(overall.episodes for overall in found)
        if not episodes:
            return None
        return math.fsum(getattr(one, FIELDS[name]) * one.episodes for one in found) / episodes


def is_finished(directory: Path) -> bool:
    """Whether a run is complete: its result, after an update or more, and its start are evaluated."""
    run = RunDir(directory)
    if pointed(run.checkpoints, FINAL) is None or is_untrained(run):
        return False
    names = [FINAL, *([WARM_START] if (run.checkpoints / WARM_START).is_dir() else [])]
    return all(_evaluation_of(run, name) is not None for name in names)


def read_run(planned: PlannedRun, sweep: Sweep) -> RunResult:
    """The results of `planned` so far.

    Raises:
        RunDirectoryError: A file is damaged.
    """
    run = RunDir(planned.directory)
    if not run.config.is_file():
        return RunResult(planned.arm, planned.seed, run.path)
    metrics, finished = RunMetrics.read(run.metrics), is_finished(run.path)
    first, last = _load(run, WARM_START), _load(run, FINAL) if finished else None
    ends = _ends(sweep.metric, first, last, metrics)
    curve = metrics.series(sweep.curve, ELAPSED)
    if sweep.curve.startswith("eval/") and sweep.curve.endswith("/success"):
        curve = learning_curve(metrics, ELAPSED).validation  # at the weights that a round measured
    return RunResult(
        arm=planned.arm,
        seed=planned.seed,
        directory=run.path,
        is_finished=finished,
        before=ends[0],
        after=ends[1] if finished else None,
        splits={
            split: (_success(first, split), _success(last, split)) for split in planned.config.tasks.test
        },
        curve=tuple(curve),
        reached_s=reached(curve, sweep.threshold),
        elapsed_s=metrics.last(ELAPSED) or 0.0,
        episodes=metrics.last("episodes") or metrics.last("train/episodes") or 0.0,
        updates=metrics.last(UPDATES) or 0.0,
    )


def _success(measured: _Measured | None, split: str) -> float | None:
    return None if measured is None else measured.number(split, "success")


def reached(curve: Sequence[Point], threshold: float | None) -> float | None:
    """The seconds at which the mean of the last `SMOOTHED` points is at the threshold; None if never."""
    if threshold is None:
        return None
    smooth = rolling_mean(list(curve), SMOOTHED)[SMOOTHED - 1 :]
    return next((seconds for seconds, value in smooth if value >= threshold - 1e-9), None)


def _ends(
    name: str, first: _Measured | None, last: _Measured | None, metrics: RunMetrics
) -> tuple[float | None, float | None]:
    split, _, number = name.rpartition("/")
    if name == RETURN or number in FIELDS:
        before, after = (one.number(split, number) if one is not None else None for one in (first, last))
        if (before, after) != (None, None):
            return before, after
    values = [value for _, value in metrics.series(name, ELAPSED)]
    return (values[0], values[-1]) if values else (None, None)


def _evaluation_of(run: RunDir, checkpoint: str) -> Path | None:
    """The complete evaluation of a checkpoint, by its name or by a pointer's."""
    name = pointed(run.checkpoints, checkpoint) if checkpoint == FINAL else checkpoint
    directory = run.evaluations / (name or "")
    return directory if name and (directory / RESULTS_FILE).is_file() else None


def _load(run: RunDir, checkpoint: str) -> _Measured | None:
    directory = _evaluation_of(run, checkpoint)
    if directory is None:
        return None
    file = directory / RESULTS_FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        splits = {
            name: Summary.model_validate(one["overall"]) for name, one in data.get("splits", {}).items()
        }
        return _Measured(splits, float(data["mean"]) if "mean" in data else None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is damaged.", "Delete it; the sweep evaluates again.") from error


class ResultsFile:
    """The finished runs of a sweep: those in its directory, and those in a file, wherever they were made.

    A run in the file counts if its metric, curve and configuration, except for its seed and place, are those
    of the sweep; keys that were added since count as set to their defaults. Other runs stay in the file.

    Args:
        sweep: Its runs are planned.
        file: JSON; written when a run is finished. None for directories only.

    Attributes:
        left_out: A line for each run in the file that has other settings.

    Raises:
        ConfigError: The file is damaged.
    """

    def __init__(self, sweep: Sweep, file: Path | None = None) -> None:
        self._sweep, self._file = sweep, file
        self._settings: dict[str, Any] = {}
        self._runs: list[dict[str, Any]] = []
        self._found: dict[tuple[str, int], RunResult] = {}
        self.left_out: list[str] = []
        if file is not None and file.is_file():
            try:
                data = json.loads(file.read_text(encoding="utf-8"))
                self._settings, self._runs = dict(data["settings"]), list(data["runs"])
                self._take_known()
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(
                    f"{file} is damaged: {error}.", "Use another file with --results."
                ) from error

    def is_done(self, planned: PlannedRun) -> bool:
        """Whether the run is in the file, or finished here."""
        return (planned.arm, planned.seed) in self._found or is_finished(planned.directory)

    def update(self) -> None:
        """Adds the runs that were finished here since the last call, and writes the file."""
        fresh = [
            planned
            for planned in self._sweep.runs
            if (planned.arm, planned.seed) not in self._found and is_finished(planned.directory)
        ]
        for planned in fresh:
            settings, result = _settings_of(planned, self._sweep), read_run(planned, self._sweep)
            digest = _digest(settings)
            numbers = asdict(result)
            for name in ("arm", "seed", "directory", "is_finished"):
                del numbers[name]
            made_by = {"minutes": planned.config.learner.max_minutes, "version": __version__}
            self._settings[digest] = settings
            self._runs.append(
                {"arm": result.arm, "seed": result.seed, "settings": digest, **made_by, **numbers}
            )
            self._found[planned.arm, planned.seed] = result
        if fresh and self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(self.data(), indent=1) + "\n")

    def data(self) -> dict[str, Any]:
        """The contents of the file."""
        return {"settings": self._settings, "runs": self._runs}

    def results(self) -> list[RunResult]:
        """All runs of the sweep, in its order."""
        return [
            self._found.get((planned.arm, planned.seed)) or read_run(planned, self._sweep)
            for planned in self._sweep.runs
        ]

    def _take_known(self) -> None:
        planned = {(run.arm, run.seed): run for run in self._sweep.runs}
        for run in self._runs:
            wanted = planned.get((run["arm"], run["seed"]))
            if wanted is None:
                continue
            reason = _unlike(self._settings[run["settings"]], _settings_of(wanted, self._sweep))
            if reason is not None:
                self.left_out.append(f"{wanted.arm}, seed {wanted.seed} is left out: {reason}.")
                continue
            curve = tuple((float(seconds), float(value)) for seconds, value in run["curve"])
            self._found[wanted.arm, wanted.seed] = RunResult(
                arm=wanted.arm,
                seed=wanted.seed,
                directory=wanted.directory,
                is_finished=True,
                splits={split: (first, last) for split, (first, last) in run["splits"].items()},
                curve=curve,
                reached_s=reached(curve, self._sweep.threshold),
                **{name: run[name] for name in ("before", "after", "elapsed_s", "episodes", "updates")},
            )


def _settings_of(planned: PlannedRun, sweep: Sweep) -> dict[str, Any]:
    """Everything that a run's numbers depend on, except for its seed."""
    return {"metric": sweep.metric, "curve": sweep.curve, "config": _placeless(planned.config)}


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _placeless(config: Config) -> dict[str, Any]:
    data = config.model_dump(mode="json")
    return {key: value for key, value in data.items() if key not in ("name", "runs_dir", "seed")}


def _unlike(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The difference between recorded settings and those of a sweep; None if there is none."""
    try:
        config = check_config(recorded["config"], "its settings")
    except ConfigError as error:
        return error.message.rstrip(".")
    for name in ("metric", "curve"):
        if recorded[name] != wanted[name]:
            return f"its {name} is {recorded[name]}"
    if _placeless(config) == wanted["config"]:
        return None
    return f"it was run with another `{difference(config, check_config(wanted['config'], 'settings'))}`"


def check_metric(sweep: Sweep) -> None:
    """Makes sure that the sweep's runs can have its metric and its curve.

    The numbers of an evaluation are known in advance, and so are the families of the names in metrics.jsonl.
    The other names are known when a run is finished, see `not_measured`.

    Raises:
        ConfigError: They cannot.
    """
    evaluated, splits = _evaluated(sweep), _test_splits(sweep)
    recorded = [f"eval/{split}/success" for split in _validation_splits(sweep)]
    if not _is_recorded(sweep.curve, sweep):
        raise _unknown("curve", sweep.curve, recorded)
    joined, _, number = sweep.metric.rpartition("/")
    names = joined.split("+")
    is_evaluated = sweep.metric in evaluated or (number in FIELDS and set(names) <= set(splits))
    if is_evaluated or _is_recorded(sweep.metric, sweep):
        return
    if number in FIELDS and splits and joined and "/" not in joined:
        missing = next(split for split in names if split not in splits)
        raise ConfigError(
            f"The sweep's metric {sweep.metric} needs the split {missing!r}, which is not in tasks.test.",
            _hint(missing, splits),
        )
    raise _unknown("metric", sweep.metric, evaluated + recorded)


def not_measured(sweep: Sweep, result: RunResult) -> str | None:
    """A line about the metric or the curve that a finished run lacks; None if it has both.

    A curve of validation rounds may be missing, because they can be switched off.
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
    hint = _hint(name, [*known, *(f"{one}/{rest}" for one in near if one != family)])
    return ConfigError(f"The sweep's {what} {name} is not measured by its runs.", hint)


def _hint(name: str, known: Sequence[str], shown: int = 12) -> str:
    if near := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"Did you mean {near[0]}?"
    return f"There are: {', '.join(known[:shown])}{', …' if len(known) > shown else ''}."


def _is_recorded(name: str, sweep: Sweep) -> bool:
    """Whether the names in metrics.jsonl have this form."""
    family, _, rest = name.partition("/")
    if family == "eval" and "/" in rest:
        return rest.startswith(tuple(f"{split}/" for split in _validation_splits(sweep)))
    return family in FAMILIES


def _evaluated(sweep: Sweep) -> list[str]:
    """The numbers of the evaluations before and after, of single splits."""
    returns = [RETURN] if any(run.config.goal.metric == RETURN for run in sweep.runs) else []
    return returns + [f"{split}/{number}" for split in _test_splits(sweep) for number in FIELDS]


def _test_splits(sweep: Sweep) -> list[str]:
    runs = [run for run in sweep.runs if run.config.goal.metric != RETURN]
    return list(dict.fromkeys(split for run in runs for split in run.config.tasks.test))


def _validation_splits(sweep: Sweep) -> list[str]:
    runs = [run for run in sweep.runs if run.config.goal.metric != RETURN]
    return list(dict.fromkeys(run.config.tasks.validation for run in runs))


@dataclass(frozen=True)
class Mean:
    """A mean over seeds; its interval is unknown for a single one."""

    value: float
    interval: Interval | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Mean | None:
        """Of the known values; None without any."""
        known = [value for value in values if value is not None]
        return cls(math.fsum(known) / len(known), t_interval(known), len(known)) if known else None

    @property
    def half(self) -> float | None:
        """Half of the interval's length."""
        return None if self.interval is None else (self.interval.high - self.interval.low) / 2

    def data(self) -> dict[str, Any]:
        """As plain data."""
        low, high = (None, None) if self.interval is None else (self.interval.low, self.interval.high)
        return {"mean": self.value, "low": low, "high": high, "n": self.n}


@dataclass(frozen=True)
class ArmSummary:
    """An arm over its finished runs.

    Attributes:
        seeds: Of its finished runs.
        planned: How many runs it has in all.
        before, after, gain: The sweep's metric; the gain is each run's own.
        splits: Success at the end on each test split.
        num_reached: Runs whose curve was at the threshold.
        reached_s: The median time of that, where runs that never were count as the slowest; None if that is
            most of them, or there is no threshold.
        curve: (seconds, mean) of the learning curve.
    """

    name: str
    seeds: tuple[int, ...]
    planned: int
    before: Mean | None
    after: Mean | None
    gain: Mean | None
    splits: dict[str, Mean | None]
    episodes: Mean | None
    updates: Mean | None
    minutes: Mean | None
    num_reached: int
    reached_s: float | None
    curve: tuple[tuple[float, Mean], ...]

    def data(self) -> dict[str, Any]:
        """As plain data."""
        found = {name: one.data() if isinstance(one, Mean) else one for name, one in vars(self).items()}
        splits = {split: mean.data() if mean else None for split, mean in self.splits.items()}
        return found | {"splits": splits, "curve": [{"seconds": s, **mean.data()} for s, mean in self.curve]}


def summarise_arms(results: Sequence[RunResult], names: Sequence[str]) -> list[ArmSummary]:
    """The arms in the order of `names`. Only finished runs count."""
    return [_summary(name, [result for result in results if result.arm == name]) for name in names]


def _summary(name: str, results: Sequence[RunResult]) -> ArmSummary:
    done = [result for result in results if result.is_finished]
    gains = [r.after - r.before if r.after is not None and r.before is not None else None for r in done]
    splits = dict.fromkeys(split for result in done for split in result.splits)
    return ArmSummary(
        name=name,
        seeds=tuple(result.seed for result in done),
        planned=len(results),
        before=Mean.of([result.before for result in done]),
        after=Mean.of([result.after for result in done]),
        gain=Mean.of(gains),
        splits={split: Mean.of([result.splits[split][1] for result in done]) for split in splits},
        episodes=Mean.of([result.episodes for result in done]),
        updates=Mean.of([result.updates for result in done]),
        minutes=Mean.of([result.elapsed_s / 60 for result in done]),
        num_reached=sum(result.reached_s is not None for result in done),
        reached_s=median_time([result.reached_s for result in done]),
        curve=mean_curve([result.curve for result in done]),
    )


def median_time(times: Sequence[float | None]) -> float | None:
    """The median, None counting as longer than all others; None if the median is such a one."""
    if not times:
        return None
    ordered = sorted(math.inf if time is None else time for time in times)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return middle if math.isfinite(middle) else None


def mean_curve(curves: Sequence[Sequence[Point]]) -> tuple[tuple[float, Mean], ...]:
    """The mean of curves and its interval, on a grid over the time that all of them cover.

    Between its points a curve is a straight line. Curves without a point are left out.
    """
    found = [list(zip(*curve, strict=True)) for curve in curves if curve]
    if not found:
        return ()
    low, high = max(times[0] for times, _ in found), min(times[-1] for times, _ in found)
    if high < low:
        return ()
    grid = np.unique(np.linspace(low, high, GRID))
    lines = np.array([np.interp(grid, times, values) for times, values in found])
    means = [Mean.of([float(value) for value in lines[:, index]]) for index in range(len(grid))]
    return tuple(
        (float(seconds), mean) for seconds, mean in zip(grid, means, strict=True) if mean is not None
    )


def is_share(metric: str) -> bool:
    """Whether a metric is a share between 0 and 1; a part of the reward is none, whatever its name."""
    *families, number = metric.split("/")
    return number in ("success", "score", "invalid", "repeats") and "reward" not in families


def percent(mean: Mean | None) -> str:
    """A share and half of its interval, both in percent."""
    if mean is None:
        return NOTHING
    return f"{100 * mean.value:.1f}%" + ("" if mean.half is None else f" ± {100 * mean.half:.1f}")


def _plain(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    return short_number(mean.value) + ("" if mean.half is None else f" ± {short_number(mean.half)}")


def sweep_block(sweep: Sweep, arms: Sequence[ArmSummary], lacking: str | None = None) -> Block:
    """One row per arm, and the meaning of the columns."""
    number = percent if is_share(sweep.metric) else _plain
    text = f"{sweep.metric}: mean over seeds ± 95% t-interval."
    header, level = ["arm", "seeds", "before", "after", "gain"], ""
    if sweep.threshold is not None:
        level = f"{100 * sweep.threshold:.0f}%" if is_share(sweep.curve) else short_number(sweep.threshold)
        header.append(f"time to {level}")
        text += f" Time: median until {sweep.curve} is {level} over three rounds (runs that got there)."
    rows = []
    for arm in arms:
        gain = f"{'+' if arm.gain is not None and arm.gain.value >= 0 else ''}{number(arm.gain)}"
        row = [arm.name, f"{len(arm.seeds)}/{arm.planned}", number(arm.before), number(arm.after), gain]
        if level:
            time = NOTHING if arm.reached_s is None else f"{arm.reached_s / 60:.1f} min"
            row.append(f"{time} ({arm.num_reached}/{len(arm.seeds)})" if arm.seeds else NOTHING)
        minutes = NOTHING if arm.minutes is None else f"{arm.minutes.value:.1f}"
        rows.append([*row, _plain(arm.episodes), _plain(arm.updates), minutes])
    text = "\n\n".join(filter(None, (text, lacking)))
    return Block(f"## {sweep.name}", text, [*header, "episodes", "updates", "minutes"], rows)


def write_sweep(sweep: Sweep, known: ResultsFile | None = None) -> tuple[Block, str]:
    """Writes table.md, table.csv, results.json and, with matplotlib, curves.png.

    Returns:
        The table, and the reason why there is no plot.
    """
    known = known or ResultsFile(sweep)
    known.update()
    results = known.results()
    arms = summarise_arms(results, sweep.arms)
    lacking = next(filter(None, (not_measured(sweep, result) for result in results)), None)
    block = sweep_block(sweep, arms, lacking)
    names = ("name", "metric", "curve", "threshold")
    data = {name: getattr(sweep, name) for name in names} | {"arms": [arm.data() for arm in arms]}
    sweep.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(sweep.directory / TABLE_FILE, as_markdown([block]))
    write_atomically(sweep.directory / CSV_FILE, _csv(arms))
    write_atomically(sweep.directory / JSON_FILE, json.dumps(data | known.data(), indent=1))
    try:
        draw_curves(sweep.directory / PLOT_FILE, sweep, arms)
    except MissingDependency as error:
        return block, str(error)
    return block, ""


def _csv(arms: Sequence[ArmSummary]) -> str:
    """One row per arm; each mean with the ends of its interval, empty where unknown."""
    means = ("before", "after", "gain", "episodes", "updates", "minutes")
    out = io.StringIO()
    columns = [f"{name}{suffix}" for name in means for suffix in ("", "_low", "_high")]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["arm", "seeds", "planned", *columns, "reached", "reached_s"])
    for arm in arms:
        cells = []
        for name in means:
            data = getattr(arm, name).data() if getattr(arm, name) else {}
            numbers = [data.get(key) for key in ("mean", "low", "high")]
            cells += ["" if number is None else f"{number:.6g}" for number in numbers]
        reached_s = "" if arm.reached_s is None else f"{arm.reached_s:.1f}"
        writer.writerow([arm.name, len(arm.seeds), arm.planned, *cells, arm.num_reached, reached_s])
    return out.getvalue()


def draw_curves(file: Path, sweep: Sweep, arms: Sequence[ArmSummary], title: str = "") -> None:
    """Draws the mean curve of each arm over wall time, with its interval.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    figure = new_figure(8.4, 4.8)
    axis = figure.subplots()
    shown = best(arms)
    for place, arm in enumerate(shown):
        style = ("-", "--", ":")[place // len(COLOURS) % 3]
        points = [(seconds / 60, mean) for seconds, mean in arm.curve]
        draw_mean(axis, points, COLOURS[place % len(COLOURS)], f"{arm.name} (n = {len(arm.seeds)})", style)
    axis.set(xlabel="minutes", ylabel=sweep.curve)
    if is_share(sweep.curve):
        axis.set_ylim(0, 1.02)
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    if sweep.threshold is not None:
        axis.axhline(sweep.threshold, color=COLOURS[-1], lw=0.8, ls=":")
    axis.grid(axis="y", color=LINE, lw=0.8)
    if any(arm.curve for arm in shown):
        axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    more = f" (the best {len(shown)} of {len(arms)} arms)" if len(shown) < len(arms) else ""
    finish(figure, file, (title or sweep.name) + more)


def best(arms: Sequence[ArmSummary], most: int = MOST) -> list[ArmSummary]:
    """The arms with the best results, in their own order."""
    if len(arms) <= most:
        return list(arms)
    ranked = sorted(arms, key=lambda arm: arm.after.value if arm.after is not None else float("-inf"))
    names = {arm.name for arm in ranked[-most:]}
    return [arm for arm in arms if arm.name in names]


def draw_mean(
    axis: Any, points: Sequence[tuple[float, Mean]], colour: str, label: str, style: str = "-"
) -> None:
    """Draws a mean curve with its interval."""
    if not points:
        return
    axis.plot([x for x, _ in points], [m.value for _, m in points], style, color=colour, lw=1.8, label=label)
    bounds = [(x, mean.interval.low, mean.interval.high) for x, mean in points if mean.interval]
    if bounds:
        xs, low, high = zip(*bounds, strict=True)
        axis.fill_between(xs, low, high, color=colour, alpha=0.12, lw=0)
