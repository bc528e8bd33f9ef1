"""`distrl simulate`: whole small runs in virtual time."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.metrics import read_metrics
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose

pytestmark = pytest.mark.needs("torch", "transformers", "jinja2")
runner = CliRunner()

CONFIG = {
    "tasks": {"suite": "quickstart", "test": ["val"]},
    "agent": {"kind": "elements"},
    "policy": {"kind": "reader", "d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1},
    "worker": {"slots": 6},
    "local": {"workers": 1},
    "evaluate": {"episodes": 4, "distance": False},
    "simulate": {"latency": {"median_s": 2.0, "sigma": 1.0}, "update_s": 1.5},
    "learner": {
        "episodes": 20,
        "batch_trajectories": 4,
        "updates_per_episode": 0.5,
        "min_replay": 4,
        "publish_every": 1,
        "eval_every": 6,
        "eval_episodes": 4,
        "keep_best": False,
        "demonstrations": {"episodes": 4, "updates": 2, "critic_updates": 2},
    },
}


def invoke(tmp_path, name, *overrides, options=()):
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(CONFIG))
    settings = [f"name={name}", f"runs_dir={tmp_path}", *overrides]
    return runner.invoke(app, ["simulate", str(file), *options, *(f"--set={one}" for one in settings)])


def simulate(tmp_path, name, *overrides, options=()):
    result = invoke(tmp_path, name, *overrides, options=options)
    assert result.exit_code == 0, result.output
    return RunDir(tmp_path / name), result.output


def episodes(run):
    """What happened in each episode, in the order of arrival, but for the pictures' names."""
    store = TrajectoryStore(run.store)
    try:
        found = [store.get(name) for name in store.ids()]
    finally:
        store.close()
    return [
        (
            one.id,
            one.task.id,
            one.started_at,
            one.duration_s,
            one.success,
            [(step.action, [chat.completion for chat in step.chats]) for step in one.steps],
        )
        for one in found
    ]


def test_the_same_command_gives_the_same_run(tmp_path) -> None:
    first, shown = simulate(tmp_path, "first")
    rows, played = list(read_metrics(first.metrics)), episodes(first)
    again, _ = simulate(tmp_path, "first", options=["--force"])
    assert rows == list(read_metrics(again.metrics))
    assert played == episodes(again)
    other, _ = simulate(tmp_path, "other", "seed=1")
    assert episodes(other) != played
    # It is a run like any other, with its times in virtual seconds.
    assert first.report.is_file()
    assert len(list(first.evaluations.glob("*/results.json"))) == 2
    assert rows[-1]["episodes"] == 20
    updates = [row for row in rows if "time/update_s" in row]
    assert updates[-1]["versions"] >= 10
    assert {row["time/update_s"] for row in updates} == {1.5}
    assert all(later["time"] - row["time"] >= 1.5 for row, later in itertools.pairwise(updates))
    # The summary is of these episodes.
    summary = next(row for row in rows if "simulation/hours" in row)
    staleness = [row["off_policy/staleness_mean"] for row in updates]
    assert summary["simulation/staleness_mean"] == pytest.approx(sum(staleness) / len(staleness), abs=1e-5)
    assert f"{summary['simulation/learner_idle_share']:.0%}" in shown
    seconds = 3600 * summary["simulation/hours"]
    with contextlib.closing(TrajectoryStore(first.store)) as store:
        stored = store.size_bytes  # with the demonstrations, which came before
    assert 0.5 * stored < 1e6 * seconds * summary["simulation/received_mb_per_s"] < stored
    assert summary["simulation/stored_gb_per_day"] == pytest.approx(
        86.4 * summary["simulation/received_mb_per_s"]
    )
    size = next(first.checkpoints.glob("*/policy/model.safetensors")).stat().st_size
    sent = 1e6 * seconds * summary["simulation/sent_mb_per_s"] / size
    assert sent == pytest.approx(round(sent), rel=1e-4)  # whole versions
    assert abs(round(sent) - updates[-1]["versions"]) <= 1


@pytest.mark.parametrize(("options", "lock"), [([], ".simulate.lock"), (["--force"], ".learner.lock")])
def test_only_a_simulation_is_replaced_and_only_on_request(tmp_path, options, lock) -> None:
    before = RunDir.create(Config(name="here", runs_dir=str(tmp_path)))
    (before.path / lock).touch()
    result = invoke(tmp_path, "here", options=options)
    assert result.exit_code == 3
    remedy = "Remove it" if options else "Replace an earlier simulation with --force"
    assert f"exists already. {remedy}, or start another" in " ".join(result.output.split())
    assert before.config.is_file()


WORLD = ("world.model=oracle", "world.min_real=8", "world.imagined_per_real=2", "world.horizon=3")


def test_imagination_is_as_repeatable_and_leaves_real_episodes_their_counts(tmp_path) -> None:
    first, _ = simulate(tmp_path, "first", *WORLD)
    second, _ = simulate(tmp_path, "second", *WORLD)
    assert episodes(first) == episodes(second)
    with contextlib.closing(TrajectoryStore(first.store)) as store:
        imagined = list(store.iterate(Purpose.IMAGINED))
        real = {one.id: one for one in store.iterate(Purpose.TRAIN)}
    assert (len(real), len(imagined)) == (20, 24)
    for one in imagined:  # each goes on from a real state, prompt for prompt
        source = real[one.branch.trajectory]
        assert one.steps[0].chats[0].messages == source.steps[len(one.branch.past)].chats[0].messages
        assert (one.task, len(one.steps) <= 3) == (source.task, True)
    rows = list(read_metrics(first.metrics))
    assert rows[-1]["episodes"] == 20
    assert max(row.get("batch/imagined", 0.0) for row in rows) == 0.5
    assert 20 * 0.5 < rows[-1]["step"] <= (20 + 0.5 * 24) * 0.5, "they pay for updates, too"


@pytest.mark.parametrize(("lag", "max_staleness"), [(0, 1), (3, 1)])
def test_staleness_is_what_the_schedule_implies(tmp_path, lag, max_staleness) -> None:
    """Leases are granted such that nothing gets older than `max_staleness`; a policy lag is added to that."""
    run, _ = simulate(
        tmp_path, "run", f"learner.policy_lag={lag}", f"learner.max_staleness={max_staleness}",
        "learner.replay.capacity=2", "learner.batch_trajectories=2", "learner.updates_per_episode=1",
        "learner.min_replay=2",
    )  # fmt: skip
    rows = [row for row in read_metrics(run.metrics) if "off_policy/ingest_staleness" in row]
    assert max(row["off_policy/ingest_staleness"] for row in rows) <= lag + max_staleness + 1
    assert rows[-1]["off_policy/staleness_mean"] >= lag


def test_the_longer_updates_take_the_longer_slots_wait(tmp_path) -> None:
    shares = []
    for seconds in (0.1, 30.0):
        run, _ = simulate(
            tmp_path, f"run-{seconds}", f"simulate.update_s={seconds}", "learner.max_staleness=2"
        )
        (summary,) = [row for row in read_metrics(run.metrics) if "simulation/hours" in row]
        shares.append((summary["workers/idle_share"], summary["simulation/learner_idle_share"]))
    assert shares[0][0] < shares[1][0]
    assert shares[0][1] > shares[1][1]


def test_continuous_control_has_no_simulation() -> None:
    result = runner.invoke(app, ["simulate", "appo-hopper"])
    assert result.exit_code != 0
    assert "has no simulation" in result.output
