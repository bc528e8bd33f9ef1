"""What a table is made of: one measurement for each agent and suite, repeated over seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from distrl.configs.schema import Config
from distrl.configs.table import AgentRow, SuiteColumns, TableSpec, cell_config
from distrl.core.errors import CheckpointError
from distrl.evaluator.measure import Who
from distrl.evaluator.prompted import NAME, as_prompted


@dataclass(frozen=True)
class Cell:
    """One agent on one suite.

    Attributes:
        agent, suite: Their names.
        splits: What is measured there, and shown.
        config: Of its evaluations.
        directory: Where its repetitions lie, each in seed-S.
        whom: Whom each seed measures.
        missing: Why some seeds are not measured, by seed.
    """

    agent: str
    suite: str
    splits: tuple[str, ...]
    config: Config
    directory: Path
    whom: dict[int, Who]
    missing: dict[int, str]


def plan_cells(spec: TableSpec, directory: Path) -> list[Cell]:
    """The cells of the table and then of its generalisation, agent by agent.

    Raises:
        ConfigError: A configuration is wrong, or there is no such baseline.
    """
    return [
        _cell(spec, name, agent, suite, columns, trained_on, directory)
        for name, agent in spec.agents.items()
        for suite, columns, trained_on in columns_of(spec)
    ]


def columns_of(spec: TableSpec) -> Iterator[tuple[str, SuiteColumns, str]]:
    """The suites, each with the suite that agents are trained for who are measured there."""
    for suite, columns in spec.suites.items():
        yield suite, columns, suite
    if spec.generalisation is not None:
        for suite, columns in spec.generalisation.suites.items():
            yield suite, columns, spec.generalisation.trained_on


def directory_of(directory: Path, agent: str, suite: str, trained_on: str) -> Path:
    """Where a cell lies: AGENT/SUITE, or AGENT/TRAINED-to-SUITE in the generalisation."""
    return directory / agent / (suite if suite == trained_on else f"{trained_on}-to-{suite}")


def _cell(
    spec: TableSpec,
    name: str,
    agent: AgentRow,
    suite: str,
    columns: SuiteColumns,
    trained_on: str,
    directory: Path,
) -> Cell:
    whom: dict[int, Who] = {}
    missing: dict[int, str] = {}
    for seed in spec.seeds:
        if agent.checkpoint is not None:
            path = agent.checkpoint_for(trained_on, seed)
            who = Who(checkpoint=None if path is None else Path(path).expanduser())
            if path is None:
                missing[seed] = f"no checkpoint is named for {trained_on}"
                continue
        else:
            who = Who(inference=tuple(agent.inference), agent=agent.agent)
        try:
            who.subject()
        except CheckpointError as error:
            missing[seed] = str(error)
        else:
            whom[seed] = who
    place = directory_of(directory, name, suite, trained_on)
    config = cell_config(spec, columns, agent)
    if agent.agent == NAME:
        config = as_prompted(config)
    return Cell(name, suite, tuple(columns.splits), config, place, whom, missing)
