"""The file in which a sweep's finished runs outlive their directories: the next session, or machine, goes on.

{"settings": {DIGEST: {"metric": …, "curve": …, "config": {…}}},
 "runs": [{"arm": …, "seed": …, "settings": DIGEST, "version": …, "commit": …, "after": …, "curve": […], …}]}

A run in it counts as done if all that it was made with, but for its seed and its place, is what the sweep
asks for now: keys that came since count as set to their defaults. Others stay in the file and are told.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distrl import __version__
from distrl.cli.sweep import difference
from distrl.configs.load import check_config
from distrl.configs.schema import Config
from distrl.configs.sweep import PlannedRun, Sweep
from distrl.core.errors import ConfigError
from distrl.core.files import write_atomically
from distrl.evaluator.sweeps.runs import RunResult, is_finished, reached, read_run

Settings = dict[str, Any]


class ResultsFile:
    """The runs of a sweep that are in a file, and those that will be.

    Args:
        file: JSON; made when the first run is finished.
        sweep: What is to be run.

    Attributes:
        left_out: What is in the file for an arm and seed of the sweep but was made with other settings: a
            line each.

    Raises:
        ConfigError: The file is damaged.
    """

    def __init__(self, file: Path, sweep: Sweep) -> None:
        self._file, self._sweep = file, sweep
        self._found: dict[tuple[str, int], RunResult] = {}
        self.left_out: list[str] = []
        try:
            text = file.read_text(encoding="utf-8") if file.is_file() else '{"settings": {}, "runs": []}'
            self._data = json.loads(text)
            self._read()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{file} is damaged: {error}.", "Name another file with --results.") from error

    def missing(self) -> dict[int, list[str]]:
        """Seed → arms, both in the sweep's order: the runs neither in the file nor finished here."""
        arms: dict[int, list[str]] = {}
        for planned in self._sweep.runs:
            if not self._is_known(planned) and not is_finished(planned.directory):
                arms.setdefault(planned.seed, []).append(planned.arm)
        return arms

    def take(self) -> None:
        """Adds the runs that were finished here since the last call to the file."""
        fresh = [p for p in self._sweep.runs if not self._is_known(p) and is_finished(p.directory)]
        for planned in fresh:
            settings = settings_of(planned, self._sweep)
            digest = digest_of(settings)
            result = read_run(planned, self._sweep)
            self._data["settings"][digest] = settings
            self._data["runs"].append(_as_data(result, digest, planned.config))
            self._found[planned.arm, planned.seed] = result
        if fresh:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(self._data, indent=1) + "\n")

    def results(self) -> list[RunResult]:
        """All runs of the sweep, in its order; those of the file as if they had been made here."""
        return [
            self._found.get((planned.arm, planned.seed)) or read_run(planned, self._sweep)
            for planned in self._sweep.runs
        ]

    def _is_known(self, planned: PlannedRun) -> bool:
        return (planned.arm, planned.seed) in self._found

    def _read(self) -> None:
        recorded = {digest: _today(settings) for digest, settings in self._data["settings"].items()}
        planned = {(run.arm, run.seed): run for run in self._sweep.runs}
        for run in self._data["runs"]:
            wanted = planned.get((run["arm"], run["seed"]))
            if wanted is None:
                continue
            reason = _difference(recorded[run["settings"]], settings_of(wanted, self._sweep))
            if reason is None:
                self._found[wanted.arm, wanted.seed] = _as_result(run, wanted, self._sweep)
            else:
                self.left_out.append(f"{wanted.arm}, seed {wanted.seed} is left out: {reason}.")


def settings_of(planned: PlannedRun, sweep: Sweep) -> Settings:
    """All that a run's numbers depend on, but for its seed."""
    return {"metric": sweep.metric, "curve": sweep.curve, "config": _placeless(planned.config)}


def digest_of(settings: Settings) -> str:
    """A short name for settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _placeless(config: Config) -> dict[str, Any]:
    """The configuration without where its run lies and without its seed."""
    data = config.model_dump(mode="json")
    return {key: value for key, value in data.items() if key not in ("name", "runs_dir", "seed")}


def _today(settings: Settings) -> Settings | str:
    """Settings as this version of the schema has them; why not, if they do not fit it any more."""
    try:
        return settings | {"config": _placeless(check_config(settings["config"], "its settings"))}
    except ConfigError as error:
        return error.message.rstrip(".")


def _difference(recorded: Settings | str, wanted: Settings) -> str | None:
    """How settings differ from what is wanted; None if they do not."""
    if isinstance(recorded, str) or digest_of(recorded) == digest_of(wanted):
        return recorded if isinstance(recorded, str) else None
    for name in ("metric", "curve"):
        if recorded[name] != wanted[name]:
            return f"its {name} is {recorded[name]}"
    configs = [check_config(settings["config"], "settings") for settings in (recorded, wanted)]
    return f"it was run with another `{difference(*configs)}`"


def _as_data(result: RunResult, digest: str, config: Config) -> dict[str, Any]:
    numbers = {
        name: value
        for name, value in asdict(result).items()
        if name not in ("arm", "seed", "directory", "is_finished")
    }
    made_by = {"minutes": config.learner.max_minutes, "version": __version__, "commit": commit()}
    return {"arm": result.arm, "seed": result.seed, "settings": digest, **made_by, **numbers}


def _as_result(run: Mapping[str, Any], planned: PlannedRun, sweep: Sweep) -> RunResult:
    curve = [(float(seconds), float(value)) for seconds, value in run["curve"]]
    return RunResult(
        arm=planned.arm,
        seed=planned.seed,
        directory=planned.directory,
        is_finished=True,
        before=run["before"],
        after=run["after"],
        splits={split: (first, last) for split, (first, last) in run["splits"].items()},
        curve=tuple(curve),
        reached_s=reached(curve, sweep.threshold),
        elapsed_s=run["elapsed_s"],
        episodes=run["episodes"],
        updates=run["updates"],
    )


def commit() -> str | None:
    """The commit that is checked out here; None outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10.0)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
