"""Bad input, command by command: one line, the documented exit code, nothing overwritten."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core import checkpoints, process
from distrl.core.rundir import RunDir

ROLES = ("train", "run-learner", "serve-inference", "run-worker", "evaluate")
PACKAGES = pytest.mark.needs("torch", "transformers", "jinja2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty directory, and no signal handlers and log lines in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())
    handlers = list(logging.getLogger().handlers)
    yield
    for handler in set(logging.getLogger().handlers) - set(handlers):
        logging.getLogger().removeHandler(handler)


def refused(exit_code: int, message: str, *arguments: str) -> None:
    """The last line of stderr is the error; before it there may be log lines, but no traceback."""
    result = CliRunner().invoke(app, arguments)
    check(result.exit_code, result.stderr, exit_code, message)


def check(found: int, stderr: str, exit_code: int, message: str) -> None:
    assert found == exit_code, stderr
    assert "Traceback" not in stderr
    (error,) = (line for line in stderr.splitlines() if line.startswith("error: "))
    assert message in error
    assert stderr.splitlines()[-1] == error


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.yaml"], "There is no configuration file none.yaml"),
        (["broken.yaml"], "broken.yaml, line 2"),
        (["unknown.yaml"], "unknown key `worker.slts`. Did you mean `worker.slots`?"),
        (["quickstart", "--set", "worker.slots=many"], "`worker.slots` is 'many', expected a valid integer"),
        (["quickstart", "--set", "wrker.slots=2"], "unknown key `wrker`. Did you mean `worker`?"),
    ],
)
def test_every_role_refuses_a_bad_configuration(
    tmp_path: Path, role: str, arguments: list[str], message: str
) -> None:
    (tmp_path / "broken.yaml").write_text("worker: {slots: [1\n")
    (tmp_path / "unknown.yaml").write_text("worker: {slts: 1}\n")
    refused(2, message, role, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml", "unknown.yaml"]


@PACKAGES
@pytest.mark.parametrize(
    ("preset", "override", "message"),
    [
        ("quickstart", "env.kind=phne", "`env.kind` is 'phne', which does not exist. Did you mean 'phone'?"),
        ("quickstart", "agent.kind=autui", "`agent.kind` is 'autui'"),
        ("quickstart", "policy.kind=tny", "`policy.kind` is 'tny'"),
        ("quickstart", "env.options.widht=1", "unexpected keyword argument 'widht'"),
        ("miniwob", "env.options.site=minwob", "`env.options.site` is 'minwob'"),
        ("quickstart", "env.import_path=nowhere:Env", "there is no module nowhere"),
        ("quickstart", "learner.device=cuda", "`learner.device` is 'cuda', but this machine has no GPU"),
        ("quickstart", "policy.device=cuda:1", "`policy.device` is 'cuda:1', but this machine has no GPU"),
        ("quickstrt", "seed=1", "Did you mean quickstart?"),
    ],
)
def test_train_refuses_at_once_what_cannot_work(
    tmp_path: Path, preset: str, override: str, message: str
) -> None:
    refused(2, message, "train", preset, "--set", override)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def existing(tmp_path: Path) -> RunDir:
    """A run whose newest checkpoint has lost its last byte."""
    run = RunDir.create(Config(name="here", runs_dir=str(tmp_path / "runs")))
    path = checkpoints.write_checkpoint(
        run.checkpoints, "step_4", lambda folder: (folder / "state.json").write_bytes(b"0123456789")
    )
    checkpoints.point(run.checkpoints, "latest", "step_4")
    (path / "state.json").write_bytes(b"012345678")
    return run


ANY_PORTS = [f"--set=network.{name}=tcp://127.0.0.1:0" for name in ("control", "broadcast", "weights")]


@pytest.mark.parametrize(
    ("exit_code", "message", "arguments"),
    [
        pytest.param(
            *(3, "The run directory runs/here exists already", ["run-learner", "quickstart"]),
            marks=pytest.mark.needs("torch"),
        ),
        pytest.param(
            5, "does not exist", ["run-learner", "quickstart", "--resume", "--set=network.keys_dir=none"],
            marks=pytest.mark.needs("torch"),
        ),
        pytest.param(
            4, "state.json has 9 bytes, not 10", ["run-learner", "quickstart", "--resume", *ANY_PORTS],
            marks=pytest.mark.needs("torch"),
        ),
        (4, "step_7", ["evaluate", "quickstart", "--checkpoint", "runs/here/checkpoints/step_7"]),
        (
            *(4, "state.json has 9 bytes, not 10"),
            ["evaluate", "quickstart", "--checkpoint", "runs/here/checkpoints/step_4"],
        ),
    ],
)  # fmt: skip
def test_a_run_that_is_there_is_left_alone(
    existing: RunDir, exit_code: int, message: str, arguments: list[str]
) -> None:
    before = {path: path.read_bytes() for path in existing.path.rglob("*.*") if path.is_file()}
    refused(exit_code, message, *arguments, "--set", "name=here")
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.needs("torch")
def test_a_learner_refuses_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        refused(
            5,
            f"The address {address} is in use",
            "run-learner",
            "quickstart",
            f"--set=network.control={address}",
        )
    assert list((tmp_path / "runs").iterdir()) == [], "nothing may block the next start"


@PACKAGES
def test_a_run_whose_worker_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise ValueError('the phone is off')\n")
    options = ("local.inference_servers=1", "local.workers=1", "env.import_path=mine:make")
    command = [sys.executable, "-m", "distrl", "train", "quickstart", *(f"--set={one}" for one in options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    check(result.returncode, result.stderr, 2, "worker-0 stopped: ")
    assert "runs/quickstart was removed" in result.stderr
    assert list((tmp_path / "runs").iterdir()) == [], "nothing may block the next start"


@pytest.mark.parametrize(
    "role",
    [
        pytest.param("train", marks=PACKAGES),
        pytest.param("run-learner", marks=pytest.mark.needs("torch")),
        "evaluate",
    ],
)
def test_a_broken_task_file(tmp_path: Path, role: str) -> None:
    (tmp_path / "tasks.yaml").write_text("- {id: [}\n")
    extra = ["--agent", "expert"] if role == "evaluate" else []
    arguments = [role, "quickstart", "--set", "tasks.suite=tasks.yaml", *extra]
    refused(6, "tasks.yaml, line 1: expected the node content", *arguments)


@pytest.mark.parametrize(
    "role", ["run-worker", pytest.param("serve-inference", marks=pytest.mark.needs("torch"))]
)
def test_an_unreachable_learner(role: str) -> None:
    options = ["--set", "network.control=tcp://127.0.0.1:1", "--wait", "0.3"]
    refused(5, "No learner answered at tcp://127.0.0.1:1 within 0.3 s", role, "quickstart", *options)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, where no folder can be made")
@pytest.mark.parametrize(
    "arguments",
    [
        ["collect", "quickstart", "--output", "/proc/x"],
        ["evaluate", "quickstart", "--agent", "expert", "--output", "/proc/x"],
        ["export", ".", "--adapter", "/proc/x"],
        ["keys", "create", "/proc/x"],
        ["table", "quickstart", "--markdown", "/proc/x/table.md"],
        ["sweep", "learning", "--runs-dir", "/proc/x"],
    ],
)
def test_an_output_folder_that_cannot_be_made_is_refused_at_once(arguments: list[str]) -> None:
    refused(3, "/proc/x", *arguments)


def test_an_error_names_a_page_that_exists(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("class Env:\n    pass\n")
    options = ["--agent", "expert", "--set", "env.import_path=bad:Env", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["evaluate", "quickstart", *options])
    (page,) = re.findall(r"\S+docs/extending\.md", result.stderr)
    assert Path(page).is_file()
