"""The command's frame: help, versions, errors as one line with an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from distrl import __version__
from distrl.cli import main as main_module
from distrl.cli.main import COMMANDS, app
from distrl.configs.parse import parse_yaml
from distrl.core.errors import RunDirectoryError

runner = CliRunner()


def test_help_lists_every_command() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert name in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = runner.invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_version() -> None:
    assert __version__ in runner.invoke(app, ["--version"]).output


def test_a_mistyped_command_names_the_nearest() -> None:
    result = runner.invoke(app, ["snapshot-avdd"])
    assert result.exit_code == 2
    assert "snapshot-avd" in result.output.replace("snapshot-avdd", "")


def test_snapshot_avd_lists_its_verbs() -> None:
    result = runner.invoke(app, ["snapshot-avd", "--help"])
    assert result.exit_code == 0
    for verb in ("create", "clone", "save", "load", "list", "verify", "delete"):
        assert verb in result.output


@pytest.fixture
def failing(monkeypatch):
    """A command that raises what it is given."""

    def _register(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setitem(main_module.COMMANDS, "fail", ("failing", "fail"))
        command = typer.Typer(add_completion=False)
        command.command("fail")(fail)
        real = main_module.LazyGroup.get_command
        monkeypatch.setattr(
            main_module.LazyGroup,
            "get_command",
            lambda self, ctx, name: (
                typer.main.get_command(command) if name == "fail" else real(self, ctx, name)
            ),
        )

    return _register


def test_an_error_is_one_line_and_its_exit_code(failing) -> None:
    failing(RunDirectoryError("It\nexists.", "Use another."))
    result = runner.invoke(app, ["fail"])
    assert result.exit_code == 3
    assert result.stderr == "error: It exists. Use another.\n"


@pytest.mark.parametrize("environment", [{}, {"DISTRL_DEBUG": "1"}])
def test_debug_adds_the_traceback(failing, environment: dict[str, str], monkeypatch) -> None:
    monkeypatch.setenv("DISTRL_DEBUG", "")
    failing(RunDirectoryError("It exists."))
    result = runner.invoke(app, [*([] if environment else ["--debug"]), "fail"], env=environment)
    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: It exists.\n")


def test_ctrl_c_is_quiet(failing) -> None:
    failing(KeyboardInterrupt())
    result = runner.invoke(app, ["fail"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_a_process_ends_with_its_output_flushed_and_its_exit_code() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "distrl", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    whole = run("train", "quickstart", "--dry-run")
    assert whole.returncode == 0
    assert parse_yaml(whole.stdout, "stdout")["name"] == "quickstart"
    assert run("no-such-command").returncode == 2
    assert run("snapshot-avd", "list", "no such AVD").returncode == 8


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs Linux: /dev/full")
def test_the_exit_code_tells_what_a_full_disk_keeps_from_the_log(tmp_path) -> None:
    command = [sys.executable, "-m", "distrl", "report", str(tmp_path / "nowhere")]
    with Path("/dev/full").open("w") as log:
        assert subprocess.run(command, stdout=log, stderr=log, check=False).returncode == 3
