"""A table of results: which agents are measured on which suites. A YAML file.

base: quickstart                     # a preset or a file; a relative path is seen from this file
suites:                              # the columns: what each changes in the base, and its splits
  general: {set: {tasks.suite: general}, splits: [train, test]}
  webshop: {set: {tasks.suite: webshop}, splits: [train, test]}
agents:                              # the rows
  random: {agent: random}
  trained: {checkpoint: {general: "runs/general/seed-{seed}", webshop: "runs/webshop/seed-{seed}"}}
generalisation: {trained_on: general, suites: {install: {set: {tasks.suite: install}, splits: [test]}}}
seeds: [0, 1, 2]
episodes: 128                        # of each split
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from distrl.configs.arms import with_values
from distrl.configs.load import check_config, find_config, load_config
from distrl.configs.parse import read_yaml
from distrl.configs.presets import find_file
from distrl.configs.schema import Config
from distrl.configs.section import Section
from distrl.core.errors import ConfigError
from distrl.core.importing import look_in

TABLES_DIR = Path(__file__).resolve().parent / "tables"
SEED = "{seed}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
Names = Annotated[list[str], Field(min_length=1)]


class SuiteColumns(Section):
    """A group of columns. `values` (the key is `set`) changes the base; `title` is by default the name."""

    values: dict[str, Any] = Field(default={}, alias="set")
    splits: Names = ["train", "test"]
    title: str = ""


class AgentRow(Section):
    """A row: exactly one of `agent`, `checkpoint` and `inference`.

    Attributes:
        agent: A baseline, as `distrl evaluate --agent` takes it.
        checkpoint: A checkpoint or a run, for all suites or by suite. `{seed}` stands for the seed: each
            repetition then measures another run.
        inference: Servers that run already.
        values: What this agent changes in the configuration (the key is `set`).
        kind: The first column of the table, such as "Prompting"; agents of one kind stand together.
        is_reference: It is there for comparison, such as the expert, and is never the best (key `reference`).
        over: Another row, over which this one's gain is told.
    """

    agent: str | None = None
    checkpoint: str | dict[str, str] | None = None
    inference: list[str] = []
    values: dict[str, Any] = Field(default={}, alias="set")
    kind: str = ""
    is_reference: bool = Field(default=False, alias="reference")
    over: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> AgentRow:
        if sum(bool(one) for one in (self.agent, self.checkpoint, self.inference)) != 1:
            raise ValueError("give exactly one of agent, checkpoint and inference")
        return self

    def checkpoint_for(self, suite: str, seed: int) -> str | None:
        """The checkpoint that this agent measures on what was trained for `suite`; None if it names none."""
        found = self.checkpoint.get(suite) if isinstance(self.checkpoint, dict) else self.checkpoint
        return None if found is None else found.replace(SEED, str(seed))


class Generalisation(Section):
    """A further table, as the paper's figure 11: agents trained for `trained_on`, on other suites."""

    trained_on: str
    suites: Annotated[dict[str, SuiteColumns], Field(min_length=1)]


class TableSpec(Section):
    """What a table's file holds.

    Attributes:
        name: Of its directory; by default the file's.
        title: Above the table.
        base: A preset or a configuration file.
        values: For all cells (the key is `set`).
        suites, agents: The columns and the rows, by name.
        generalisation: The second table, if there is to be one.
        seeds: Each cell is measured with each.
        episodes: The most tasks of each split; all when null.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    title: str = ""
    base: str
    values: dict[str, Any] = Field(default={}, alias="set")
    suites: Annotated[dict[str, SuiteColumns], Field(min_length=1)]
    agents: Annotated[dict[str, AgentRow], Field(min_length=1)]
    generalisation: Generalisation | None = None
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)] = [0, 1, 2]
    episodes: Annotated[int, Field(ge=1)] | None = 128

    @field_validator("suites", "agents")
    @classmethod
    def _names_are_directories(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name; use letters, digits and ._-")
        return value

    @model_validator(mode="after")
    def _seeds_and_suites_fit(self) -> TableSpec:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed appears twice")
        if self.generalisation is not None and self.generalisation.trained_on not in self.suites:
            raise ValueError(f"generalisation.trained_on {self.generalisation.trained_on!r} is not a suite")
        for name, agent in self.agents.items():
            if agent.over is not None and (agent.over == name or agent.over not in self.agents):
                raise ValueError(f"{name} cannot be compared with {agent.over!r}; `over` names another row")
        return self

    def part(self, suites: Sequence[str]) -> TableSpec:
        """The table of these suites only; of generalisation what is left of it.

        Raises:
            ConfigError: One is not in the table, or none is a suite that agents are trained on.
        """
        others = {} if self.generalisation is None else self.generalisation.suites
        unknown = [name for name in suites if name not in {**self.suites, **others}]
        kept = {name: columns for name, columns in self.suites.items() if name in suites}
        if unknown or not kept:
            raise ConfigError(
                f"The table has no suite {unknown[0]!r}." if unknown else "No suite is left of the table.",
                f"There are: {', '.join(self.suites)}; for generalisation {', '.join(others) or 'none'}.",
            )
        rest = {name: columns for name, columns in others.items() if name in suites}
        generalisation = self.generalisation
        if generalisation is not None:
            is_kept = bool(rest) and generalisation.trained_on in kept
            generalisation = generalisation.model_copy(update={"suites": rest}) if is_kept else None
        return self.model_copy(update={"suites": kept, "generalisation": generalisation})


def load_table(
    table: str | Path,
    agents: Sequence[str] | None = None,
    suites: Sequence[str] | None = None,
    **instead: Any,
) -> TableSpec:
    """Reads a table's file.

    Args:
        table: A YAML file, or a preset's name.
        agents: Only these rows.
        suites: Only the columns of these.
        instead: Values in place of the file's: `seeds`, `episodes`, `name`; None leaves the file's.

    Raises:
        ConfigError: Something in the file is wrong, or there is no such agent or suite.
    """
    file = find_file(table, TABLES_DIR, "table")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise ConfigError(f"{file} is no table.", "Write at least `base`, `suites` and `agents`.")
    data |= {key: value for key, value in instead.items() if value is not None}
    data.setdefault("name", file.stem)
    try:
        spec = TableSpec.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        raise ConfigError(f"{file}: `{path or 'table'}`: {said}.") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file}: {error}.", "Use plain YAML data only.") from error
    if agents is not None:
        unknown = [name for name in agents if name not in spec.agents]
        if unknown:
            raise ConfigError(
                f"The table has no agent {unknown[0]!r}.", f"There are: {', '.join(spec.agents)}."
            )
        spec = spec.model_copy(update={"agents": {name: spec.agents[name] for name in agents}})
    spec = spec if suites is None else spec.part(suites)
    look_in(file.parent.resolve())
    base = file.parent / Path(spec.base).expanduser()
    return spec.model_copy(update={"base": str(base if base.is_file() else find_config(spec.base))})


def cell_config(spec: TableSpec, suite: SuiteColumns, agent: AgentRow) -> Config:
    """The configuration of a cell: the base, changed by the table, the suite and the agent.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    data = load_config(spec.base).model_dump(mode="json")
    for values in (spec.values, suite.values, agent.values):
        data = with_values(data, values, spec.name or "table")
    data["evaluate"]["episodes"] = spec.episodes
    return check_config(data, spec.name or "table")
