"""`distrl collect`, and what is made of a collection: a dataset, a run's warm start."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core import process

runner = CliRunner()


@pytest.fixture(autouse=True)
def no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())


def run(*arguments: object) -> tuple[int, str, str]:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three demonstrations of the quickstart."""
    folder = tmp_path_factory.mktemp("collect") / "demos"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())
        code, stdout, _ = run("collect", "quickstart", "--episodes", 3, "--noise", 0, "--output", folder)
    assert (code, stdout) == (0, f"{folder}: 3 new demonstrations, 3 of them solve their task\n")
    return folder


def test_a_collection_is_not_overwritten_and_can_be_listed(collection: Path) -> None:
    code, _, stderr = run("collect", "quickstart", "--output", collection)
    assert (code, "exists already" in stderr) == (3, True)
    code, stdout, _ = run("inspect", collection)
    assert (code, stdout.count(" demo ")) == (0, 3)


@pytest.mark.needs("datasets")
def test_a_collection_becomes_a_dataset(collection: Path, tmp_path: Path) -> None:
    code, stdout, _ = run("export", collection, "--dataset", tmp_path / "ds")
    assert (code, stdout) == (0, f"{tmp_path / 'ds'}: 3 episodes: 3 train\n")
    assert run("export", collection, "--dataset", tmp_path / "ds")[0] == 3
    code, _, stderr = run("export", collection, "--dataset", tmp_path / "none", "--outcome", "failure")
    assert (code, "contains no such episode" in stderr) == (2, True)
    code, _, stderr = run("export", collection, "--dataset", tmp_path / "none", "--purpose", "test")
    assert (code, "train, eval, demo" in stderr) == (2, True)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("learner.demonstrations.episodes=4", 2, "holds 3"),
        ("agent.options={history: 1}", 2, "have the agent"),
        ("learner.demonstrations.dataset=/nowhere", 3, "collection.json is missing"),
    ],
)
def test_a_run_is_refused_before_it_starts(
    collection: Path, tmp_path: Path, change: str, code: int, said: str
) -> None:
    given = {
        "runs_dir": tmp_path,
        "learner.demonstrations.dataset": collection,
        "learner.demonstrations.episodes": 3,
    }
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    status, _, stderr = run("train", "quickstart", *sets, "--set", change)
    assert (status, said in stderr) == (code, True), stderr
    assert not list(tmp_path.iterdir())
