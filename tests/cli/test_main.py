"""The command's frame: help, versions, errors as one line with an exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from distrl.cli import main as main_module
from distrl.cli.main import COMMANDS, app
from distrl.configs.parse import parse_yaml
from distrl.core import user_errors
from distrl.core.errors import RunDirectoryError
from distrl.core.importing import import_object
from distrl.core.supervisor import HOPELESS

runner = CliRunner()


def test_help_lists_every_command() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert name in result.output
        assert "Usage" in runner.invoke(app, [name, "--help"]).output


def test_a_mistyped_command_names_the_nearest() -> None:
    result = runner.invoke(app, ["snapshot-avdd"])
    assert result.exit_code == 2
    assert "snapshot-avd" in result.output.replace("snapshot-avdd", "")


@pytest.fixture
def failing(monkeypatch):
    """A command that raises what it is given, as if it were one of distrl's."""
    is_own = user_errors.is_own
    monkeypatch.setattr(user_errors, "is_own", lambda file: file != __file__ and is_own(file))

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
    failing(RunDirectoryError("\x1b[2J exists."))
    result = runner.invoke(app, [*([] if environment else ["--debug"]), "fail"], env=environment)
    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: \\x1b[2J exists.\n")
    assert "\x1b" not in result.stderr


def test_a_library_s_warning_does_not_control_the_terminal() -> None:
    shown = warnings.formatwarning("Glyph 155 (\x9b) missing", UserWarning, "figures.py", 1, "")
    assert shown == "figures.py:1: UserWarning: Glyph 155 (\\x9b) missing\n"


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


@pytest.mark.parametrize(("users", "found"), [(None, "PASSIVE"), ("active", "active")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(monkeypatch, users, found) -> None:
    def end(code: int) -> None:
        raise InterruptedError

    monkeypatch.setenv("OMP_WAIT_POLICY", users or "")
    if users is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(main_module, "app", lambda: sys.exit(0))
    monkeypatch.setattr(main_module.atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(main_module.os, "_exit", end)
    with pytest.raises(InterruptedError):
        main_module.main()
    assert os.environ["OMP_WAIT_POLICY"] == found


def test_what_an_own_module_raises_is_told_with_its_name_and_line(failing, tmp_path, monkeypatch) -> None:
    (tmp_path / "own_helper.py").write_text("def count(text):\n    return int(text)\n", encoding="utf-8")
    text = "from own_helper import count\nclass Mine:\n    def step(self):\n        return count('x\\ny')\n"
    (tmp_path / "own_class.py").write_text(text, encoding="utf-8")
    (tmp_path / "own_typo.py").write_text("x = (\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name, said in (
        ("own_class", "own_class:Mine.step raised ValueError: invalid literal"),
        ("own_typo", "own_typo.py raised SyntaxError: '(' was never closed (own_typo.py, line 1)"),
    ):
        with pytest.raises((ValueError, SyntaxError)) as caught:
            import_object(f"{name}:Mine")().step()
        failing(caught.value)
        result = runner.invoke(app, ["fail"])
        assert (result.exit_code, len(result.stderr.splitlines())) == (16, 1)
        assert said in result.stderr


@pytest.mark.parametrize("error", [ValueError("a fault"), OSError(errno.EACCES, "of a socket")])
def test_a_fault_of_distrl_s_own_keeps_its_traceback(failing, error: Exception) -> None:
    failing(error)
    assert runner.invoke(app, ["fail"]).exception is error


def test_a_place_that_cannot_be_written_is_one_line(failing) -> None:
    number = errno.EROFS
    failing(OSError(number, os.strerror(number), "there/e1"))
    result = runner.invoke(app, ["fail"])
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: there/e1: {os.strerror(number)}. Choose another path")


def test_a_full_gpu_is_one_line_which_no_restart_mends(failing) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: not installed")
    failing(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    result = runner.invoke(app, ["fail"])
    assert result.exit_code in HOPELESS
    assert result.stderr.startswith("error: The GPU's memory is full: CUDA out of memory. Tried")
    assert "learner.micro_batch_tokens" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs Linux: /dev/full")
def test_the_exit_code_tells_what_a_full_disk_keeps_from_the_log(tmp_path) -> None:
    command = [sys.executable, "-m", "distrl", "report", str(tmp_path / "nowhere")]
    with Path("/dev/full").open("w") as log:
        assert subprocess.run(command, stdout=log, stderr=log, check=False).returncode == 3
