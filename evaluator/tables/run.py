"""Measuring a table's cells, those that are not measured yet."""

from __future__ import annotations

import threading
from collections.abc import Callable

from distrl.evaluator.evaluator import Evaluator
from distrl.evaluator.measure import Who, measure, model_of, pool, seed_directory
from distrl.evaluator.results import RESULTS_FILE
from distrl.evaluator.runner import EvaluationStopped
from distrl.evaluator.tables.plan import Cell


def open_seeds(cell: Cell) -> list[int]:
    """The seeds that are still to be measured.

    Raises:
        RunDirectoryError: The directory holds measurements of something else.
        TaskError: There is no such suite or split.
    """
    left = []
    for seed, who in cell.whom.items():
        place = seed_directory(cell.directory, seed)
        subject = who.subject(model_of(cell.config, who))
        Evaluator(cell.config, place, subject, cell.splits, resume=True, seed=seed)
        if not (place / RESULTS_FILE).is_file():
            left.append(seed)
    return left


def measure_cell(cell: Cell, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Measures the seeds that are left, each policy started once, and pools those that are there.

    Raises:
        EvaluationStopped: `stop` was set; the same call goes on.
        DistrlError: Anything else that a user can mend.
    """
    by_policy: dict[Who, list[int]] = {}
    for seed in open_seeds(cell):
        by_policy.setdefault(cell.whom[seed], []).append(seed)
    for who, seeds in by_policy.items():
        say(f"{cell.agent} on {cell.suite}, seeds {', '.join(map(str, seeds))}")
        try:
            measure(cell.config, who, cell.directory, cell.splits, True, stop, seeds=seeds)
        except EvaluationStopped as error:  # a table has no --resume
            raise EvaluationStopped(error.message, "Run the same command again to continue.") from None
    if cell.whom:
        pool(cell.directory, list(cell.whom))


def measured_seeds(cell: Cell) -> list[int]:
    """The seeds whose measurement is complete."""
    return [seed for seed in cell.whom if (seed_directory(cell.directory, seed) / RESULTS_FILE).is_file()]
