"""`distrl evaluate --rejudge`: what it prints, and how it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from judge_endpoint import JudgeEndpoint, Reply, says, status
from rejudging import command, fill
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core.errors import JudgeRefuses
from distrl.evaluator.rejudge import read_verdicts


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "sk")


def test_the_command_says_why_episodes_are_unjudged(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2: not installed")
    fill(tmp_path, True, True, True, True)
    with JudgeEndpoint(
        [Reply(500, "oops 1"), Reply(500, "oops 2"), says("Hm 1."), says("Hm 2.")]
    ) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint), catch_exceptions=False)
    assert result.exit_code == 0
    assert f"  2 unjudged: The endpoint: {endpoint.url}/chat/completions answers 500." in result.output
    assert "answers 500: oops 1." in result.output
    assert "  2 unjudged: The answer has no status, or several; it ends with …." in result.output
    assert "'Hm 1.'" in result.output
    assert result.output.count("judged 4 of 4") == 1
    assert "judged 0" not in result.output
    page = (tmp_path / "agreement-vlm.html").read_text()
    assert "Why episodes are unjudged" in page
    assert "answers 500: oops 1." in page
    lines = read_verdicts(tmp_path / "verdicts/vlm.jsonl")
    assert all("Task: " in one.verdict.prompt and one.verdict.model == "m" for one in lines)


def test_the_command_ends_with_a_refused_key(tmp_path: Path) -> None:
    fill(tmp_path, True, True, True, True)
    with JudgeEndpoint([Reply(401, "who are you?")]) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint))
        assert len(endpoint.requests) == 1
    assert isinstance(result.exception, (JudgeRefuses, SystemExit))
    assert result.exit_code != 0
    assert "1 unjudged: The endpoint" in result.output


def test_an_interrupted_session_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, True, True)
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr("distrl.core.process.install_signals", lambda grace_s: stop)
    with JudgeEndpoint([status(True)]) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint))
    assert result.exit_code != 0
    assert "Run the same command again" in f"{' '.join(result.output.split())} {result.exception}"


def test_the_command_prints_the_numbers_and_writes_the_page(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2: not installed")
    (wrong, *_) = fill(tmp_path, False, True)
    with JudgeEndpoint([status(True)]) as endpoint:
        options = ["url=" + endpoint.url, "model=m", "examples=null"]
        sets = [part for option in options for part in ("--set", f"judge.{option}")]
        line = ["evaluate", "quickstart", "--rejudge", str(tmp_path), "--judge", "vlm", *sets]
        result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "vlm against ground truth: 50.0% agree" in result.output
    assert "2 were not judged" in result.output
    assert "2 calls, 2,000 + 40 tokens\n" in result.output
    page = (tmp_path / "agreement-vlm.html").read_text()
    assert wrong.id in page
    assert "truth: failure" in page
    assert "data:image/jpeg;base64" in page
    assert "I see it." in page
    assert "2 calls, 2,000 + 40 tokens; failed calls and garbage included" in page
    assert (tmp_path / "verdicts/vlm.jsonl").is_file()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--judge", "vlm"], "--rejudge"),
        (["--rejudge", "/nowhere", "--judge", "ground_truth", "--seeds", "5"], "--seeds has no effect"),
        (
            ["--rejudge", "/nowhere", "--split", "x", "--output", "/x", "--agent", "expert", "--resume"],
            "--agent, --split, --output, --resume has no effect",
        ),
        (["--rejudge", "/nowhere", "--wait", "1"], "--wait has no effect"),
        (["--rejudge", "/nowhere"], "No judge is configured"),
        (["--rejudge", "/nowhere", "--judge", "rules"], "no rules"),
        (["--rejudge", "/nowhere", "--judge", "ground_truth"], "no trajectory store"),
    ],
)
def test_what_is_missing_is_told(options: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["evaluate", "quickstart", *options])
    assert result.exit_code != 0
    assert problem in " ".join(result.output.split())
