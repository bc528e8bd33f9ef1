"""`distrl table`: the table in its directory, in a document, and on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core import process

runner = CliRunner()


@pytest.fixture(autouse=True)
def no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())


def run(*arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, ["table", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_table_of_the_quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # there may be a run of the quickstart in the clone
    output, document = tmp_path / "out", tmp_path / "results.md"
    options = ["quickstart", "--agents", "expert,trained", "--seeds", "0,1", "--episodes", "1"]
    options += ["--output", str(output), "--markdown", str(document)]
    code, listed, _ = run(*options, "--dry-run")
    assert code == 0
    assert "seeds left: 0, 1" in listed
    assert "There is no checkpoint" in listed
    assert not output.exists()

    code, printed, _ = run(*options)
    assert code == 0
    assert "expert" in printed
    table = (output / "table.md").read_text()
    assert "| Scripted | *expert* | 100.0 ± 0.0 | 100.0 ± 0.0 |" in table
    assert table in document.read_text()
    assert "distrl table quickstart --seeds 0,1 --episodes 1" in printed
    assert json.loads((output / "results.json").read_text())["cells"][0]["mean"] == 1.0
    assert "There is no checkpoint runs/quickstart" in (output / "table.md").read_text()

    code, again, _ = run(*options, "--report-only")
    assert (code, again) == (0, printed)


def test_a_table_has_parts() -> None:
    code, listed, _ = run(
        "table1", "--agents", "expert", "--suites", "general,install", "--seeds", "0", "--dry-run"
    )
    assert code == 0
    assert [line.split()[0].rpartition("/expert/")[2] for line in listed.splitlines()] == [
        "general",
        "install",
    ]
    code, _, stderr = run("table1", "--suites", "generl")
    assert code == 2
    assert "no suite 'generl'" in stderr
