"""`distrl launch` up to where processes start: roles, keys, scripts, errors, and a keeper's endings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ssh_hosts import HOSTS
from typer.testing import CliRunner
from waiting import until

from distrl.cli.backends.backend import (
    ProcessState,
    end_run,
    make_backend,
    make_keys,
    plan_roles,
    read_ending,
    read_state,
    state_file,
    write_launch,
    write_notes,
)
from distrl.cli.backends.keeper import Keeper, read_states
from distrl.cli.backends.roles import Role
from distrl.cli.local.gpus import variables_by_role
from distrl.cli.main import app
from distrl.configs.load import load_config
from distrl.configs.placement import RolePlacement
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError
from distrl.core.files import try_lock
from distrl.core.process import StopEvent
from distrl.core.rundir import RunDir
from distrl.core.security import list_allowed

runner = CliRunner()
PLACED = (
    "placement.learner={gpus: 4, cpus: 16, memory_gb: 64}",
    "placement.inference={count: 2, gpus: 1, options: [--partition=gpu]}",
    "placement.workers={count: 3, max: 5, cpus: 8, resources: {emulators: 8}}",
    "placement.hours=24",
    "placement.hosts=[me@gpu, farm-1]",
)


def placed(folder: Path, *more: str) -> Config:
    return load_config("quickstart", ["name=here", f"runs_dir={folder}/runs", *PLACED, *more])


def options(folder: Path) -> list[str]:
    return [f"--set={setting}" for setting in ("name=here", f"runs_dir={folder}/runs", *PLACED)]


@pytest.mark.parametrize("on", ["local", "ssh", "slurm"])
def test_a_dry_run_prints_every_process_and_writes_nothing(tmp_path: Path, on: str) -> None:
    result = runner.invoke(app, ["launch", "quickstart", "--on", on, "--dry-run", *options(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "learner" in result.stdout
    assert "inference-$SLURM_ARRAY_TASK_ID" in result.stdout or "inference-1" in result.stdout
    assert "worker-$SLURM_ARRAY_TASK_ID" in result.stdout or "worker-2" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("on", "program"), [("ssh", "ssh"), ("slurm", "sbatch")])
def test_a_missing_program_is_one_line_and_leaves_no_run_behind(
    tmp_path: Path, monkeypatch, on: str, program: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = runner.invoke(app, ["launch", "quickstart", "--on", on, *options(tmp_path)])
    assert result.exit_code == 7
    assert f"The program {program} is not installed" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "runs" / "here").exists()


def test_a_wrong_backend_and_a_run_that_was_not_launched(tmp_path: Path) -> None:
    result = runner.invoke(app, ["launch", "quickstart", "--on", "slrum"])
    assert result.exit_code == 2
    assert "Did you mean 'slurm'" in result.stderr
    RunDir.create(placed(tmp_path))
    result = runner.invoke(app, ["launch", "status", f"{tmp_path}/runs/here"])
    assert result.exit_code == 3
    assert "was not started by `distrl launch`" in result.stderr


def test_counts_stay_within_their_bounds(tmp_path: Path) -> None:
    result = runner.invoke(
        app, ["launch", "quickstart", "--on", "local", "--set=placement.workers={count: 9, max: 4}"]
    )
    assert result.exit_code == 2
    assert "min, count and max must not decrease, but those set are [9, 4]" in result.stderr


@pytest.mark.parametrize("host", ["2001:db8::1", "me@[::1]", "farm-1:22", "-oProxyCommand=x", ""])
def test_hosts_are_names_or_ipv4_addresses(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match=f"'{re.escape(host)}' is not a valid host; use HOST or USER@HOST"):
        placed(tmp_path, f"placement.workers.hosts=['{host}']")


def test_a_learner_on_several_nodes_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    config = placed(tmp_path, "placement.learner.count=2")
    with pytest.raises(ConfigError, match="count=2 works with --on ray only"):
        plan_roles(config, make_backend("slurm", config, RunDir.of(config)))


def test_each_process_has_its_own_key_and_only_the_files_of_its_role(tmp_path: Path) -> None:
    config = placed(tmp_path)
    run = RunDir.create(config)
    found = {role.name: role for role in plan_roles(config, make_backend("local", config, run))}
    assert set(found) == {"learner", "inference-0", "inference-1", "worker-0", "worker-1", "worker-2"}
    assert found["worker-1"].needs.resources == {"emulators": 8}
    assert set(found["worker-1"].files) == {
        "config.yaml", "launch/keys/server.pub", "launch/keys/worker-1.key",
    }  # fmt: skip
    assert "launch/keys/server.key" in found["inference-0"].files
    make_keys(config, run, list(found.values()))
    clients = list_allowed(run.path / "launch" / "keys")
    assert clients["worker-4"].roles == ("worker",), "a cluster may add it"
    assert clients["inference-1"].roles == ("inference",)
    before = (run.path / "launch" / "keys" / "worker-0.key").read_bytes()
    more = placed(tmp_path, "placement.workers.max=6")
    make_keys(more, run, list(found.values()))
    assert (run.path / "launch" / "keys" / "worker-0.key").read_bytes() == before
    assert "worker-5" in list_allowed(run.path / "launch" / "keys")


@pytest.mark.parametrize(("bounds", "count"), [("min: 4", 4), ("max: 1", 1)])
def test_there_are_as_many_workers_as_the_bounds_allow(tmp_path: Path, bounds: str, count: int) -> None:
    config = placed(tmp_path, f"placement.workers={{{bounds}}}", "local.workers=2")
    planned = plan_roles(config, make_backend("local", config, RunDir.of(config)))
    assert sum(role.kind == "worker" for role in planned) == count


def test_addresses_that_the_user_chose_stay(tmp_path: Path) -> None:
    config = placed(tmp_path, "network.control=tcp://10.0.0.1:5700")
    settings = make_backend("slurm", config, RunDir.of(config)).settings()
    assert settings["network.rendezvous"] == f"file:{tmp_path}/runs/here/launch/learner.json"
    assert settings["network.weights"] == settings["network.act"] == "tcp://0.0.0.0:*"
    assert "network.control" not in settings


def test_slurm_is_asked_for_what_the_roles_need(tmp_path: Path) -> None:
    config = placed(tmp_path)
    backend = make_backend("slurm", config, RunDir.of(config))
    learner, inference, worker = backend.submit(plan_roles(config, backend), dry_run=True)
    for line in ("gres=gpu:4", "mem=65536M", "cpus-per-task=16", "time=1440", "signal=B:TERM@600"):
        assert f"\n#SBATCH --{line}\n" in learner
    assert "--array" not in learner
    assert "\n#SBATCH --array=0-1\n" in inference
    assert "\n#SBATCH --partition=gpu\n" in inference
    assert "\n#SBATCH --array=0-2\n" in worker
    assert "\n#SBATCH --gres=emulators:8\n" in worker
    for script in (learner, inference, worker):
        assert "\n#SBATCH --requeue\n" in script
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_on_slurm_a_state_is_what_the_queue_and_the_keeper_know_together(tmp_path: Path, monkeypatch) -> None:
    config = placed(tmp_path, "placement.workers.count=5")
    run = RunDir.create(config)
    backend = make_backend("slurm", config, run)
    write_launch(run, "slurm", plan_roles(config, backend))
    write_notes(run, jobs={"learner": "7", "inference": "8", "worker": "9"})
    notes = {
        "worker-0": ProcessState(name="worker-0", state="failed", detail="no phone"),
        "worker-1": ProcessState(name="worker-1", state="restarting", detail="died: signal 9"),
        "worker-2": ProcessState(name="worker-2", state="running"),
        "worker-3": ProcessState(name="worker-3", state="stopped"),
    }
    (run.path / "launch" / "state").mkdir()
    for name, state in notes.items():
        (run.path / "launch" / "state" / f"{name}.json").write_text(state.model_dump_json())
    queue = (
        "7|N/A|RUNNING|n1|None\n8|0|PENDING||Resources\n9|1|RUNNING|n2|None\n9|3|PENDING||BeginTime\n"
        "5|4|RUNNING|n2|None\n"  # of another run
    )
    (tmp_path / "squeue").write_text(f"#!/bin/sh\nprintf '{queue}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = {one.name: one.state for one in backend.status()}
    assert found == {
        "learner": "running", "inference-0": "queued", "inference-1": "lost",
        "worker-0": "failed", "worker-1": "restarting", "worker-2": "lost", "worker-3": "queued",
        "worker-4": "lost",
    }  # fmt: skip
    end_run(run.path, "stopped")
    assert {one.name: one.state for one in backend.status()}["worker-4"] == "stopped"


def test_where_a_users_services_outlive_the_session_a_host_gets_a_unit(tmp_path: Path) -> None:
    config = placed(tmp_path, f"placement.hosts=[me@{HOSTS[0]}]", f"placement.folder={tmp_path}/there")
    backend = make_backend("ssh", config, RunDir.of(config))
    *_, command = backend.submit(plan_roles(config, backend), dry_run=True)
    bin_folder, home = tmp_path / "bin", tmp_path / "home"
    bin_folder.mkdir()
    (tmp_path / "there" / "here").mkdir(parents=True)
    stand_ins = {
        "loginctl": "echo yes",
        "systemctl": f'echo "$@" >> {tmp_path}/calls',
        "ssh": 'exec sh -c "$2"',
    }
    for name, text in stand_ins.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin_folder / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(home)}
    subprocess.run(["sh", "-c", command], env=env, check=True)
    unit = (home / ".config" / "systemd" / "user" / "distrl-here.service").read_text()
    assert f"WorkingDirectory={tmp_path}/there/here\n" in unit
    assert f"Environment=DISTRL_HOST={HOSTS[0]}\n" in unit
    assert "keeper keep . learner inference-0 inference-1 worker-0 worker-1 worker-2 --alone\n" in unit
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-1] == "--user enable --now distrl-here.service"


def test_a_program_sees_its_own_gpus_as_long_as_there_are_enough() -> None:
    seen = variables_by_role(
        {"learner": 2, "inference-0": 1, "inference-1": 1, "worker-0": 0}, ["0", "1", "2"]
    )
    shown = [variables.get("CUDA_VISIBLE_DEVICES") for variables in seen.values()]
    assert shown == ["0,1", "2", "0", None]


def keeper(folder: Path, gpus: int = 0, **arguments: tuple[str, ...]) -> Keeper:
    """A keeper of roles that run `distrl` with these arguments, with so many GPUs each."""
    kinds = {"learner": "learner"}
    wanted = [
        Role(kind=kinds.get(name, "worker"), name=name, arguments=given, needs=RolePlacement(gpus=gpus))
        for name, given in arguments.items()
    ]
    run = RunDir(folder)
    run.logs.mkdir(parents=True)
    write_launch(run, "local", wanted)
    (folder / "launch" / "state").mkdir()
    return Keeper(folder, wanted, StopEvent(), is_alone=True)


WAITS = ("run-worker", "quickstart", "--spool", "spool", "--set=network.control=tcp://127.0.0.1:9")


def test_a_keeper_ends_all_when_the_learner_fails_or_is_done(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("distrl.cli.backends.keeper.LEAVE_S", 0.5)
    assert keeper(tmp_path / "a", learner=("run-worker", "nonsense"), worker=WAITS).run() == 2
    states = read_states(tmp_path / "a", ["learner", "worker"])
    assert [one.state for one in states] == ["failed", "stopped"]
    assert "nonsense" in states[0].detail
    assert read_ending(tmp_path / "a") == "failed"
    assert keeper(tmp_path / "b", learner=("--version",), worker=WAITS).run() == 0
    assert [one.state for one in read_states(tmp_path / "b", ["learner", "worker"])] == ["done", "done"]


@pytest.mark.parametrize(("visible", "is_warned"), [("0", True), ("0,1", False), ("", False)])
def test_a_keeper_warns_of_roles_that_share_a_gpu(visible, is_warned, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("DISTRL_HOST", "gpu-1")
    monkeypatch.setattr("distrl.core.supervisor.Supervisor.start", lambda self, program: None)
    late = keeper(tmp_path, gpus=1, learner=("--version",), worker=("--version",))
    late._stop.set()
    assert late.run() == 130
    said = "warning: the processes on gpu-1 need 2 GPUs, but it has 1, so some share one."
    assert (said in capsys.readouterr().out) == is_warned


def test_a_keeper_starts_nothing_once_the_run_is_over_and_is_missed_when_it_is_gone(tmp_path: Path) -> None:
    late = keeper(tmp_path, learner=("nonsense",))
    end_run(tmp_path, "stopped")
    assert late.run() == 0
    (tmp_path / "launch" / "state" / "learner.json").write_text('{"name": "learner", "state": "running"}')
    assert read_states(tmp_path, ["learner"])[0].state == "lost"


def test_a_learner_waits_for_one_that_a_scheduler_has_lost(tmp_path: Path) -> None:
    late = keeper(tmp_path, learner=("--version",))
    held = try_lock(tmp_path / ".learner.lock")
    assert held is not None
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(late.run)
        until(lambda: state_file(tmp_path, "learner").exists(), "its note")
        noted = read_state(tmp_path, "learner")
        assert noted is not None
        assert (noted.state, noted.detail[:11]) == ("queued", "the learner")
        held.release()
        assert ended.result(60.0) == 0
    assert read_states(tmp_path, ["learner"])[0].state == "done"


def test_the_folder_on_hosts_may_begin_with_a_tilde(tmp_path: Path) -> None:
    config = placed(tmp_path, "placement.folder=~/my runs")
    backend = make_backend("ssh", config, RunDir.of(config))
    first, *_ = backend.submit(plan_roles(config, backend), dry_run=True)
    assert first.endswith(" to 'my runs/here'")


def test_status_says_how_a_run_that_is_done_is_evaluated(tmp_path: Path) -> None:
    config = placed(tmp_path)
    run = RunDir.create(config)
    write_launch(run, "local", plan_roles(config, make_backend("local", config, run)))
    (run.path / "launch" / "state").mkdir()
    for name in ("learner", "inference-0", "inference-1", "worker-0", "worker-1", "worker-2"):
        state = ProcessState(name=name, state="done").model_dump_json()
        (run.path / "launch" / "state" / f"{name}.json").write_text(state)
    result = runner.invoke(app, ["launch", "status", str(run.path)])
    assert result.exit_code == 0
    assert "run `distrl train RUN --resume` where the learner's run directory is" in result.stderr
    assert "worker-2     done" in result.stdout
    run.report.touch()
    assert runner.invoke(app, ["launch", "status", str(run.path)]).stderr == ""
    assert "have ended already" in runner.invoke(app, ["launch", "stop", str(run.path)]).stdout


def test_a_host_without_distrl_is_reported_at_the_launch_and_banners_do_not_matter(
    tmp_path: Path, monkeypatch
) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\necho Welcome\nexec sh -c "$2"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    there = (f"placement.folder={tmp_path}/there", "placement.python=/no/python")
    more = [f"--set={setting}" for setting in there]
    result = runner.invoke(app, ["launch", "quickstart", "--on", "ssh", *options(tmp_path), *more])
    assert result.exit_code == 18
    assert "me@gpu: ssh failed" in result.stderr
    assert "placement.python" in result.stderr
    assert not (tmp_path / "runs" / "here").exists()
    config = placed(tmp_path, there[0], f"placement.python={sys.executable}")
    run = RunDir.create(config)
    backend = make_backend("ssh", config, run)
    write_launch(run, "ssh", plan_roles(config, backend)[:1])
    write_notes(run, hosts={"learner": "me@gpu"})
    assert [one.state for one in backend.status()] == ["lost"]
    assert backend.status()[0].detail == ""
