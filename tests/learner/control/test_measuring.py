"""Measurements: units that survive their workers, and what a mean return leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

from control_world import World, control_config, gradient

from distrl.configs.control import CONFIRMATION_SEEDS, VALIDATION_SEEDS
from distrl.core.messages import EpisodeReturn, Measured, WorkUnit


def new_world(folder: Path, episodes: int = 30, **appo: object) -> World:
    config = control_config(**appo)
    config.learner.eval_episodes = episodes
    return World(folder, config)


def learn(world: World, number: int, total: float = 0.0, num_episodes: int = 1) -> None:
    """A round of training comes in."""
    episodes = tuple(EpisodeReturn(total=total, length=8) for _ in range(num_episodes))
    message, payload = gradient(world, unit_id=f"r{number}", episodes=episodes)
    assert world.master.take_gradient(message, [payload])


def answer(world: World, unit: WorkUnit, total: float) -> bool:
    """The episodes of a unit come in."""
    episodes = tuple(EpisodeReturn(total=total, length=8) for _ in unit.seeds)
    return world.master.take_measured(Measured(worker="w", unit_id=unit.id, episodes=episodes))


def work(world: World, worker: str = "w") -> WorkUnit:
    unit = world.master.work(worker)
    assert unit is not None
    return unit


def test_weights_are_measured_now_and_then(tmp_path: Path) -> None:
    world = new_world(tmp_path, eval_every=512)
    learn(world, 1)
    first, second, third = (work(world, name) for name in "abc")
    assert [unit.kind for unit in (first, second, third)] == ["evaluate", "evaluate", "train"]
    assert first.seeds + second.seeds == tuple(range(VALIDATION_SEEDS, VALIDATION_SEEDS + 30))
    learn(world, 2)
    assert answer(world, first, -4.0)
    assert answer(world, second, -1.0)
    _, (ended,) = world.master.take_measurements()
    assert (ended.mean, ended.weights.info.version, ended.weights.env_steps) == (-3.0, 2, 256)
    assert work(world).kind == "train"
    learn(world, 3)
    assert work(world).kind == "evaluate"


def test_the_unit_of_a_dead_worker_goes_to_another(tmp_path: Path) -> None:
    world = new_world(tmp_path, episodes=5)
    learn(world, 1)
    lost = work(world, "a")
    assert work(world, "b").kind == "train"
    world.master.keep_only(["b"])
    assert work(world, "b") == lost
    assert answer(world, lost, -1.0)
    assert not answer(world, lost, -9.0)  # from "a", which was only slow


def test_the_unit_of_a_stuck_worker_expires(tmp_path: Path) -> None:
    world = new_world(tmp_path, episodes=5)
    learn(world, 1)
    stuck = work(world, "a")
    world.clock = world.config.learner.lease_ttl_s - 1.0
    assert work(world, "b").kind == "train"
    world.clock += 1.0
    assert work(world, "b").id == stuck.id


def test_a_good_validation_is_confirmed_with_the_newest_weights(tmp_path: Path) -> None:
    world = new_world(tmp_path, episodes=5, stop_at_return=-1.0, eval_every=1000)
    learn(world, 1)
    unit = work(world)
    learn(world, 2)
    answer(world, unit, -0.5)
    units = [work(world, name) for name in "abcde"]
    assert {unit.weights.version for unit in units} == {3}
    assert [seed for unit in units for seed in unit.seeds] == list(
        range(CONFIRMATION_SEEDS, CONFIRMATION_SEEDS + 100)
    )
    for one in units:
        answer(world, one, -1.0)
    assert world.master.work("w") is None  # solved: nothing more to do
    begun, ended = world.master.take_measurements()
    assert [one.kind for one in ended] == ["validation", "confirmation"]
    assert [one.state["attempts"] for one in begun] == [0, 1]  # a resumed run takes other seeds, too


def test_a_failed_confirmation_lets_training_go_on_for_a_while(tmp_path: Path) -> None:
    world = new_world(tmp_path, episodes=5, stop_at_return=-1.0, eval_every=0)
    learn(world, 1, total=0.0, num_episodes=100)
    for name in "abcde":
        answer(world, work(world, name), -5.0)
    assert work(world).kind == "train"
    learn(world, 2)
    assert work(world).kind == "train"
    for number in range(3, 13):
        learn(world, number)
    again = work(world)
    assert again.kind == "evaluate"
    assert again.seeds[0] == CONFIRMATION_SEEDS + 100  # seeds that no attempt has seen


def test_training_alone_is_believed_only_with_enough_episodes(tmp_path: Path) -> None:
    world = new_world(tmp_path, stop_at_return=-1.0, eval_every=0)
    learn(world, 1, total=0.0, num_episodes=99)
    assert work(world).kind == "train"
    learn(world, 2, total=0.0)
    assert work(world).kind == "evaluate"


def test_a_closed_master_hands_out_measurements_only(tmp_path: Path) -> None:
    world = new_world(tmp_path, episodes=5)
    learn(world, 1)
    answer(world, work(world), -1.0)
    world.master.close()
    assert world.master.work("w") is None
    world.master.measure_last()
    assert work(world).kind == "evaluate"
    assert world.master.is_measuring
