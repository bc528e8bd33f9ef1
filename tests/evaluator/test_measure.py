"""The policy that is measured: finding checkpoints, waiting for weights, serving one here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from counting_phone import CountingEnv, Quiet, counting_config, write_suite
from small_learner import SmallLearner

from distrl.configs.load import load_config
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.checkpoints import MANIFEST, point, write_checkpoint
from distrl.core.errors import (
    CheckpointError,
    ConfigError,
    InferenceUnavailable,
    LearnerUnreachable,
    RunDirectoryError,
)
from distrl.core.messages import Info, InfoRequest
from distrl.core.sockets import Received, Wire
from distrl.core.store import TrajectoryStore
from distrl.evaluator import measure as measure_module
from distrl.evaluator.evaluator import reseed
from distrl.evaluator.measure import Measured, find_checkpoint, measure, wait_for_policy
from distrl.evaluator.results import load_evaluation
from distrl.evaluator.runner import EvaluationStopped
from distrl.evaluator.statistics import wilson
from distrl.evaluator.stores import StoredEpisodes
from distrl.evaluator.suites import load_suite, vocabulary

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40], "device": "cpu"}


def make_checkpoint(directory: Path, name: str = "step_4") -> Path:
    return write_checkpoint(directory, name, lambda path: (path / "weights").write_bytes(b"w" * 100))


def test_a_checkpoint_is_found_by_itself_its_pointer_or_its_run(tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    step = make_checkpoint(checkpoints)
    point(checkpoints, "latest", "step_4")
    for path in (step, checkpoints / "latest", checkpoints, tmp_path / "run"):
        assert find_checkpoint(path) == step
    later = make_checkpoint(checkpoints, "step_8")
    point(checkpoints, "final", "step_8")
    assert find_checkpoint(tmp_path / "run") == later, "the final one comes first"


def test_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        find_checkpoint(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=f"{MANIFEST} is missing"):
        find_checkpoint(tmp_path)
    step = make_checkpoint(tmp_path)
    (step / "weights").write_bytes(b"w" * 60)
    with pytest.raises(CheckpointError, match="60 bytes, not 100"):
        find_checkpoint(step)


@contextmanager
def info_server(wire: Wire, versions: list[int]) -> Iterator[str]:
    """Answers info requests with these weight versions, the last one for ever."""
    channel, done = wire.bind_router("tcp://127.0.0.1:*"), threading.Event()

    def serve() -> None:
        while not done.is_set():
            received: Received | None = channel.recv(0.05)
            if received is not None and isinstance(received.message, InfoRequest):
                version = versions.pop(0) if len(versions) > 1 else versions[0]
                channel.send(Info(name="s", policy="tiny", weight_version=version), peer=received.peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield channel.endpoint
    finally:
        done.set()
        thread.join(10.0)
        channel.close()


def test_it_waits_for_weights_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "ASK_S", 0.1)
    said: list[str] = []
    stop = threading.Event()
    with Wire() as wire, info_server(wire, [-1, 3, -1]) as endpoint:
        wait_for_policy(wire, lambda: [endpoint], 30.0, stop, said.append)
        assert said == [f"waiting for a policy: {endpoint} has no weights yet"]
        with pytest.raises(InferenceUnavailable, match="has no weights yet"):
            wait_for_policy(wire, lambda: [endpoint], 0.2, stop, lambda _: None)
        stop.set()
        with pytest.raises(EvaluationStopped):
            wait_for_policy(wire, list, 30.0, stop, lambda _: None)


def test_a_learner_that_is_over_or_unreachable_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    config = counting_config(write_suite(tmp_path, [{"taps": 1}]))
    out = tmp_path / "out"
    with SmallLearner([], tmp_path) as learner:
        learner.server.shutdown("all done")
        address = learner.endpoints.control
        network = NetworkConfig(control=address, broadcast="tcp://127.0.0.1:1")
        config = config.model_copy(update={"network": network})
        with pytest.raises(LearnerUnreachable, match="is over"):
            measure(config, Measured(learner=address), out, progress=Quiet())
    with pytest.raises(LearnerUnreachable, match="No learner answered"):
        measure(config, Measured(learner=address), out, progress=Quiet(), wait_s=0.3)
    assert not out.exists()


@pytest.mark.needs("torch")
def test_a_checkpoint_is_served_and_measured_and_so_is_what_has_none(tmp_path: Path) -> None:
    from distrl.core.policies import build_policy

    config = counting_config(write_suite(tmp_path, [{"taps": 1}, {"taps": 2}]))
    config = Config.model_validate(config.model_dump() | {"policy": SIZES})
    policy = build_policy(config.policy, ["tap", "times"], seed=0)
    step = write_checkpoint(tmp_path, "step_0", lambda path: policy.save(path / "policy"))
    evaluation = measure(config, Measured(checkpoint=step), tmp_path / "out", progress=Quiet())
    assert evaluation.splits["test"].overall.episodes == 2
    assert evaluation.spec.subject.name == str(step)
    assert evaluation.weight_versions == (0, 0)
    fresh = measure(config, Measured(agent="model"), tmp_path / "fresh", progress=Quiet())
    assert fresh.splits["test"].overall.episodes == 2
    assert (fresh.spec.subject.kind, fresh.spec.subject.name) == ("model", "tiny")


@pytest.mark.needs("torch")
def test_simulated_phones_are_not_waited_for(tmp_path: Path) -> None:
    from distrl.core.policies import build_policy

    slow = {"latency": {"kind": "lognormal", "median_s": 3600.0, "max_s": 36000.0}}
    config = load_config("quickstart")
    config = config.model_copy(update={"env": config.env.model_copy(update={"options": slow})})
    policy = build_policy(config.policy, vocabulary(config.tasks, "reader"), seed=0)
    step = write_checkpoint(tmp_path, "step_8", lambda path: policy.save(path / "policy"))
    first, second = (
        measure(config, Measured(checkpoint=step), tmp_path / name, ["val"], progress=Quiet())
        for name in ("first", "second")
    )
    assert first.splits["val"].overall.episodes == 60
    assert first.weight_versions == (8, 8)
    assert first.splits == second.splits
    stop = threading.Event()
    stop.set()
    with pytest.raises(EvaluationStopped, match=r"Continue with --resume\."):
        measure(config, Measured(checkpoint=step), tmp_path / "third", ["val"], stop=stop, progress=Quiet())


@pytest.mark.needs("torch")
def test_in_virtual_time_no_two_evaluations_share_an_id(tmp_path: Path) -> None:
    from distrl.core.policies import build_policy

    config = load_config("quickstart", ["evaluate.episodes=2"])
    found: list[str] = []
    for seed, run in enumerate((tmp_path / "a", tmp_path / "b")):
        policy = build_policy(config.policy, vocabulary(config.tasks, "reader"), seed)
        step = write_checkpoint(
            run / "checkpoints", "step_8", lambda path, saved=policy: saved.save(path / "policy")
        )
        for name in ("first", "again"):
            out = run / "evaluations" / name
            measure(config, Measured(checkpoint=step), out, ["val"], progress=Quiet(), seeds=(0, 1))
            with contextlib.closing(StoredEpisodes(out)) as store:
                found += store.ids()
        assert found[-4:] == found[-8:-4], "the same evaluation has the same ids"
    assert len(set(found)) == 2 * 2 * 2


EXPERT = Measured(agent="expert")


@pytest.fixture(autouse=True)
def no_resets() -> None:
    CountingEnv.resets.clear()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Four tasks, one of which takes more steps than it may."""
    return counting_config(write_suite(tmp_path, [{"taps": 2}, {"taps": 1}, {"taps": 2}, {"taps": 9}]))


def test_seed_0_is_the_suites_own_and_others_differ_from_it_and_each_other() -> None:
    task = load_suite("quickstart", "test")[0]
    assert reseed(task, 0) is task
    drawn = [reseed(task, seed) for seed in (1, 2)]
    assert reseed(task, 1) == drawn[0]
    assert len({task.seed, *(other.seed for other in drawn)}) == 3
    assert {other.id for other in drawn} == {task.id}
    assert {other.goal for other in drawn} == {task.goal}


def test_the_numbers_are_a_mean_over_seeds_and_each_task_weighs_once(config: Config, tmp_path: Path) -> None:
    evaluation = measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0, 1, 4])
    result = evaluation.splits["test"]
    assert result.repeats is not None
    assert result.repeats.seeds == evaluation.seeds == (0, 1, 4)
    assert result.repeats.rates == (0.75, 0.75, 0.75)
    assert (result.repeats.mean, result.repeats.sd) == (0.75, 0.0)
    assert (result.overall.successes, result.overall.episodes) == (9, 12)
    assert result.overall.interval == wilson(3, 4)
    parts = [load_evaluation(tmp_path / "out" / f"seed-{seed}").evaluation for seed in (0, 1, 4)]
    assert [part.spec.seed for part in parts] == [0, 1, 4]
    assert evaluation.duration_s == sum(part.duration_s for part in parts)
    loaded = load_evaluation(tmp_path / "out")
    assert loaded.evaluation == evaluation
    assert sorted({episode.seed for episode in loaded.episodes}) == [0, 1, 4]
    for episode in loaded.episodes:
        store = TrajectoryStore(loaded.directory / f"seed-{episode.seed}" / "store.sqlite3")
        assert store.get(episode.trajectory_id).task.id == episode.task_id
        store.close()


class InstanceEnv(CountingEnv):
    """Its seeds say what is asked for."""

    seed_is_instance = True


@pytest.mark.parametrize("env", ["CountingEnv", "InstanceEnv"])
def test_a_seed_that_is_the_instance_stays_and_random_agents_draw_again(
    env: str, config: Config, tmp_path: Path
) -> None:
    fields = config.model_dump()
    fields["env"]["import_path"] = f"{CountingEnv.__module__ if env == 'CountingEnv' else __name__}:{env}"
    config = Config.model_validate(fields)
    tasks = {task.id: task for task in load_suite(config.tasks.suite, "test")}
    measure(config, Measured(agent="random"), tmp_path / "out", progress=Quiet(), seeds=[0, 1, 2])
    answers = {}
    for seed in (0, 1, 2):
        with contextlib.closing(
            TrajectoryStore(tmp_path / "out" / f"seed-{seed}" / "store.sqlite3")
        ) as store:
            played = {one.task.id: one for one in store.iterate()}
        is_same = {name: played[name].task == task for name, task in tasks.items()}
        assert set(is_same.values()) == {seed == 0 or env == "InstanceEnv"}
        answers[seed] = [[step.action for step in played[name].steps] for name in tasks]
    assert answers[0] != answers[1] != answers[2] != answers[0]


def test_more_seeds_can_be_added_and_none_is_measured_twice(config: Config, tmp_path: Path) -> None:
    measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0])
    with pytest.raises(RunDirectoryError, match="exists already"):
        measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=[0, 1])
    again = Quiet()
    evaluation = measure(config, EXPERT, tmp_path / "out", resume=True, progress=again, seeds=[0, 1])
    assert len(again.results) == 4
    assert evaluation.seeds == (0, 1)
    measure(config, EXPERT, tmp_path / "single", progress=Quiet())
    with pytest.raises(RunDirectoryError, match="without repetitions"):
        measure(config, EXPERT, tmp_path / "single", resume=True, progress=Quiet(), seeds=[0, 1])


def test_seeds_must_be_seeds(config: Config, tmp_path: Path) -> None:
    for seeds in ([], [1, 1]):
        with pytest.raises(ConfigError, match="are not distinct"):
            measure(config, EXPERT, tmp_path / "out", progress=Quiet(), seeds=seeds)
    assert not (tmp_path / "out").exists()
