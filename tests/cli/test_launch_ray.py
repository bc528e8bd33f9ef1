"""The manager of a run on Ray: placing, scaling, losses, the end. The real Ray is in tests/integration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_ray import ActorDiedError, FakeRay, RayError
from waiting import until

from distrl.cli.backends import ray as on_ray
from distrl.cli.backends.backend import LaunchError
from distrl.cli.backends.ray import WAIT, WITHHELD, Scaling
from distrl.cli.backends.roles import Role, roles
from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency
from distrl.core.rundir import RunDir

Start = Callable[..., on_ray.Manager]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.fixture
def start(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the manager of a learner, an inference server and so many workers, in fast motion."""
    for name, seconds in (("BEAT_S", 0.005), ("SCALE_S", 0.02), ("LEAVE_S", 0.1)):
        monkeypatch.setattr(on_ray, name, seconds)
    started = []

    def manager(workers: int = 2, least: int = 1, most: int = 4) -> on_ray.Manager:
        every = roles(Config(), Path("run"), {}, 1, most)
        files = {"config.yaml": b"", "launch/roles.json": b""}
        bounds = Scaling(least, most)
        started.append(on_ray.Manager("run", Path("run"), every, 2 + workers, files, bounds, False))
        return started[-1]

    yield manager
    for one in started:
        one.stop()
        until(lambda one=one: not one._processes, "the end")


def named(manager: on_ray.Manager) -> dict[str, str]:
    """By name the states."""
    return {one.name: one.state for one in manager.states()}


def workers(manager: on_ray.Manager) -> list[str]:
    return [name for name in named(manager) if name.startswith("worker")]


def test_all_learn_where_the_learner_is_and_end_with_it(ray: FakeRay, start: Start) -> None:
    manager = start()
    until(lambda: set(named(manager).values()) == {"running"}, "the start")
    ray.processes["learner"].meeting = b"here"
    others = [one for one in ray.processes.values() if one.role.kind != "learner"]
    until(lambda: all(one.meeting == b"here" for one in others), "the address")
    ray.processes["worker-0"].state = "done"
    ray.processes["learner"].state = "done"
    until(lambda: not manager._processes, "the end")
    assert named(manager) == {
        "learner": "done", "inference-0": "stopped", "worker-0": "done", "worker-1": "stopped",
    }  # fmt: skip
    assert sorted(ray.killed) == sorted(ray.processes)
    assert manager.log("learner", 0) == ("the log of learner\n", 10)
    assert manager.log("learner", 10) == ("", 10)


def test_workers_come_while_the_learner_waits_and_go_when_they_are_too_many(
    ray: FakeRay, start: Start
) -> None:
    manager = start()
    until(lambda: "learner" in ray.processes, "the start")
    learner = ray.processes["learner"]
    learner.metrics = {WAIT: 0.5, WITHHELD: 0.0}
    until(lambda: len(workers(manager)) == 4, "four workers")
    until(lambda: named(manager)["worker-3"] == "running", "the last of them")
    withheld = iter(range(1, 10_000))

    def more() -> None:
        learner.metrics = {WAIT: 0.0, WITHHELD: float(next(withheld))}

    until(lambda: workers(manager) == ["worker-0"], "one worker", meanwhile=more)
    assert {"worker-1", "worker-2", "worker-3"} <= set(ray.killed)
    assert "worker-0" not in ray.killed


def test_a_lost_node_is_waited_for_and_a_dead_actor_is_a_failure(ray: FakeRay, start: Start) -> None:
    manager = start()
    until(lambda: set(named(manager).values()) == {"running"}, "the start")
    ray.processes["worker-0"].error = RayError("unavailable")
    ray.processes["worker-1"].error = ActorDiedError("The actor died\n\n LaunchError: no room \n")
    until(lambda: named(manager)["worker-0"] == "restarting", "the loss")
    until(lambda: named(manager)["worker-1"] == "failed", "the failure")
    assert [one.detail for one in manager.states()[2:]] == [on_ray.LOST, "LaunchError: no room"]
    ray.processes["worker-0"].error = None
    until(lambda: named(manager)["worker-0"] == "running", "its new place")


def test_who_waits_for_a_node_can_be_stopped(ray: FakeRay, start: Start) -> None:
    ray.full = True
    manager = start()
    until(lambda: len(named(manager)) == 4, "the start")
    manager.stop()
    until(lambda: set(named(manager).values()) == {"stopped"}, "the end")


def test_the_failure_of_a_learner_ends_the_run(ray: FakeRay, start: Start) -> None:
    manager = start()
    until(lambda: set(named(manager).values()) == {"running"}, "the start")
    ray.processes["learner"].state = "failed"
    until(lambda: not manager._processes, "the end")
    assert set(named(manager).values()) == {"failed", "stopped"}


def test_a_manager_that_was_restarted_finds_the_workers_that_were_added(ray: FakeRay, start: Start) -> None:
    first = start(workers=4)
    until(lambda: len(ray.processes) == 6, "the start")
    ray.is_restarted = True
    second = start(workers=2)
    until(lambda: len(workers(second)) == 4, "all four")
    assert ray.killed == []
    assert set(named(first)) == set(named(second))


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("trace", ["", "launch/begun", "store.sqlite3"])
def test_a_learner_that_has_begun_continues_or_fails(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool, trace: str
) -> None:
    monkeypatch.chdir(tmp_path)  # and back at the end: an actor changes into its home directory
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISTRL_HOST", "")
    monkeypatch.setattr(on_ray, "Keeper", lambda *_, **__: SimpleNamespace(run=lambda: 0))
    folder = tmp_path / "runs" / "mine"
    (folder / "launch").mkdir(parents=True)
    (folder / "config.yaml").touch()  # of a worker that was here
    if trace:
        (folder / trace).touch()
    learner = roles(Config(), Path("runs/mine"), {}, 0, 0)[0]
    given = (Path("runs/mine"), learner, {"config.yaml": b"name: mine"}, has_begun)
    if has_begun and not trace:
        with pytest.raises(LaunchError, match=r"placed on 10\.0\.0\.5, where runs/mine is missing"):
            on_ray.Process(*given)
    else:
        on_ray.Process(*given)
        assert (folder / "config.yaml").read_text() == "name: mine"
        assert (folder / "launch" / "begun").exists()


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
