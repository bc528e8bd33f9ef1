"""`distrl dashboard` beside a run, and its command line."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner
from waiting import until

from distrl.cli.local.run import followed
from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(Config.model_validate({"name": "r", "runs_dir": str(tmp_path)}))


def name_at(url: str) -> str:
    """The run that is shown there; "" while nothing is."""
    try:
        with urllib.request.urlopen(f"{url}api/snapshot", timeout=10) as answer:
            found = json.load(answer)["run"]["name"]
    except (urllib.error.URLError, ConnectionError):
        return ""
    assert isinstance(found, str)
    return found


def test_a_run_serves_its_dashboard_as_long_as_it_lasts(run: RunDir) -> None:
    out = io.StringIO()
    with followed(run, Console(file=out), ui=True):
        url = out.getvalue().split()[-1]
        until(lambda: name_at(url) == "r", "the dashboard", details=(run.logs / "dashboard.log").read_text)
    assert name_at(url) == ""


def test_without_ui_the_command_is_printed(run: RunDir) -> None:
    out = io.StringIO()
    with followed(run, Console(file=out), ui=False):
        assert f"distrl dashboard {run.path}" in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ([], ConfigError, "nothing to watch"),
        (["RUN", "--http", "0.0.0.0:0"], ConfigError, "other machines"),
        (["RUN", "--http", "x"], ConfigError, "not a valid address"),
        (["RUN/none"], RunDirectoryError, "not a run directory"),
        (["--learner", "tcp://192.0.2.1:5700"], None, "keys"),
    ],
)
def test_wrong_commands_are_refused_in_a_line(
    run: RunDir, arguments: list[str], error: type[ConfigError] | None, words: str
) -> None:
    named = [argument.replace("RUN", str(run.path)) for argument in arguments]
    result = CliRunner().invoke(app, ["dashboard", *named])
    assert words in result.output
    assert result.exit_code == (error.exit_code if error is not None else 5)
