"""The actors of a run on Ray: placing, scaling, losses, the end. The real Ray is in tests/integration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay
from waiting import until

from distrl.cli.backends import ray as on_ray
from distrl.cli.backends.backend import ProcessState, State
from distrl.cli.backends.ray import WAIT, WITHHELD
from distrl.cli.backends.roles import Role, roles
from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency
from distrl.core.rundir import RunDir

HERE = {"meeting": "here"}
FIRST = ["learner", "inference-0", "worker-0", "worker-1"]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


class Run(on_ray.Run):
    """A run of one to four workers, two at first."""

    def __init__(self) -> None:
        every = [(role, {"config.yaml": b""}) for role in roles(Config(), Path("run"), {}, 1, 4)]
        super().__init__("run", Path("run"), every, len(FIRST), 3, False)

    def hear(self, name: str, state: State = "running", **more: Any) -> tuple[dict[str, str], str]:
        """The answer to a process that reports this."""
        noted = ProcessState(name=name, state=state, where="node")
        return self.report(noted, more.get("log", b""), more.get("found", {}), more.get("metrics", {}))

    def named(self) -> dict[str, str]:
        """By name the states."""
        return {one.name: one.state for one in self.states()}


def test_all_learn_where_the_learner_is_and_end_with_it(ray: FakeRay) -> None:
    run = Run()
    assert list(ray.placed) == [f"run/{name}" for name in FIRST]
    assert set(run.named().values()) == {"queued"}
    assert run.hear("worker-0") == ({}, "")
    run.hear("learner", found=HERE, log=b"a line\n")
    assert run.hear("worker-0") == run.hear("inference-0") == (HERE, "")
    run.hear("learner", "done", log=b"the last\n")
    assert run.hear("worker-0") == ({}, "done")
    run.hear("worker-0", "done")
    run.hear("inference-0", "done")
    assert run.named() == {
        "learner": "done", "inference-0": "done", "worker-0": "done", "worker-1": "done",
    }  # fmt: skip
    assert ray.placed == {}
    assert run.log("learner", 0) == (b"a line\nthe last\n", 16)
    assert run.log("learner", 7) == (b"the last\n", 16)
    assert run.log("learner", 16) == (b"", 16)


def test_workers_come_while_the_learner_waits_and_go_when_they_are_too_many(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "SCALE_S", 0.0)
    run = Run()
    for _ in range(3):
        run.hear("learner", metrics={WAIT: 0.5, WITHHELD: 0.0})
    assert list(run.named()) == [*FIRST, "worker-2", "worker-3"]
    for name in ("worker-1", "worker-2"):
        run.hear(name)
    run.hear("learner", metrics={WAIT: 0.0, WITHHELD: 1.0})
    assert list(run.named()) == [*FIRST, "worker-2"], "no node had taken it"
    run.hear("learner", metrics={WAIT: 0.0, WITHHELD: 2.0})
    assert run.hear("worker-2")[1] == "stopped"
    run.hear("learner", metrics={WAIT: 0.0, WITHHELD: 3.0})
    assert run.hear("worker-1")[1] == "", "one after the other"
    run.hear("worker-2", "stopped")
    run.hear("learner", metrics={WAIT: 0.0, WITHHELD: 4.0})
    assert run.hear("worker-1")[1] == "stopped"
    run.hear("worker-1", "stopped")
    run.hear("learner", metrics={WAIT: 0.0, WITHHELD: 5.0})
    assert list(run.named()) == FIRST[:3]
    run.hear("learner", metrics={WAIT: 0.5, WITHHELD: 5.0})
    assert run.named()["worker-1"] == "queued"


def test_a_lost_node_is_waited_for_unless_the_run_is_over(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    run.hear("worker-0")
    run.hear("worker-1")
    monkeypatch.setattr(on_ray, "LOST_S", -1.0)
    assert [run.named()[name] for name in FIRST] == ["queued", "queued", "restarting", "restarting"]
    assert run.states()[2].detail == on_ray.LOST
    run.hear("worker-0", "queued")  # its new place, before its process has started
    run.stop()
    assert run.hear("worker-1") == ({}, "stopped")
    assert run.named() == dict.fromkeys(FIRST, "stopped") | {"worker-1": "running"}, "it stops in silence"
    assert list(ray.placed) == ["run/worker-1"]


def test_the_failure_of_a_learner_ends_the_run(ray: FakeRay) -> None:
    run = Run()
    run.hear("worker-0")
    run.hear("learner", "failed")
    assert run.hear("worker-0")[1] == "failed"
    run.hear("worker-0", "stopped")
    assert run.named() == dict.fromkeys(FIRST, "stopped") | {"learner": "failed"}


def test_a_run_whose_actor_was_restarted_finds_the_workers_that_were_added(ray: FakeRay) -> None:
    ray.is_restarted = True
    run = Run()
    assert run.states() == list(ray.placed) == [], "a run that is over does not begin again"
    run.hear("worker-3")
    assert list(run.named()) == [*FIRST, "worker-2", "worker-3"]
    assert all(given[-1] for given in ray.placed.values()), "its learner has begun"


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("trace", ["", "launch/begun", "store.sqlite3"])
def test_a_learner_that_has_begun_continues_or_fails(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool, trace: str
) -> None:
    monkeypatch.chdir(tmp_path)  # and back at the end: an actor changes into its home directory
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISTRL_HOST", "")
    folder = tmp_path / "runs" / "mine"
    (folder / "launch").mkdir(parents=True)
    (folder / "config.yaml").touch()  # of a worker that was here
    if trace:
        (folder / trace).touch()
    ray.run = Run()
    ray.run.stop()  # so that nothing starts
    on_ray.Process("run", Path("runs/mine"), role("learner"), {"config.yaml": b"name: mine"}, has_begun)
    until(lambda: "run/learner" not in ray.placed, "its last report")
    found = ray.run.states()[0]
    if has_begun and not trace:
        assert found.state == "failed"
        assert "placed on 10.0.0.5, where runs/mine is missing. Set placement.folder" in found.detail
        assert not (folder / "launch" / "begun").exists()
    else:
        assert found.state == "stopped"
        assert (folder / "config.yaml").read_text() == "name: mine"
        assert (folder / "launch" / "begun").exists()


def test_the_actor_of_a_process_passes_on_where_the_learner_is_and_waits_for_the_run(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISTRL_HOST", "")
    worker = role("worker-0").model_copy(update={"arguments": ("--version",)})
    process = on_ray.Process("run", Path("mine"), worker, {}, False)
    assert process.ending() is None, "the run's actor is not there"
    run = Run()
    run.hear("learner", found=HERE)
    ray.run = run
    until((tmp_path / "mine" / "launch" / "meeting.json").exists, "where the learner is")
    until(lambda: "run/worker-0" not in ray.placed, "its last report")
    assert run.named()["worker-0"] == "done"
    assert (tmp_path / "mine" / "launch" / "meeting.json").read_bytes() == b"here"
    assert b"distrl" in run.log("worker-0", 0)[0]


@pytest.mark.parametrize("is_running", [False, True])
def test_a_process_whose_folder_cannot_be_written_fails_and_says_so(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISTRL_HOST", "")
    if is_running:  # its state cannot be written
        (tmp_path / "mine/launch/state/worker-0.json/x").mkdir(parents=True)
    else:
        (tmp_path / "mine").touch()
    ray.run = Run()
    worker = role("worker-0").model_copy(update={"arguments": ("--version",)})
    on_ray.Process("run", Path("mine"), worker, {}, False)
    until(lambda: "run/worker-0" not in ray.placed, "its last report")
    found = next(one for one in ray.run.states() if one.name == "worker-0")
    assert (found.state, found.where) == ("failed", "10.0.0.5")
    assert "mine" in found.detail


def test_a_rank_meets_rank_0_where_that_is_now(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DISTRL_HOST", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    every = {"arguments": ("--version",), "name": "worker-0"}  # a name that the run knows
    rank = role("learner").model_copy(update=every)
    ray.run = Run()
    ray.run.hear("learner", found={"ranks": "10.0.0.6 5900"})
    process = on_ray.Process("run", Path("mine"), rank, {}, False)
    until(lambda: "run/worker-0" not in ray.placed, "its last report")
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("10.0.0.6", "5900")
    process.ending()
    assert ended == []
    ray.run.hear("learner", found={"ranks": "10.0.0.7 5901"})
    process.ending()
    assert ended == [1]


def role(name: str) -> Role:
    return next(one for one in roles(Config(), Path("runs/mine"), {}, 0, 1) if one.name == name)


def test_without_ray_one_line_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    backend = on_ray.RayBackend(Config(), RunDir(tmp_path))
    with pytest.raises(MissingDependency, match=r"pip install 'distrl\[ray\]'"):
        backend.submit([], dry_run=False)


def test_a_dry_run_shows_what_is_reserved(tmp_path: Path) -> None:
    placed = {"learner": {"cpus": 8, "gpus": 2, "memory_gb": 1.5}, "workers": {"resources": {"emulators": 4}}}
    config = Config.model_validate({"placement": placed})
    backend = on_ray.RayBackend(config, RunDir(tmp_path / "mine"))
    wanted: list[Role] = roles(config, backend.folder, backend.settings(), 0, 1)
    learner, worker = backend.submit(wanted, dry_run=True)
    assert (
        "actor mine/learner {'num_cpus': 8, 'num_gpus': 2, 'resources': {}, 'memory': 1610612736}" in learner
    )
    assert "'resources': {'emulators': 4.0}" in worker
    assert "--set=network.rendezvous=file:distrl-runs/mine/launch/meeting.json" in worker


def test_a_learner_of_several_ranks_is_an_actor_for_each(tmp_path: Path) -> None:
    placed = {"learner": {"count": 4, "gpus": 1, "cpus": 4, "resources": {"node:10.0.0.5": 0.001}}}
    config = Config.model_validate({"placement": placed})
    backend = on_ray.RayBackend(config, RunDir(tmp_path / "mine"))
    wanted: list[Role] = roles(config, backend.folder, backend.settings(), 1, 1)
    *ranks, server, worker = backend.submit(wanted, dry_run=True)
    reserved = "{'num_cpus': 4, 'num_gpus': 1, 'resources': "
    assert ranks[0].startswith(f"# actor mine/learner {reserved}{{'node:10.0.0.5': 0.001}}")
    assert [rank.split()[2] for rank in ranks[1:]] == [f"mine/rank-{i}" for i in (1, 2, 3)]
    assert all(f"{reserved}{{}}" in rank and " run-learner " in rank for rank in ranks[1:])
    assert "mine/inference-0" in server
    assert "mine/worker-0" in worker
