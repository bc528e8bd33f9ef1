"""The results of sweeps: runs read from disk, means over seeds, and the table and plot of them.

DIR/table.md      as printed            DIR/results.json  all numbers
DIR/curves.png    mean curves over time

A results file, DIR/results.json or that of `distrl sweep --results`, holds the finished runs:

{"settings": {DIGEST: {"metric": …, "curve": …, "config": {…}}},
 "runs": [{"arm": …, "seed": …, "settings": DIGEST, "after": …, "curve": […], …}], …}
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from distrl import __version__
from distrl.core.checkpoints import pointed
from distrl.core.errors import ConfigError, MissingDependency, RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.importing import did_you_mean
from distrl.core.metrics import FAMILIES
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.core.types import Record
from distrl.evaluator.experiments import PlannedRun, Sweep, difference
from distrl.evaluator.report.chart import rolling_mean, short_number
from distrl.evaluator.report.metrics import ELAPSED, UPDATES, Point, RunMetrics
from distrl.evaluator.report.training import VALIDATION_SUCCESS, learning_curve
from distrl.evaluator.results import RESULTS_FILE
from distrl.evaluator.run_state import FINAL, WARM_START, is_untrained
from distrl.evaluator.statistics import Interval, t_interval

TABLE_FILE, JSON_FILE, PLOT_FILE = "table.md", "results.json", "curves.png"
NOTHING = "–"
SMOOTHED = 3
"""Rounds whose mean must be at the threshold: a single round of a few dozen episodes may be luck."""

GRID = 60  # points of a mean curve
WIDTH = 400  # characters of a table in a file or a pipe, where nothing is cut

INK, LINE = "#17191c", "#e4e5e2"
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
RETURN = "return"  # the metric of continuous control: the mean return of an evaluation


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
            if not console.is_terminal:
                console.width = WIDTH
            console.print(table)


def _style(cell: str) -> str:
    """Of **best** and *reference* cells."""
    return "bold" if cell.startswith("**") else "italic" if cell.startswith("*") else ""


def as_markdown(blocks: Sequence[Block]) -> str:
    """All of them."""
    return "\n\n".join(block.markdown() for block in blocks) + "\n"


class RunResult(Record):
    """The results of a run.

    Attributes:
        before, after: The sweep's metric, at the start and at the end; None if it was not measured.
        splits: Success on each test split, before and after.
        curve: (seconds of the run, value).
        reached_s: When the curve was at the threshold first; None if never, or without one.
        means: Of the metrics that gates name, over the run.
    """

    arm: str
    seed: int
    directory: Path
    is_finished: bool = False
    before: float | None = None
    after: float | None = None
    splits: dict[str, tuple[float | None, float | None]] = {}
    curve: tuple[Point, ...] = ()
    reached_s: float | None = None
    elapsed_s: float = 0.0
    episodes: float = 0.0
    updates: float = 0.0
    means: dict[str, float] = {}

    @property
    def area(self) -> float | None:
        """The mean of the curve over its time; None if it has no two points."""
        if len(self.curve) < 2 or self.curve[-1][0] <= self.curve[0][0]:
            return None
        whole = math.fsum((b - a) * (x + y) / 2 for (a, x), (b, y) in itertools.pairwise(self.curve))
        return whole / (self.curve[-1][0] - self.curve[0][0])


def is_finished(directory: Path) -> bool:
    """Whether a run is complete: its result, after an update or more, and its start are evaluated."""
    run = RunDir(directory)
    if pointed(run.checkpoints, FINAL) is None or is_untrained(run):
        return False
    names = [FINAL, *([WARM_START] if (run.checkpoints / WARM_START).is_dir() else [])]
    return all(_results_of(run, name).is_file() for name in names)


def read_run(planned: PlannedRun, sweep: Sweep) -> RunResult:
    """The results of `planned` so far. Raises RunDirectoryError if a file is damaged."""
    run = RunDir(planned.directory)
    if not run.config.is_file():
        return RunResult(arm=planned.arm, seed=planned.seed, directory=run.path)
    metrics, finished = RunMetrics.read(run.metrics), is_finished(run.path)
    first, last = _load(run, WARM_START), _load(run, FINAL) if finished else {}
    before, after = _number(first, sweep.metric), _number(last, sweep.metric)
    values = [value for _, value in metrics.series(sweep.metric, ELAPSED)]
    if before is None and after is None and values:
        before = values[0]
        after = values[-1] if finished else None
    curve = metrics.series(sweep.curve, ELAPSED)
    if sweep.curve == metrics.find(VALIDATION_SUCCESS):
        curve = learning_curve(metrics, ELAPSED).validation  # at the weights that a round measured
    return RunResult(
        arm=planned.arm,
        seed=planned.seed,
        directory=run.path,
        is_finished=finished,
        before=before,
        after=after,
        splits={
            split: (_number(first, f"{split}/success"), _number(last, f"{split}/success"))
            for split in planned.config.tasks.test
        },
        curve=tuple(curve),
        reached_s=reached(curve, sweep.threshold),
        elapsed_s=metrics.last(ELAPSED) or 0.0,
        episodes=metrics.last("episodes") or metrics.last("train/episodes") or 0.0,
        updates=metrics.last(UPDATES) or 0.0,
        means={
            gate.metric: math.fsum(values) / len(values)
            for gate in sweep.gates.values()
            if gate.metric and (values := [value for _, value in metrics.series(gate.metric, ELAPSED)])
        },
    )


def reached(curve: Sequence[Point], threshold: float | None) -> float | None:
    """The seconds at which the mean of the last `SMOOTHED` points is at the threshold; None if never."""
    if threshold is None:
        return None
    smooth = rolling_mean(curve, SMOOTHED)[SMOOTHED - 1 :]
    return next((seconds for seconds, value in smooth if value >= threshold - 1e-9), None)


def _number(evaluation: Mapping[str, Mapping[str, float]], metric: str) -> float | None:
    """The metric in an evaluation; of several splits joined by +, weighted by their episodes."""
    if metric == RETURN:
        return evaluation.get("", {}).get(RETURN)
    joined, _, number = metric.rpartition("/")
    found = [evaluation.get(split, {}) for split in joined.split("+")]
    episodes = sum(one.get("episodes", 0) for one in found)
    if number not in FIELDS or not episodes or not all(found):
        return None
    return math.fsum(one[FIELDS[number]] * one["episodes"] for one in found) / episodes


def _results_of(run: RunDir, checkpoint: str) -> Path:
    """The numbers of a checkpoint's evaluation, by its name, or of the one that `FINAL` points to."""
    name = pointed(run.checkpoints, FINAL) if checkpoint == FINAL else checkpoint
    return run.evaluations / (name or FINAL) / RESULTS_FILE


def _load(run: RunDir, checkpoint: str) -> dict[str, dict[str, float]]:
    """An evaluation's numbers by split; of continuous control the mean return, by "". Empty without one."""
    file = _results_of(run, checkpoint)
    if not file.is_file():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if "mean" in data:
            return {"": {RETURN: float(data["mean"])}}
        return {name: dict(one["overall"]) for name, one in data["splits"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is damaged.", "Delete it; the sweep evaluates again.") from error


class ResultsFile:
    """The finished runs of a sweep: those in its directory, and those in a file, wherever they were made.

    A run in the file counts if its metric, its curve and its configuration are those of the sweep, except for
    seed, place, and keys that only one of the two versions of distrl has. Other runs stay in the file.

    Attributes:
        left_out: A line for each run in the file that has other settings.
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
                damage = f"{file} is damaged: {str(error).splitlines()[0]}."
                raise ConfigError(damage, "Use another file with --results.") from error

    def is_done(self, planned: PlannedRun) -> bool:
        """Whether the run is in the file, or finished here."""
        return (planned.arm, planned.seed) in self._found or is_finished(planned.directory)

    def update(self) -> None:
        """Adds the runs that were finished here since the last call, and writes the file."""
        known = set(self._found)
        for planned in self._sweep.runs:
            if (planned.arm, planned.seed) in known or not is_finished(planned.directory):
                continue
            settings, result = _settings_of(planned, self._sweep), read_run(planned, self._sweep)
            digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
            made_by = {"minutes": planned.config.learner.max_minutes, "version": __version__}
            numbers = result.model_dump(mode="json", exclude={"directory", "is_finished"})
            self._settings[digest] = settings
            self._runs.append({**numbers, "settings": digest, **made_by})
            self._found[planned.arm, planned.seed] = result
        if self._file is not None and known != set(self._found):
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
            key = difference(self._settings[run["settings"]], _settings_of(wanted, self._sweep))
            if key is not None:
                name = key.removeprefix("config.")
                self.left_out.append(f"{wanted.arm}, seed {wanted.seed} is left out: its `{name}` differs.")
                continue
            numbers = {name: run[name] for name in _NUMBERS if name in run}
            result = RunResult(
                arm=run["arm"], seed=run["seed"], directory=wanted.directory, is_finished=True, **numbers
            )
            reached_s = reached(result.curve, self._sweep.threshold)
            self._found[wanted.arm, wanted.seed] = result.model_copy(update={"reached_s": reached_s})


_NUMBERS = ("before", "after", "splits", "curve", "elapsed_s", "episodes", "updates", "means")


def _settings_of(planned: PlannedRun, sweep: Sweep) -> dict[str, Any]:
    """Everything that a run's numbers depend on, except for its seed."""
    config = planned.config.model_dump(mode="json", exclude={"name", "runs_dir", "modules_dir", "seed"})
    return {"metric": sweep.metric, "curve": sweep.curve, "config": config}


def check_metric(sweep: Sweep) -> None:
    """Raises ConfigError if no evaluation and no row of metrics.jsonl has the metric, the curve or a gate's
    metric."""
    tested = [set(run.config.tasks.test) for run in sweep.runs]
    numbers = [f"{split}/{number}" for split in sweep.runs[0].config.tasks.test for number in FIELDS]
    gates = [("gate metric", gate.metric) for gate in sweep.gates.values() if gate.metric]
    for what, name in (("metric", sweep.metric), ("curve", sweep.curve), *gates):
        joined, _, number = name.rpartition("/")
        is_number = number in FIELDS and any(splits.issuperset(joined.split("+")) for splits in tested)
        is_evaluated = what == "metric" and (is_number or name == RETURN)
        if not is_evaluated and name.partition("/")[0] not in FAMILIES:
            remedy = f"{did_you_mean(name, [*numbers, RETURN])}Use one of them, or a name in metrics.jsonl."
            raise ConfigError(f"The sweep's {what} {name} is not measured by its runs.", remedy)


class Mean(Record):
    """A mean over seeds; its interval is unknown for a single one, and where all are equal."""

    value: float
    interval: Interval | None = None
    n: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Mean | None:
        """Of the known values; None without any."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(value=math.fsum(known) / len(known), interval=t_interval(known), n=len(known))

    @property
    def half(self) -> float | None:
        """Half of the interval's length."""
        return None if self.interval is None else (self.interval.high - self.interval.low) / 2


def percent(mean: Mean | None) -> str:
    """A share and half of its interval, both in percent."""
    if mean is None:
        return NOTHING
    return f"{100 * mean.value:.1f}%" + ("" if mean.half is None else f" ± {100 * mean.half:.1f}")


def _plain(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    return short_number(mean.value) + ("" if mean.half is None else f" ± {short_number(mean.half)}")


class ArmSummary(Record):
    """An arm over its finished runs.

    Attributes:
        planned: How many runs it has in all.
        before, after, gain: The sweep's metric; the gain is each run's own.
        splits: Success at the end on each test split.
        reached_s: The median time until the threshold, where runs that never were there count as the slowest;
            None if that is most of them, or there is no threshold.
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
    area: Mean | None
    curve: tuple[tuple[float, Mean], ...]


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
        area=Mean.of([result.area for result in done]),
        curve=mean_curve([result.curve for result in done]),
    )


def chosen_arms(sweep: Sweep, results: Sequence[RunResult]) -> dict[str, str]:
    """The arm of each family whose tuning is complete; without tuning every arm is its own."""
    families = sweep.families()
    if sweep.tune is None:
        return families
    areas: dict[str, dict[str, float | None]] = {}
    for arm, family in families.items():
        tuning = [r for r in results if r.arm == arm and r.seed in sweep.tune.seeds]
        mean = Mean.of([r.area for r in tuning]) if all(r.is_finished for r in tuning) else None
        areas.setdefault(family, {})[arm] = mean.value if mean else None
    return {
        family: max(found, key=lambda arm: found[arm] or 0.0)
        for family, found in areas.items()
        if all(area is not None for area in found.values())
    }


def gate_lines(sweep: Sweep, results: Sequence[RunResult], chosen: Mapping[str, str]) -> list[str]:
    """Whether each gate of the sweep holds, over the finished runs among `results` of the chosen arms."""
    found = []
    for name, gate in sweep.gates.items():
        of = {r.seed: r for r in results if r.is_finished and r.arm == chosen.get(gate.arm)}
        other = {r.seed: r for r in results if r.is_finished and r.arm == chosen.get(gate.over or "")}
        if gate.metric is not None:
            mean = Mean.of([result.means.get(gate.metric) for result in of.values()])
            what = f"{gate.metric} of {gate.arm}"
        else:  # paired by seed
            pairs = [(other[seed].after, of[seed].after) for seed in of.keys() & other.keys()]
            mean = Mean.of([None if a is None or b is None else a - b for a, b in pairs])
            what = f"{sweep.metric} of {gate.over} less that of {gate.arm}"
        limits = {"least": gate.least, "most": gate.most}
        words = ", ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
        verdict = "not measured"
        if mean is not None:
            is_low = gate.least is not None and mean.value < gate.least
            is_high = gate.most is not None and mean.value > gate.most
            verdict = f"{_plain(mean)}, {'does not hold' if is_low or is_high else 'holds'}"
        found.append(f"Gate {name} ({what}, {words}): {verdict}.")
    return found


def median_time(times: Sequence[float | None]) -> float | None:
    """The median, None counting as longer than all others; None if the median is such a one."""
    if not times:
        return None
    middle = median(math.inf if time is None else time for time in times)
    return middle if math.isfinite(middle) else None


def mean_curve(curves: Sequence[Sequence[Point]]) -> tuple[tuple[float, Mean], ...]:
    """The mean of curves and its interval, on a grid over the time that all of them cover."""
    found = [list(zip(*curve, strict=True)) for curve in curves if curve]
    low = max((times[0] for times, _ in found), default=math.inf)
    high = min((times[-1] for times, _ in found), default=-math.inf)
    if high < low:
        return ()
    grid = np.unique(np.linspace(low, high, GRID))
    lines = np.array([np.interp(grid, times, values) for times, values in found]).T
    means = [Mean.of(column.tolist()) for column in lines]
    return tuple((float(at), mean) for at, mean in zip(grid, means, strict=True) if mean is not None)


def is_share(metric: str) -> bool:
    """Whether a metric is a share between 0 and 1; a part of the reward is none, whatever its name."""
    *families, number = metric.split("/")
    return number in ("success", "score", "invalid", "repeats") and "reward" not in families


def sweep_block(sweep: Sweep, arms: Sequence[ArmSummary]) -> Block:
    """One row per arm, and the meaning of the columns."""
    number = percent if is_share(sweep.metric) else _plain
    text = f"{sweep.metric}: mean over seeds ± 95% t-interval. Area: mean of {sweep.curve} over the run."
    if sweep.tune is not None:
        text += f" Seeds that chose {sweep.tune.key} are left out: {', '.join(map(str, sweep.tune.seeds))}."
    header, level = ["arm", "seeds", "before", "after", "gain", "area"], ""
    if sweep.threshold is not None:
        level = f"{100 * sweep.threshold:.0f}%" if is_share(sweep.curve) else short_number(sweep.threshold)
        header.append(f"time to {level}")
        text += f" Time: median until {sweep.curve} is {level} over three rounds (runs that got there)."
    rows = []
    for arm in arms:
        gain = f"{'+' if arm.gain is not None and arm.gain.value >= 0 else ''}{number(arm.gain)}"
        row = [arm.name, f"{len(arm.seeds)}/{arm.planned}", number(arm.before), number(arm.after), gain]
        row.append(percent(arm.area) if is_share(sweep.curve) else _plain(arm.area))
        if level:
            time = NOTHING if arm.reached_s is None else f"{arm.reached_s / 60:.1f} min"
            row.append(f"{time} ({arm.num_reached}/{len(arm.seeds)})" if arm.seeds else NOTHING)
        minutes = NOTHING if arm.minutes is None else f"{arm.minutes.value:.1f}"
        rows.append([*row, _plain(arm.episodes), _plain(arm.updates), minutes])
    return Block(f"## {sweep.name}", text, [*header, "episodes", "updates", "minutes"], rows)


def write_sweep(sweep: Sweep, known: ResultsFile | None = None) -> tuple[Block, str]:
    """Writes table.md, results.json and, with matplotlib, curves.png.

    Returns the table, and the reason why there is no plot.
    """
    known = known or ResultsFile(sweep)
    known.update()
    results = known.results()
    chosen, families = chosen_arms(sweep, results), sweep.families()
    if sweep.tune is not None:  # the runs by which a value was chosen would flatter it
        results = [r for r in results if r.seed not in sweep.tune.seeds or families[r.arm] not in chosen]
    arms = summarise_arms(results, [arm for arm in sweep.arms if chosen.get(families[arm], arm) == arm])
    block = sweep_block(sweep, arms)
    gates = gate_lines(sweep, results, chosen)
    block = replace(block, text="\n\n".join([block.text, *gates]))
    data = {name: getattr(sweep, name) for name in ("name", "metric", "curve", "threshold")}
    data |= {"arms": [arm.model_dump(mode="json") for arm in arms], "gates": gates, **known.data()}
    sweep.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(sweep.directory / TABLE_FILE, as_markdown([block]))
    write_atomically(sweep.directory / JSON_FILE, json.dumps(data, indent=1))
    try:
        draw_curves(sweep.directory / PLOT_FILE, sweep, arms)
    except MissingDependency as error:
        return block, str(error)
    return block, ""


def draw_curves(file: Path, sweep: Sweep, arms: Sequence[ArmSummary], title: str = "") -> None:
    """Draws the mean curve of each arm over wall time, with its interval, if matplotlib is installed."""
    figure = new_figure(8.4, 4.8)
    axis = figure.subplots()
    for place, arm in enumerate(arms):
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
    if any(arm.curve for arm in arms):
        axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    finish(figure, file, title or sweep.name)


def draw_mean(
    axis: Any, points: Sequence[tuple[float, Mean]], colour: str, label: str, style: str = "-"
) -> None:
    """Draws a mean curve with its interval."""
    if not points:
        return
    axis.plot([x for x, _ in points], [m.value for _, m in points], style, color=colour, lw=1.8, label=label)
    bounds = [(x, m.value - (m.half or 0.0), m.value + (m.half or 0.0)) for x, m in points if m.n > 1]
    if bounds:
        xs, low, high = zip(*bounds, strict=True)
        axis.fill_between(xs, low, high, color=colour, alpha=0.12, lw=0)


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches.

    Raises:
        MissingDependency: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(
            "Pictures need the package matplotlib.", "Install the extra: pip install 'distrl[report]'."
        ) from error
    return Figure(figsize=(width, height), dpi=160, layout="constrained")


def finish(figure: Any, file: Path, title: str) -> None:
    """Gives the figure and its axes their looks, and writes it as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, labelsize=9)
        axis.set_axisbelow(True)
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK, x=0.01, ha="left")
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(file))
