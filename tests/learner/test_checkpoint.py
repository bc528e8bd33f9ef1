"""The learner's checkpoints: everything comes back bit for bit, and what does not fit is named."""

from __future__ import annotations

import pickle

import pytest
import torch

from distrl.configs.learner import LearnerConfig
from distrl.core import checkpoints
from distrl.core.errors import CheckpointError
from distrl.learner.algorithms.aride import Aride
from distrl.learner.checkpoint import Checkpointer
from distrl.learner.train_step import TrainStep


@pytest.fixture
def make(toy, tmp_path):
    def make_engine() -> tuple[TrainStep, Checkpointer]:
        config = LearnerConfig()
        torch.manual_seed(0)
        engine = TrainStep(toy.policy(), toy.critic(), Aride(config.algorithm, config), config)
        return engine, Checkpointer(tmp_path, engine, keep=2)

    return make_engine


def train(toy, engine) -> None:
    won = [toy.step(1, (2,), (-1.0,), image=1), toy.step(1, (3,), (-1.0,), image=2, outcome=1.0)]
    lost = [toy.step(2, (4,), (-2.0,), image=3)]
    for _ in range(3):
        engine.update(toy.batch(engine.policy, toy.trajectory("a", won), toy.trajectory("b", lost)))


def test_training_goes_on_exactly_as_it_would_have(toy, make) -> None:
    engine, checkpointer = make()
    train(toy, engine)
    checkpointer.save(3, {"any": [1.5, "thing"]})
    other, reader = make()
    assert reader.load() == {"any": [1.5, "thing"]}
    train(toy, engine)
    train(toy, other)
    for one, two in (
        (engine.policy.state_dict(), other.policy.state_dict()),
        (engine.critic.state_dict(), other.critic.state_dict()),
    ):
        assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", ["critic.safetensors", "training.pt", "state.json", "policy/policy.pt"])
def test_a_truncated_file_is_named(make, name) -> None:
    _, checkpointer = make()
    checkpointer.save(1, {})
    file = checkpointer.directory / "step_1" / name
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=file.name):
        checkpointer.load()


def test_the_newest_whole_checkpoint_is_resumed_from(make, caplog) -> None:
    """Losing the newest one to a bad disk costs the updates since the one before it, not the run."""
    _, checkpointer = make()
    for updates in (0, 4, 6):
        checkpointer.save(updates, {"updates": updates})
    directory = checkpointer.directory
    checkpoints.point(directory, "best", "step_6", note="0.9")
    for name in ("step_4", "step_6"):
        file = directory / name / "training.pt"
        file.write_bytes(file.read_bytes()[:-1])
    _, reader = make()
    assert reader.load() == {"updates": 0}
    (said,) = [record.getMessage() for record in caplog.records if "Resuming" in record.getMessage()]
    assert "step_6/training.pt has" in said
    assert said.endswith("Resuming from step_0, the newest intact checkpoint.")
    assert checkpoints.pointed(directory, "best") is None, "its weights are lost"
    reader.save(6, {"updates": "again"})  # replaces the damaged one
    _, another = make()
    assert another.load() == {"updates": "again"}


def test_code_in_a_checkpoint_is_not_run(make, tmp_path) -> None:
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    _, checkpointer = make()

    def fill(path) -> None:
        checkpointer._train_step.policy.save(path / "policy")
        torch.save({"actor": Evil()}, path / "training.pt", pickle_module=pickle)
        (path / "state.json").write_text("{}")

    checkpointer.save(1, {})
    path = checkpoints.write_checkpoint(tmp_path, "step_2", fill)
    critic = (tmp_path / "step_1" / "critic.safetensors").read_bytes()
    (path / "critic.safetensors").write_bytes(critic)
    checkpoints.point(tmp_path, "latest", "step_2")
    with pytest.raises(CheckpointError):
        checkpointer.load()
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_of_another_critic_is_refused(toy, make) -> None:
    engine, checkpointer = make()
    checkpointer.save(1, {})
    engine.critic.value = torch.nn.Linear(4, 1)
    with pytest.raises(CheckpointError, match=r"value\.weight"):
        checkpointer.load()


def test_the_warm_start_and_the_protected_stay(make) -> None:
    _, checkpointer = make()
    for updates in range(6):
        checkpointer.save(updates, {}, protected={"step_2"})
    assert checkpoints.checkpoints(checkpointer.directory) == ["step_0", "step_2", "step_4", "step_5"]
