"""Bad input, command by command: one line, the documented exit code, nothing overwritten."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core import checkpoints, process
from distrl.core.rundir import RunDir

ROLES = ("train", "run-learner", "serve-inference", "run-worker", "evaluate")
PACKAGES = pytest.mark.needs("torch", "transformers", "jinja2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory, no signal handlers, and no log of another test's command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(process, "install_signals", lambda grace_s=None: process.StopEvent())
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if type(handler).__module__.startswith("_pytest")]
    monkeypatch.setattr(root, "handlers", ours)


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
        (["quickstart", "--set", "worker.slots=many"], "`worker.slots` is 'many', expected a valid integer"),
    ],
)
def test_every_role_refuses_a_bad_configuration(
    tmp_path: Path, role: str, arguments: list[str], message: str
) -> None:
    (tmp_path / "broken.yaml").write_text("worker: {slots: [1\n")
    refused(2, message, role, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml"]


TRAIN = "train quickstart"
WORKER = "run-worker quickstart"
JUDGED = "--set worker.rewards.source=judge"


@PACKAGES
@pytest.mark.parametrize(
    ("command", "setting", "exit_code", "message"),
    [
        (TRAIN, "env.kind=phne", 2, "`env.kind` is 'phne', which does not exist. Did you mean 'phone'?"),
        (TRAIN, "env.options.widht=1", 2, "unexpected keyword argument 'widht'"),
        ("train miniwob", "env.options.site=minwob", 2, "`env.options.site` is 'minwob'"),
        (TRAIN, "env.import_path=nowhere:Env", 2, "there is no module nowhere"),
        (TRAIN, "learner.device=cuda", 2, "`learner.device` is 'cuda', but this machine has no GPU"),
        (TRAIN, "policy.device=cuda:1", 2, "`policy.device` is 'cuda:1', but this machine has no GPU"),
        (
            TRAIN,
            "policy.device=gpu",
            2,
            "`policy.device` is 'gpu', which torch cannot use on this machine. Set",
        ),
        (TRAIN, "tasks.suite=nowhere", 6, "tasks.suite: there is no suite 'nowhere'"),
        ("train quickstart-pixels", "env.kind=two_screens", 6, "Take the suite two_screens"),
        (TRAIN, "env.kind=two_screens", 2, "env 'two_screens' lists none"),
        (TRAIN, "env.options.backend=zz", 2, "backend='zz' is not a task backend"),
        (TRAIN, "env.options.width=-3", 2, "got -3x1200"),
        (TRAIN, "devices.pool=[{kind: sim, width: 100, height: 100}]", 2, "got 100x100"),
        (TRAIN, "devices.pool=[{kind: avd, avd: P, sdk: nowhere}]", 7, "no Android emulator was found"),
        (TRAIN, "learner.demonstrations.weights={fly: 2.0}", 2, "the template 'fly'"),
        (TRAIN, "tasks.test=[nosplit]", 6, "no split 'nosplit'"),
        (TRAIN, "tasks.suite=tasks.yaml", 6, "tasks.yaml, line 1: expected the node content"),
        (TRAIN, "tasks.suite=fly.yaml", 6, "u/train: on the simulated phone there is no"),
        (TRAIN, "policy={kind: hub, model: ./nowhere}", 2, "`policy.model` is './nowhere'"),
        (TRAIN, "network.control=tcp://0.0.0.0:0", 5, "needs keys"),
        (TRAIN, "network.control=tcp://127.0.0.1:99999", 2, "not a valid address"),
        (f"{TRAIN} --set local.inference_servers=2", "network.act=tcp://127.0.0.1:5799", 2, "one of 2"),
        (f"{TRAIN} --resume", "seed=1", 3, "is not a run"),
        (TRAIN, "env.kind=android_world", 7, "android_world: not installed"),
        (
            "train qwen-vl",
            "policy.model=nobody/none",
            9,
            "'nobody/none' is missing or incomplete here, and",
        ),
        (WORKER, "env.options.backend=zz", 2, "env.options"),
        ("evaluate quickstart --agent=expert", "env.options.backend=zz", 2, "env.options"),
        (f"{TRAIN} --set worker.screenshot_format=jpeg {JUDGED}", "judge=vlm", 2, "judge.model is empty"),
        ("launch phones --on=local", "seed=1", 2, "judge.model is empty. Set it to"),
        ("evaluate quickstart --inference=nowhere", "seed=1", 5, "'nowhere' is not a ZeroMQ address"),
        ("evaluate quickstart --inference=http://127.0.0.1:9", "seed=1", 5, "--http is for other clients"),
        ("run-learner quickstart", "learner.device=cuda:99", 2, "learner.device"),
        ("serve-inference quickstart", "policy.device=cuda:99", 2, "policy.device"),
        ("serve-inference quickstart --checkpoint=none --http=x", "seed=1", 2, "--http 'x' is not a valid"),
    ],
)
def test_what_cannot_work_is_refused_at_once_and_makes_nothing(
    tmp_path: Path, monkeypatch, command: str, setting: str, exit_code: int, message: str
) -> None:
    monkeypatch.setattr("distrl.cli.health.machine.find_spec", lambda name: None)
    monkeypatch.setattr("distrl.core.hub_files._unreachable", lambda model: "no network")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "tasks.yaml").write_text("- {id: [}\n")
    task = "- {id: u/SPLIT, split: SPLIT, goal: Fly, template: fly, params: {}}\n"
    splits = ("train", "val", "test", "unseen_layout")
    (tmp_path / "fly.yaml").write_text("".join(task.replace("SPLIT", split) for split in splits))
    refused(exit_code, message, *command.split(), "--set", setting)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fly.yaml", "tasks.yaml"]


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
    result = CliRunner().invoke(app, ["evaluate", "quickstart-pixels", *options])
    (page,) = re.findall(r"\S+docs/extending\.md", result.stderr)
    assert Path(page).is_file()


def test_continuous_control_has_no_imagined_episodes(tmp_path: Path) -> None:
    run = RunDir.create(load_config("appo-hopper", [f"runs_dir={tmp_path}"]))
    refused(2, "has no imagined episodes", "world", str(run.path))
