"""Robot arms through a whole run: chunks of motions from the worker to the gradient and back."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core.metrics import read_metrics
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.evaluator.agreement import AgreementReport

pytestmark = pytest.mark.needs("torch", "transformers", "jinja2")

CONFIG: dict[str, Any] = {
    "tasks": {"suite": "reaching_arm:tasks", "test": ["test"]},
    "env": {"import_path": "reaching_arm:ReachingArm"},
    "agent": {"kind": "arm", "options": {"chunk": 2, "axes": 2, "bins": 5}},
    "policy": {"kind": "arm", "image_size": [24, 24], "channels": 8, "d_model": 16},
    "worker": {"slots": 2, "rewards": {"require_complete": False}},
    "local": {"workers": 1},
    "evaluate": {"episodes": 2, "distance": False},
    "simulate": {"latency": {"median_s": 0.1}, "update_s": 0.1},
    "learner": {
        "episodes": 12, "batch_trajectories": 4, "updates_per_episode": 0.5, "min_replay": 4,
        "publish_every": 1, "eval_every": 4, "eval_episodes": 2, "keep_best": False, "max_new_tokens": 8,
        "demonstrations": {
            "episodes": 6, "updates": 4, "critic_updates": 2, "noise": 0.3, "dagger": 0.5, "rehearsal": 0.3,
        },
    },
}  # fmt: skip
OBJECTIVES = ["aride", "ppo", "gipo", "grpo", "vtrace", "digirl", "filtered-bc"]


def simulate(folder: Path, config: dict[str, Any], *overrides: str) -> list[Trajectory]:
    file = folder / "config.yaml"
    file.write_text(json.dumps(config))
    settings = ["name=run", f"runs_dir={folder}", *overrides]
    result = CliRunner().invoke(app, ["simulate", str(file), *(f"--set={one}" for one in settings)])
    assert result.exit_code == 0, result.output
    run = RunDir(folder / "run")
    losses = [row["loss/policy"] for row in read_metrics(run.metrics) if "loss/policy" in row]
    assert len(losses) >= 4, "the policy was trained, and what is not finite is skipped"
    store = TrajectoryStore(run.store)
    try:
        return [store.get(name) for name in store.ids()]
    finally:
        store.close()


def check_records(found: list[Trajectory], purpose: Purpose, axes: int, bins: int, chunk: int) -> None:
    """Each record has the motion that its tokens, if it has any, and its text mean."""
    steps = [step for one in found if one.purpose is purpose for step in one.steps]
    assert steps
    assert not [one.fault_detail for one in found if one.fault is not Fault.NONE]
    for step in steps:
        completion = step.chats[-1].completion
        said = [[int(word) for word in row.split()] for row in completion.text.split(";")]
        assert len(said) == len(step.action.motion) == chunk
        assert step.observation.state
        if purpose is Purpose.TRAIN:
            assert len(completion.logprobs) == chunk * axes
            assert [n % bins for n in completion.token_ids] == [n for row in said for n in row]
            wanted = [2 * n / (bins - 1) - 1 for row in said for n in row]
            assert [n for row in step.action.motion for n in row] == pytest.approx(wanted)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_from_chunks(tmp_path: Path, objective: str) -> None:
    sizes = ["learner.algorithm.group_size=2"] if objective == "grpo" else []
    found = simulate(tmp_path, CONFIG, f"learner.algorithm.kind={objective}", *sizes)
    check_records(found, Purpose.TRAIN, axes=2, bins=5, chunk=2)
    check_records(found, Purpose.DEMO, axes=2, bins=5, chunk=2)


def test_imagined_episodes_of_a_learned_model_are_trained_on(tmp_path: Path) -> None:
    agent = {"kind": "arm", "options": {**CONFIG["agent"]["options"], "picture": False}}
    world = {"model": "learned", "min_real": 2, "imagined_per_real": 2, "horizon": 3, "batch_size": 16}
    found = simulate(tmp_path, CONFIG | {"agent": agent, "world": world}, "learner.episodes=16")
    check_records(found, Purpose.TRAIN, axes=2, bins=5, chunk=2)
    real = {one.id: one for one in found if one.purpose is Purpose.TRAIN}
    imagined = [one for one in found if one.purpose is Purpose.IMAGINED]
    assert len(imagined) >= 16
    for one in imagined:
        assert one.fault is Fault.NONE, one.fault_detail
        assert one.branch is not None
        start = real[one.branch.trajectory].steps[len(one.branch.past)]
        assert one.steps[0].chats[0].messages == start.chats[0].messages
        assert len(one.steps) <= 3
    rows = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    losses = [row["world/loss"] for row in rows if "world/loss" in row]
    assert losses[-1] < losses[0]
    assert max(row["batch/imagined"] for row in rows if "batch/imagined" in row) > 0.0
    assert json.loads((tmp_path / "run" / "report.json").read_text())
    report = compare(tmp_path / "run")
    assert report.overall.total + report.overall.undecided == len(imagined)
    assert 0 < report.drift[0].episodes <= len(imagined)
    assert report.drift[0].missed > 0.01, "so little is learnt of so few episodes"


def test_the_simulator_itself_imagines_only_what_is_true(tmp_path: Path) -> None:
    world = {"model": "oracle", "min_real": 2, "imagined_per_real": 2, "horizon": 3}
    found = simulate(tmp_path, CONFIG | {"world": world}, "learner.episodes=16")
    imagined = [one for one in found if one.purpose is Purpose.IMAGINED]
    report = compare(tmp_path / "run")
    assert (report.overall.total, report.overall.rate) == (len(imagined), 1.0)
    assert report.overall.both == sum(one.success == 1.0 for one in imagined) > 0
    assert [one.step for one in report.drift] == [1, 2]
    assert all(one.missed < 1e-6 for one in report.drift), "up to rounding in prompts"

    config = RunDir(tmp_path / "run").config
    config.write_text(config.read_text().replace("  options: {}", "  options: {latency: 9}", 1))
    failed = next(one for one in imagined if one.success == 0.0)
    fault = {"fault": Fault.DEVICE, "outcome": Outcome.UNJUDGED}
    forged = {"id": "forged", "success": 1.0, "outcome": Outcome.SUCCESS}
    with contextlib.closing(TrajectoryStore(tmp_path / "run" / "store.sqlite3")) as store:
        for changes in (forged, {**fault, "id": "1"}, {**fault, "id": "2", "steps": ()}):
            store.add(failed.model_copy(update=changes), store.images(failed.image_digests))
    again = compare(tmp_path / "run")
    assert again.overall.total + again.overall.undecided == len(imagined) + 1, "without those that faulted"
    assert (again.overall.judge_only, again.overall.rate < 1.0) == (1, True)
    assert "forged" in (tmp_path / "run" / "agreement-world.html").read_text()


def compare(run: Path) -> AgreementReport:
    result = CliRunner().invoke(app, ["world", str(run)])
    assert result.exit_code == 0, result.output
    return AgreementReport.model_validate_json((run / "agreement-world.json").read_text())


@pytest.mark.needs("libero", "libero-assets")
def test_an_arm_of_libero_learns_without_demonstrations(tmp_path: Path) -> None:
    name = "turn_on_the_stove"
    tasks = tmp_path / "tasks.yaml"
    lines = [
        {
            "id": f"stove-{split}-{number}", "split": split, "template": name, "goal": "Turn on the stove",
            "max_steps": 6, "params": {"env": f"libero_goal/{name}", "init": number},
        }
        for number, split in enumerate(["train"] * 4 + ["val", "test"])
    ]  # fmt: skip
    tasks.write_text(json.dumps(lines))
    env = {"kind": "libero", "options": {"size": 32, "limit": 12}}
    none = {"episodes": 0, "updates": 0, "critic_updates": 0}
    learner = CONFIG["learner"] | {"demonstrations": none, "max_new_tokens": 14, "eval_every": 0}
    found = simulate(
        tmp_path,
        CONFIG
        | {"env": env, "tasks": {"suite": str(tasks), "test": ["test"]}, "learner": learner}
        | {"agent": {"kind": "arm", "options": {"chunk": 2, "axes": 7}}},
        "worker.slots=1",  # a simulation takes seconds to make
    )
    check_records(found, Purpose.TRAIN, axes=7, bins=21, chunk=2)
    assert all(step.observation.app.startswith("mujoco ") for one in found for step in one.steps)
    assert all(len(step.observation.state) == 8 for one in found for step in one.steps)


@pytest.mark.needs("metaworld")
def test_an_arm_of_meta_world_learns(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.yaml"
    lines = [
        {
            "id": f"coffee-{split}-{number}", "split": split, "template": "coffee", "seed": number,
            "goal": "Press it", "max_steps": 20, "params": {"env": "coffee-button-v3"},
        }
        for number, split in enumerate(["train"] * 4 + ["val", "test"])
    ]  # fmt: skip
    tasks.write_text(json.dumps(lines))
    env = {"kind": "metaworld", "options": {"size": 32, "repeat": 5, "chunk": 2, "limit": 40}}
    agent = {"kind": "arm", "options": {"chunk": 2}}
    suite = {"suite": str(tasks), "test": ["test"]}
    found = simulate(
        tmp_path,
        CONFIG | {"env": env, "agent": agent, "tasks": suite},
        *("learner.demonstrations.dagger=0", "learner.eval_episodes=1"),
    )
    check_records(found, Purpose.TRAIN, axes=4, bins=21, chunk=2)
    demonstrations = [one for one in found if one.purpose is Purpose.DEMO]
    assert any(one.success == 1.0 for one in demonstrations)
