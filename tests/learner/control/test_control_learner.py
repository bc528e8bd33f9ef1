"""The master's main loop: what becomes of the checkpoint of a solution."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

from control_world import World, control_config, gradient, new_policy

from distrl.core import checkpoints
from distrl.core.messages import EpisodeReturn, Measured, WorkUnit
from distrl.core.metrics import MetricsWriter, read_metrics
from distrl.evaluator.control.staleness import staleness_rows
from distrl.evaluator.report.metrics import RunMetrics
from distrl.learner.control import learner
from distrl.learner.control.checkpoint import ControlCheckpointer
from distrl.learner.control.learner import ControlLearner, ControlParts


class Server:
    """What the main thread needs of `ControlServer`, without sockets; `check` does what workers would."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._num_rounds = 0

    def check(self) -> None:
        """A round comes in, and after it whatever is to be measured: all of it good."""
        episodes = (EpisodeReturn(total=0.0, length=8),)
        self._num_rounds += 1
        message, payload = gradient(self._world, unit_id=f"r{self._num_rounds}", episodes=episodes)
        self._world.master.take_gradient(message, [payload])
        if self._num_rounds > 3:
            units = [self._world.master.work(f"w{i}") for i in range(6)]
            for unit in units:
                if unit is not None and unit.kind == "evaluate":
                    self._answer(unit)

    def _answer(self, unit: WorkUnit) -> None:
        returns = tuple(EpisodeReturn(total=0.0, length=8) for _ in unit.seeds)
        self._world.master.take_measured(Measured(worker="w", unit_id=unit.id, episodes=returns))

    def set_phase(self, phase: str) -> None:
        pass

    def set_metrics(self, metrics: Mapping[str, float]) -> None:
        pass

    def peer_metrics(self) -> dict[str, float]:
        return {}

    def shutdown(self, reason: str) -> None:
        pass


def test_the_checkpoint_of_a_solution_outlives_newer_ones(tmp_path: Path) -> None:
    """Others train while it is confirmed, and each of their rounds is a checkpoint of which one is kept."""
    config = control_config(stop_at_return=-1.0, eval_every=256, max_env_steps=10**9)
    config.learner.checkpoint_every = config.learner.keep_checkpoints = 1
    world, directory = World(tmp_path, config), tmp_path / "checkpoints"
    parts = ControlParts(
        config,
        Server(world),
        world.master,
        ControlCheckpointer(directory, new_policy(config), keep=1),
        MetricsWriter(tmp_path / "metrics.jsonl"),
    )
    ControlLearner(parts, threading.Event()).run()
    solved = checkpoints.resolve(directory, "final")
    latest = checkpoints.resolve(directory, "latest")
    assert checkpoints.step_of(solved.name) < checkpoints.step_of(latest.name)
    assert float(checkpoints.note_of(directory, "final")) >= -1.0


class Crash(Exception):
    """Ends a process between two checkpoints."""


class CrashingServer(Server):
    """Three rounds come in at a time; the process dies when `last` have been accepted."""

    def __init__(self, world: World, last: int) -> None:
        super().__init__(world)
        self._last = last

    def check(self) -> None:
        accepted = self._world.master.progress.accepted
        for number in range(accepted, accepted + 3):
            ratios = {"off_policy/kl": 0.1, "off_policy/silenced_fraction": 0.0}
            message, payload = gradient(self._world, unit_id=f"r{number}", metrics=ratios)
            self._world.master.take_gradient(message, [payload])
        if accepted + 3 >= self._last:
            raise Crash


def test_what_a_killed_master_left_half_written_goes(tmp_path: Path) -> None:
    half = tmp_path / ".step_9.tmp"
    half.mkdir()
    ControlCheckpointer(tmp_path, new_policy(control_config()), keep=1)
    assert not half.exists()


@pytest.mark.parametrize("metrics_s", [0.0, 1e9])
def test_after_a_crash_each_gradient_is_in_one_table_by_staleness(tmp_path, monkeypatch, metrics_s) -> None:
    """Whether rows are written all the time, or hardly ever."""
    monkeypatch.setattr(learner, "METRICS_S", metrics_s)
    monkeypatch.setattr(learner, "POLL_S", 0.0)
    config = control_config(eval_every=0, max_env_steps=60 * 256)
    config.learner.checkpoint_every = 10
    for last in (18, 10**9):
        folder = tmp_path / f"until-{last}"
        folder.mkdir()
        world, directory = World(folder, config), tmp_path / "checkpoints"
        checkpointer = ControlCheckpointer(directory, new_policy(config), keep=2)
        if last > 18:
            world.master.load_state_dict(checkpointer.load(world.policy) or {})
            assert world.master.progress.accepted == 12
        metrics = MetricsWriter(tmp_path / "metrics.jsonl")
        metrics.resume(world.master.progress.accepted)
        parts = ControlParts(config, CrashingServer(world, last), world.master, checkpointer, metrics)
        with contextlib.suppress(Crash):
            ControlLearner(parts, threading.Event()).run()
    accepted = world.master.progress.accepted
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert sum(table.gradients for table in staleness_rows(RunMetrics(rows))) == accepted >= 60
