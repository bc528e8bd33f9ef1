"""`distrl evaluate`: results and report on disk, and one clear line for what cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core import process
from distrl.core.checkpoints import write_checkpoint

runner = CliRunner()
LIMIT = ["--set", "evaluate.episodes=1", "--set", "evaluate.slots=1"]


@pytest.fixture(autouse=True)
def no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())


def run(*arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, ["evaluate", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.needs("jinja2")
def test_the_expert_solves_tasks_of_the_quickstart(tmp_path: Path) -> None:
    output = tmp_path / "expert"
    code, stdout, _ = run(
        "quickstart", "--agent", "expert", "--split", "test", "--output", str(output), *LIMIT
    )
    assert code == 0
    assert "100%" in stdout
    assert "steps ÷ expert's 1.00" in stdout, "the distance of each screen is recorded"
    assert {path.name for path in output.iterdir()} >= {
        "results.json",
        "episodes.jsonl",
        "store.sqlite3",
        "report.html",
        "report.json",
    }
    numbers = json.loads((output / "results.json").read_text())["splits"]["test"]["overall"]
    assert (numbers["successes"], numbers["episodes"]) == (1, 1)

    again = run("quickstart", "--agent", "expert", "--split", "test", "--output", str(output), *LIMIT)
    assert again[0] == 3
    assert "exists already" in again[2]

    compared = tmp_path / "random"
    code, _, _ = run(
        "quickstart", "--agent", "random", "--split", "test", "--output", str(compared),
        "--baseline", str(output), *LIMIT,
    )  # fmt: skip
    assert code == 0
    assert set(json.loads((compared / "report.json").read_text())["evaluations"]) == {"expert", "random"}

    other = tmp_path / "val"
    code, printed, _ = run(
        "quickstart", "--agent", "expert", "--split", "val", "--output", str(other),
        "--baseline", str(output), *LIMIT,
    )  # fmt: skip
    assert code == 0
    assert "no gain: no split is measured in both the baseline (test) and this evaluation (val)" in printed


def broken_checkpoint(folder: Path) -> Path:
    step = write_checkpoint(folder, "step_1", lambda path: (path / "weights").write_bytes(b"w" * 100))
    (step / "weights").write_bytes(b"w")
    return step


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    broken, output = broken_checkpoint(tmp_path / "c"), tmp_path / "out"
    unreachable = ["--learner", "tcp://127.0.0.1:9", "--wait", "0.2"]
    silent = ["--inference", "tcp://127.0.0.1:9", "--wait", "0.2"]
    for arguments, code, expected in [
        (["--checkpoint", str(tmp_path / "nothing")], 4, "There is no checkpoint"),
        (["--checkpoint", str(broken)], 4, "1 bytes, not 100"),
        (unreachable, 5, "No learner answered at tcp://127.0.0.1:9"),
        (silent, 5, "No policy to measure"),
        ([], 2, "Pass exactly one of"),
        (["--agent", "monkey"], 2, "no baseline agent 'monkey'"),
        (["--agent", "expert", "--split", "moon"], 6, "no split 'moon'"),
        (["--agent", "expert", "--baseline", str(tmp_path)], 3, "no complete evaluation"),
    ]:
        exit_code, _, stderr = run("quickstart", "--output", str(output), *arguments)
        assert exit_code == code, stderr
        last = stderr.strip().splitlines()[-1]
        assert last.startswith("error: ")
        assert expected in last
        assert "Traceback" not in stderr
        assert not output.exists()
