"""The master: exactly-once updates, rejected gradients, and measurements that survive their workers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

import hashlib
import json
from pathlib import Path
from typing import Any

from appo_world import World, appo_config, gradient

from distrl.configs.appo import CONFIRMATION_SEEDS, VALIDATION_SEEDS
from distrl.core.errors import ProtocolError
from distrl.core.messages import EpisodeReturn, Measured, WorkUnit


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, appo_config(local_lr=0.5, eval_every=0))


def one(world: World, **fields: Any) -> Any:
    """A gradient that moves log_std by 1 at the rate 1."""
    return gradient(world, {"log_std": torch.ones(2)}, **fields)


def take(world: World, **fields: Any) -> bool:
    message, payload = one(world, **fields)
    return world.master.take_gradient(message, [payload])


def numbers(world: World) -> dict[str, float]:
    """The row of metrics since the last time; empty without one."""
    row = world.master.take_row()
    return row[1] if row else {}


def log_std(world: World) -> float:
    return float(world.policy.log_std.detach()[0])


def test_a_change_is_applied_and_published_once_also_after_a_restart(world: World, tmp_path: Path) -> None:
    assert take(world)
    assert not take(world), "it was sent again"
    assert log_std(world) == 0.5
    assert [info.version for info in world.infos] == [1, 2]
    assert world.policy.observations.count == world.master.progress.env_steps == 256
    _, state = world.master.snapshot()
    (tmp_path / "again").mkdir()
    restarted = World(tmp_path / "again", world.config)
    restarted.master.load_state_dict(json.loads(json.dumps(state)))
    assert not take(restarted)
    assert restarted.master.progress.env_steps == 256
    assert take(restarted, unit_id="u2")


NAN = {"log_std": torch.tensor([0.0, float("nan")])}
BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "digest": ({}, {"digest": hashlib.sha256(b"").hexdigest()}, "do not match its SHA-256"),
    "shape": ({"log_std": torch.ones(3)}, {}, r"log_std is \(3,\)"),
    "type": ({"log_std": torch.ones(2).double()}, {}, "float64"),
    "unknown": ({"else": torch.ones(1)}, {}, "'else' is unknown"),
    "nan": (NAN, {}, "not finite"),
    "future": ({}, {"base": 2}, "base is version 2"),
    "no base": ({}, {"base": 0}, "base is version 0"),
    "too many": ({}, {"num_steps": 257}, "at most 256"),
    "episodes": ({}, {"episodes": (EpisodeReturn(total=1.0, length=1),) * 257}, "257 episodes ended in 256"),
    "rate": ({}, {"lr": 0.6}, "above learner.algorithm.local_lr"),
    "count": ({"observations.count": torch.tensor([9.0]).double()}, {}, "do not cover 256 steps"),
    "metrics": ({}, {"metrics": {"env_steps": 1.0}}, "the metric 'env_steps' is unknown"),
    "variance": ({"returns.m2": -torch.ones(1).double()}, {}, "statistics"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_refused_and_counted(world: World, name: str) -> None:
    change, fields, reason = BAD[name]
    message, payload = gradient(world, change, **fields)
    with pytest.raises(ProtocolError, match=reason):
        world.master.take_gradient(message, [payload])
    assert world.master.progress.rejected == 1
    assert (log_std(world), world.policy.observations.count, len(world.infos)) == (0.0, 0, 1)
    good, payload = one(world)
    assert world.master.take_gradient(good, [payload])


@pytest.mark.parametrize("payload", [[], [b""], [b"x" * 100], [b"", b""]])
def test_payloads_that_are_none_are_refused(world: World, payload: list[bytes]) -> None:
    message, _ = one(world)
    digest = hashlib.sha256(b"".join(payload)).hexdigest()
    with pytest.raises(ProtocolError):
        world.master.take_gradient(message.model_copy(update={"digest": digest}), payload)


def test_a_global_rate_of_its_own_falls_as_the_local_one_does(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(local_lr=0.5, global_lr=0.2))
    take(world, lr=0.25)
    assert log_std(world) == pytest.approx(0.1)


def test_numbers_are_those_of_what_came_in(world: World) -> None:
    assert numbers(world) == {}
    world.master.work("w")
    world.clock = 2.0
    episodes = (EpisodeReturn(total=-3.0, length=8), EpisodeReturn(total=-1.0, length=8))
    take(world, episodes=episodes, metrics={"loss/value": 4.0})
    assert numbers(world) == {
        "time/elapsed_s": 2.0,
        "env_steps": 256.0,
        "train/return": -2.0,
        "train/episodes": 2.0,
        "gradients/accepted": 1.0,
        "gradients/rejected": 0.0,
        "off_policy/staleness_mean": 0.0,
        "off_policy/staleness_max": 0.0,
        "throughput/env_steps_per_s": 128.0,
        "loss/value": 4.0,
    }
    assert numbers(world) == {}
    for number, base in enumerate((2, 3, 2)):
        take(world, unit_id=f"n{number}", base=base)
    found = numbers(world)
    assert (found["off_policy/staleness_max"], found["off_policy/staleness_mean"]) == (2.0, 2 / 3)


def test_the_learning_rate_s_progress_goes_by_time_where_that_ends_the_run(tmp_path: Path) -> None:
    config = appo_config(eval_every=0)
    config.learner.max_minutes = 60.0
    world = World(tmp_path, config)
    first = world.work()
    world.clock = 900.0
    assert (first.progress, world.work().progress) == (0.0, 0.25)


def new_world(folder: Path, episodes: int = 30, **appo: object) -> World:
    config = appo_config(**appo)
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


def test_the_unit_of_a_dead_or_stuck_worker_goes_to_another(tmp_path: Path) -> None:
    world = new_world(tmp_path, episodes=5)
    learn(world, 1)
    lost = work(world, "a")
    assert work(world, "a") == lost  # its request was sent again
    world.clock = world.config.learner.lease_ttl_s - 1.0
    assert work(world, "b").kind == "train"
    world.clock += 1.0
    assert work(world, "b").id == lost.id
    assert answer(world, lost, -1.0)
    assert not answer(world, lost, -9.0)  # from "a", which was only slow


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
    assert [one.state["progress"]["attempts"] for one in begun] == [
        0,
        1,
    ]  # a resumed run takes other seeds, too


def test_training_alone_is_believed_with_enough_episodes_and_a_failed_confirmation_pauses(
    tmp_path: Path,
) -> None:
    world = new_world(tmp_path, episodes=5, stop_at_return=-1.0, eval_every=0)
    learn(world, 0, num_episodes=99)
    assert work(world).kind == "train"
    learn(world, 1)
    for name in "abcde":
        answer(world, work(world, name), -5.0)
    assert work(world).kind == "train"
    for number in range(2, 12):
        assert work(world).kind == "train"
        learn(world, number)
    again = work(world)
    assert again.kind == "evaluate"
    assert again.seeds[0] == CONFIRMATION_SEEDS + 100  # seeds that no attempt has seen
