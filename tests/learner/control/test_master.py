"""The master: what it applies, exactly once, and what it refuses without being changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

from control_world import World, control_config, gradient

from distrl.core.errors import ProtocolError
from distrl.core.messages import EpisodeReturn
from distrl.workers.control.worker import ControlWorker


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, control_config(local_lr=0.5, eval_every=0))


def one(world: World, **fields: Any) -> Any:
    """A gradient that moves log_std by 1 at the rate 1."""
    return gradient(world, {"log_std": torch.ones(2)}, **fields)


def numbers(world: World) -> dict[str, float]:
    """The one row of metrics since the last time; empty without one."""
    rows = [numbers for _, numbers in world.master.take_rows()]
    assert len(rows) <= 1
    return rows[0] if rows else {}


def log_std(world: World) -> float:
    return float(world.policy.log_std.detach()[0])


def test_a_change_is_applied_and_published(world: World) -> None:
    message, payload = one(world)
    assert world.master.take_gradient(message, [payload])
    assert log_std(world) == 0.5
    assert [info.version for info in world.infos] == [1, 2]
    assert world.policy.observations.count == 256


def test_values_go_against_their_gradient(world: World) -> None:
    before = float(world.policy.critic[0].bias.detach()[0])
    message, payload = gradient(world, {"critic.0.bias": torch.ones(16)})
    world.master.take_gradient(message, [payload])
    assert float(world.policy.critic[0].bias.detach()[0]) == before - 0.5


def test_a_resend_changes_nothing(world: World) -> None:
    message, payload = one(world)
    assert world.master.take_gradient(message, [payload])
    assert not world.master.take_gradient(message, [payload])
    assert (log_std(world), world.policy.observations.count, len(world.infos)) == (0.5, 256, 2)
    assert world.master.progress.env_steps == 256


def test_a_resend_is_recognised_when_others_came_between(world: World) -> None:
    sent = [one(world, unit_id=f"u{number}") for number in range(3)]
    assert all(world.master.take_gradient(message, [payload]) for message, payload in sent)
    assert not any(world.master.take_gradient(message, [payload]) for message, payload in sent)
    assert (log_std(world), world.master.progress.accepted) == (1.5, 3)


def test_a_resend_is_recognised_after_a_restart(world: World, tmp_path: Path) -> None:
    message, payload = one(world)
    world.master.take_gradient(message, [payload])
    _, state = world.master.snapshot()
    (tmp_path / "again").mkdir()
    restarted = World(tmp_path / "again", world.config)
    restarted.master.load_state_dict(json.loads(json.dumps(state)))
    assert not restarted.master.take_gradient(message, [payload])
    assert restarted.master.progress.env_steps == 256
    other, payload = one(restarted, unit_id="u2")
    assert restarted.master.take_gradient(other, [payload])


NAN = {"log_std": torch.tensor([0.0, float("nan")])}
BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "digest": ({}, {"digest": hashlib.sha256(b"").hexdigest()}, "another SHA-256"),
    "shape": ({"log_std": torch.ones(3)}, {}, r"log_std is \(3,\)"),
    "type": ({"log_std": torch.ones(2).double()}, {}, "float64"),
    "unknown": ({"else": torch.ones(1)}, {}, "'else' is unknown"),
    "nan": (NAN, {}, "not finite"),
    "future": ({}, {"base": 2}, "base is version 2"),
    "no base": ({}, {"base": 0}, "base is version 0"),
    "too many": ({}, {"num_steps": 257}, "at most 256"),
    "episodes": ({}, {"episodes": (EpisodeReturn(total=1.0, length=1),) * 257}, "257 episodes ended in 256"),
    "rate": ({}, {"lr": 0.6}, "above learner.appo.local_lr"),
    "count": ({"observations.count": torch.tensor([9.0]).double()}, {}, "not those of 256 steps"),
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


@pytest.mark.parametrize(("weight", "moved"), [("none", 0.5), ("inverse", 0.5 / 3)])
def test_stale_changes_may_weigh_less(tmp_path: Path, weight: str, moved: float) -> None:
    world = World(tmp_path, control_config(local_lr=0.5, staleness_weight=weight, eval_every=0))
    for number in range(2):
        message, payload = gradient(world, unit_id=f"none-{number}", base=number + 1)
        world.master.take_gradient(message, [payload])
    message, payload = one(world, base=1)
    world.master.take_gradient(message, [payload])
    assert log_std(world) == pytest.approx(moved)
    assert numbers(world)["off_policy/staleness_max"] == 2.0


def test_a_global_rate_of_its_own_falls_as_the_local_one_does(tmp_path: Path) -> None:
    world = World(tmp_path, control_config(local_lr=0.5, global_lr=0.2))
    message, payload = one(world, lr=0.25)
    world.master.take_gradient(message, [payload])
    assert log_std(world) == pytest.approx(0.1)


def test_alone_the_master_is_where_the_worker_is(tmp_path: Path) -> None:
    world = World(tmp_path, control_config(eval_every=0))
    world.stop_when = lambda: len(world.units) == 4
    worker = ControlWorker(world.config, "w", world, lambda: False)
    worker.run()
    assert worker._tools is not None
    torch.testing.assert_close(
        world.policy.flat.vector, worker._tools.policy.flat.vector, rtol=1e-6, atol=1e-7
    )


def test_numbers_are_those_of_what_came_in(world: World) -> None:
    assert numbers(world) == {}
    world.master.work("w")
    world.clock = 2.0
    episodes = (EpisodeReturn(total=-3.0, length=8), EpisodeReturn(total=-1.0, length=8))
    message, payload = one(world, episodes=episodes, metrics={"loss/value": 4.0})
    world.master.take_gradient(message, [payload])
    found = numbers(world)
    expected = {
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
    assert found == expected
    assert numbers(world) == {}


def test_numbers_by_staleness_are_of_rounds_that_trained(world: World) -> None:
    """The first, without numbers of its own, only measured; the others are 1, 2 and 3 versions behind."""
    episodes = (EpisodeReturn(total=-3.0, length=8), EpisodeReturn(total=-1.0, length=8))
    for number, (num_steps, kl, ended) in enumerate(
        [(256, None, episodes), (64, 0.5, ()), (64, 0.1, episodes), (192, 0.3, episodes[:1])]
    ):
        metrics = {} if kl is None else {"off_policy/kl": kl, "off_policy/silenced_fraction": kl / 2}
        message, payload = one(
            world, unit_id=f"u{number}", num_steps=num_steps, episodes=ended, metrics=metrics
        )
        world.master.take_gradient(message, [payload])
    found = {name: value for name, value in numbers(world).items() if name.startswith("staleness/")}
    assert found == pytest.approx(
        {
            "staleness/1/gradients": 1,
            "staleness/1/steps": 64,
            "staleness/1/episodes": 0,
            "staleness/1/kl": 0.5,
            "staleness/1/silenced_fraction": 0.25,
            "staleness/2-3/gradients": 2,
            "staleness/2-3/steps": 256,
            "staleness/2-3/episodes": 3,
            "staleness/2-3/return": -7 / 3,
            "staleness/2-3/kl": 0.25,
            "staleness/2-3/silenced_fraction": 0.125,
        }
    )
    assert not any(name.startswith("staleness/") for name in numbers(world))


def test_a_checkpoint_ends_a_row_of_metrics(world: World) -> None:
    """What a resumed run does again is in rows of its own, whose step is beyond the checkpoint's."""
    for number in range(3):
        message, payload = one(
            world, unit_id=f"u{number}", metrics={"off_policy/kl": 0.1, "loss/value": number}
        )
        world.master.take_gradient(message, [payload])
        if number == 1:
            weights, _ = world.master.snapshot()
    assert weights.step == 2
    rows = world.master.take_rows()
    assert [(step, row["gradients/accepted"], row["loss/value"]) for step, row in rows] == [
        (2, 2, 0.5),
        (3, 3, 2),
    ]


def test_the_learning_rate_s_progress_goes_by_time_where_that_ends_the_run(tmp_path: Path) -> None:
    config = control_config(eval_every=0)
    config.learner.max_minutes = 60.0
    world = World(tmp_path, config)
    first = world.work()
    world.clock = 900.0
    assert (first.progress, world.work().progress) == (0.0, 0.25)
