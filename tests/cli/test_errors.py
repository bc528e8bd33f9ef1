"""Bad input, command by command, as processes: one line, the documented exit code, nothing overwritten."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distrl.configs.schema import Config
from distrl.core import checkpoints
from distrl.core.rundir import RunDir

ROLES = ("train", "run-learner", "serve-inference", "run-worker", "evaluate")


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "distrl", *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def check(result: subprocess.CompletedProcess[str], exit_code: int, message: str) -> None:
    """The last line of stderr is the error; before it there may be log lines, but no traceback."""
    assert result.returncode == exit_code, result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    assert message in errors[0]
    assert result.stderr.splitlines()[-1] == errors[0]


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
def test_every_role_refuses_a_bad_configuration(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.yaml").write_text("worker: {slots: [1\n")
    (tmp_path / "unknown.yaml").write_text("worker: {slts: 1}\n")
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda role: run(tmp_path, role, *arguments), ROLES))
    for result in results:
        check(result, 2, message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml", "unknown.yaml"]


@pytest.mark.needs("torch")
def test_a_learner_refuses_an_existing_run_directory(tmp_path: Path) -> None:
    existing = RunDir.create(Config(name="here", runs_dir=str(tmp_path / "runs")))
    before = {path: path.stat().st_mtime_ns for path in existing.path.rglob("*")}
    result = run(tmp_path, "run-learner", "quickstart", "--set", "name=here")
    check(result, 3, "The run directory runs/here exists already")
    assert {path: path.stat().st_mtime_ns for path in existing.path.rglob("*")} == before


@pytest.mark.needs("torch")
def test_a_learner_refuses_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        result = run(tmp_path, "run-learner", "quickstart", "--set", f"network.control={address}")
    check(result, 5, f"The address {address} is in use")
    assert list((tmp_path / "runs").iterdir()) == [], "nothing may block the next start"


@pytest.mark.needs("torch")
def test_a_resumed_run_that_cannot_start_stays(tmp_path: Path) -> None:
    existing = RunDir.create(Config(name="here", runs_dir=str(tmp_path / "runs")))
    keys = ["--set", f"network.keys_dir={tmp_path / 'none'}"]
    result = run(tmp_path, "run-learner", "quickstart", "--set", "name=here", "--resume", *keys)
    check(result, 5, "does not exist")
    assert existing.config.is_file()


@pytest.mark.needs("torch", "transformers", "jinja2")
def test_a_run_whose_worker_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise ValueError('the phone is off')\n")
    options = ("local.inference_servers=1", "local.workers=1", "env.import_path=mine:make")
    result = run(tmp_path, "train", "quickstart", *(f"--set={option}" for option in options))
    check(result, 2, "worker-0 stopped: ")
    assert "runs/quickstart was removed" in result.stderr
    assert list((tmp_path / "runs").iterdir()) == [], "nothing may block the next start"


@pytest.mark.parametrize(
    "role",
    [
        pytest.param("train", marks=pytest.mark.needs("torch", "transformers", "jinja2")),
        pytest.param("run-learner", marks=pytest.mark.needs("torch")),
        "evaluate",
    ],
)
def test_a_broken_task_file(tmp_path: Path, role: str) -> None:
    (tmp_path / "tasks.yaml").write_text("- {id: [}\n")
    extra = ["--agent", "expert"] if role == "evaluate" else []
    result = run(tmp_path, role, "quickstart", "--set", "tasks.suite=tasks.yaml", *extra)
    check(result, 6, "tasks.yaml, line 1: expected the node content")


def damaged_run(directory: Path) -> RunDir:
    """A run whose newest checkpoint has lost its last byte."""
    existing = RunDir.create(Config(name="here", runs_dir=str(directory / "runs")))
    path = checkpoints.write_checkpoint(
        existing.checkpoints, "step_4", lambda folder: (folder / "state.json").write_bytes(b"0123456789")
    )
    checkpoints.point(existing.checkpoints, "latest", "step_4")
    (path / "state.json").write_bytes(b"012345678")
    return existing


def test_a_missing_checkpoint(tmp_path: Path) -> None:
    result = run(tmp_path, "evaluate", "quickstart", "--checkpoint", "runs/here/checkpoints/step_7")
    check(result, 4, "step_7")


def test_a_truncated_checkpoint_is_not_evaluated(tmp_path: Path) -> None:
    path = damaged_run(tmp_path).checkpoints / "step_4"
    check(
        run(tmp_path, "evaluate", "quickstart", "--checkpoint", str(path)),
        4,
        "state.json has 9 bytes, not 10",
    )


@pytest.mark.needs("torch")
def test_a_truncated_checkpoint_is_not_resumed_from(tmp_path: Path) -> None:
    existing = damaged_run(tmp_path)
    options = [f"--set=network.{name}=tcp://127.0.0.1:0" for name in ("control", "broadcast", "weights")]
    result = run(tmp_path, "run-learner", "quickstart", "--set", "name=here", "--resume", *options)
    check(result, 4, "state.json has 9 bytes, not 10")
    assert (existing.checkpoints / "step_4" / "state.json").read_bytes() == b"012345678"


@pytest.mark.parametrize(
    "role", ["run-worker", pytest.param("serve-inference", marks=pytest.mark.needs("torch"))]
)
def test_an_unreachable_learner(tmp_path: Path, role: str) -> None:
    options = ["--set", "network.control=tcp://127.0.0.1:1", "--wait", "0.3"]
    result = run(tmp_path, role, "quickstart", *options)
    check(result, 5, "No learner answered at tcp://127.0.0.1:1 within 0.3 s")


@pytest.mark.needs("torch", "transformers", "jinja2")
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str, override: str, message: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check(run(tmp_path, "train", preset, "--set", override), 2, message)
    assert list(tmp_path.iterdir()) == []


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
def test_an_output_folder_that_cannot_be_made_is_refused_at_once(
    tmp_path: Path, arguments: list[str]
) -> None:
    check(run(tmp_path, *arguments), 3, "/proc/x")


def test_an_error_names_a_page_that_exists(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("class Env:\n    pass\n")
    options = ["--agent", "expert", "--set", "env.import_path=bad:Env", "--output", str(tmp_path / "out")]
    result = run(tmp_path, "evaluate", "quickstart", *options)
    (page,) = re.findall(r"\S+docs/extending\.md", result.stderr)
    assert Path(page).is_file()
