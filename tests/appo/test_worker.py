"""A worker that trains, with a master in the same process: it learns, and it survives what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

import appo_envs
from appo_world import World, appo_config, config_data, gradient

from distrl.appo.worker import AppoWorker
from distrl.configs.load import check_config
from distrl.core.errors import EnvError, PolicyError
from distrl.core.messages import WeightInfo, WorkUnit


def work(world: World, units: int, name: str = "w") -> AppoWorker:
    world.stop_when = lambda: len(world.units) >= units
    worker = AppoWorker(world.config, name, world, lambda: False)
    worker.run()
    return worker


def test_it_learns(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(eval_every=4096, epochs=10))
    work(world, 50)
    _, ended = world.master.take_measurements()
    assert ended[0].mean < -4.0
    assert ended[-1].mean > -1.0, [one.mean for one in ended]


def test_a_worker_alone_does_the_same_with_the_same_seed(tmp_path: Path) -> None:
    vectors = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        world = World(tmp_path / name, appo_config())
        work(world, 5)
        vectors.append(world.policy.flat.vector)
    torch.testing.assert_close(vectors[0], vectors[1], rtol=0.0, atol=0.0)


def test_two_workers_statistics_are_counted_once_and_the_first_round_only_measures(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(eval_every=0))
    before = world.policy.flat.vector.clone()
    work(world, 1, "a")
    torch.testing.assert_close(world.policy.flat.vector, before, rtol=0.0, atol=0.0)
    assert world.policy.returns.count == 256
    for name, units in (("a", 2), ("b", 4)):
        work(world, units, name)
    assert not torch.equal(world.policy.flat.vector, before)
    assert world.policy.observations.count == world.master.progress.env_steps == 4 * 256
    mean = float(world.policy.observations.mean[0])
    assert abs(mean - appo_envs.OFFSET) < appo_envs.SCALE / 5
    std = float(world.policy.observations.std()[0])
    assert std == pytest.approx(appo_envs.SCALE / 3**0.5, rel=0.1)


def test_a_round_is_trained_from_the_weights_that_are_the_newest_by_then(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(eval_every=0))
    work(world, 2)
    take, sent = world.work, []

    def work_beside_another(collected: str | None = None) -> WorkUnit:
        if collected:
            log_std = torch.full_like(world.policy.log_std, 10.0)
            message, payload = gradient(world, {"log_std": log_std}, unit_id="other", base=2)
            assert world.master.take_gradient(message, [payload])
        return take(collected)

    world.work = work_beside_another  # type: ignore[method-assign]
    log_std = float(world.policy.log_std.detach().mean())
    deliver = world.send
    world.send = lambda message, blobs: (sent.append(message), deliver(message, blobs))[1]  # type: ignore
    work(world, 3)
    (round_,) = sent
    assert round_.base_version == world.units[-1].weights.version + 1
    assert round_.metrics["off_policy/behaviour_lag"] == 1
    assert float(world.policy.log_std.detach().mean()) == pytest.approx(log_std + 0.1, abs=0.05)


def test_a_resumed_learners_weights_are_loaded_though_their_version_is_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(eval_every=0))
    work(world, 2)
    take, fetch = world.work, world.fetch
    fetched = []

    def work_of_resumed(collected: str | None = None) -> WorkUnit:
        unit = take(collected)
        other = unit.weights.model_copy(update={"digest": "other"})
        return unit.model_copy(update={"weights": other}) if collected else unit

    def fetch_any(info: WeightInfo) -> memoryview | None:
        fetched.append(info.digest)
        return fetch(world.units[-1].weights)

    world.work, world.fetch = work_of_resumed, fetch_any  # type: ignore[method-assign]
    work(world, 3)
    assert fetched[-1] == "other"


def flaky(folder: Path, breaks_at: int, diverges: bool = False) -> World:
    data = config_data(eval_every=0)
    data["env"]["options"] = {"id": "appo_envs:Flaky-v0", "breaks_at": breaks_at, "diverges": diverges}
    appo_envs.Flaky.num_steps = 0
    return World(folder, check_config(data, "test"))


@pytest.mark.parametrize("diverges", [False, True])
def test_a_broken_environment_is_replaced(tmp_path: Path, diverges: bool) -> None:
    world = flaky(tmp_path, 300, diverges)
    work(world, 4)
    assert (world.master.progress.accepted, world.master.progress.rejected) == (3, 0)


def test_environments_that_break_again_and_again_end_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = flaky(tmp_path, breaks_at=1)
    monkeypatch.setattr(appo_envs.Flaky, "num_steps", property(lambda self: 0, lambda self, value: None))
    monkeypatch.setattr(appo_envs.Flaky, "step", _break)
    with pytest.raises(EnvError, match="RuntimeError: broken"):
        work(world, 100)


def _break(self: object, action: object) -> None:
    raise RuntimeError("broken")


def test_rounds_that_are_refused_again_and_again_end_the_worker(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(local_lr=1e30, eval_every=0))
    with pytest.raises(PolicyError, match=r"rejected 10 rounds in a row, .*not finite"):
        work(world, 100)
    assert world.master.progress.rejected == 10
    assert bool(torch.isfinite(world.policy.flat.vector).all())


def test_a_rate_that_falls_to_nothing_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, appo_config(final_lr_fraction=0.0, max_env_steps=600, eval_every=0))
    work(world, 3)  # the last round is handed out at 512 of 600 steps
    assert world.master.work("w") is None
    message, payload = gradient(world, unit_id="late", lr=1e-12)
    assert world.master.take_gradient(message, [payload])
    unit = world.units[-1].model_copy(update={"id": "end", "progress": 1.0})
    before = world.policy.flat.vector.clone()
    ends = iter([unit])
    world.work = lambda collected=None: unit if collected else next(ends)  # type: ignore[method-assign]
    with pytest.raises(StopIteration):
        AppoWorker(world.config, "w", world, lambda: False).run()
    assert "end" in world.master.progress.done
    torch.testing.assert_close(world.policy.flat.vector, before, rtol=0.0, atol=1e-9)
