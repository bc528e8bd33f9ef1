"""The documentation of the configuration's keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.reference import explain, keys_of, reference, schema, sections
from distrl.core.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "distrl config reference > docs/configuration.md"


def test_every_key_has_a_sentence_that_names_it() -> None:
    keys = [key for path, model in sections() for key in keys_of(path, model) if key.values != "section"]
    assert [key.path for key in keys if f"`{key.path.rpartition('.')[2]}`" not in key.text] == []


def test_the_schema_has_choices_and_their_names() -> None:
    sections = schema()["$defs"]
    kinds, names = sections["LearnerConfig"]["properties"]["algorithm"]["anyOf"]
    assert {"$ref": "#/$defs/PpoConfig"} in kinds["oneOf"]
    assert "ppo" in names["enum"]
    assert "clip" in sections["PpoConfig"]["properties"]
    assert not sections["PpoConfig"]["additionalProperties"]
    judge = schema()["properties"]["judge"]["anyOf"]
    assert {"type": "null"} in judge
    assert "vlm" in judge[0]["anyOf"][1]["enum"]


def test_a_key_is_explained_for_each_kind_that_has_it() -> None:
    said = explain("learner.algorithm.clip_high")
    assert "learner.algorithm.kind: ppo" in said
    assert "default: 0.28" in said
    assert "upper end" in said
    assert "Keys: " in explain("learner.algorithm")
    assert explain("learner.episodes").startswith("learner.episodes\n  integer ≥ 1; default: 2000")


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean `learner\.episodes`"):
        explain("learner.episods")


def test_the_commands_print() -> None:
    for arguments, part in (
        (["explain", "env.kind"], "default: phone"),
        (["reference"], "# Configuration"),
        (["schema"], '"properties"'),
    ):
        result = CliRunner().invoke(app, ["config", *arguments])
        assert result.exit_code == 0
        assert part in result.output
