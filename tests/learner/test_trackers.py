"""Trackers: values arrive, a resumed run continues its run there, and a failure never ends a run."""

from __future__ import annotations

import importlib
import inspect
import logging
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracker_packages
from PIL import Image
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency
from distrl.core.metrics import MetricsWriter
from distrl.core.rundir import RunDir
from distrl.learner import trackers
from distrl.learner.trackers import add_report, check_trackers, open_trackers

PICTURE = Image.new("RGB", (80, 60), "red")
LOSSES = [(1, 1.0), (2, 1.0), (3, 1.0), (4, 4.0), (5, 4.0), (6, 4.0)]
"""By steps, after `train` from 1 and from 4."""

FAKED = ("trackio", "wandb", "mlflow")


def new_run(path: Path, *names: str) -> tuple[Config, RunDir]:
    settings = {"name": "mine", "runs_dir": str(path / "runs"), "metrics": {"trackers": list(names)}}
    config = Config.model_validate(settings)
    return config, RunDir.create(config)


def train(config: Config, run: RunDir, first: int) -> None:
    """A process of a run that writes three rows and a picture."""
    writer = MetricsWriter(run.metrics, open_trackers(config, run))
    writer.resume(first - 1)
    for step in range(first, first + 3):
        writer.write(step, {"staleness/32+/success": 0.5, "loss/policy": float(first)})
    writer.show(first, lambda: {"pictures/validation-1": PICTURE})
    writer.close()


@pytest.mark.needs("tensorboard")
def test_tensorboard_drops_what_was_rolled_back(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config, run = new_run(tmp_path, "tensorboard")
    train(config, run, 1)
    time.sleep(1.0)  # files are read in the order of the seconds in their names
    train(config, run, 3)  # from step 2, where the checkpoint is
    events = EventAccumulator(str(run.tensorboard)).Reload()
    found = [(scalar.step, scalar.value) for scalar in events.Scalars("loss/policy")]
    assert found == [(1, 1.0), (2, 1.0), (3, 3.0), (4, 3.0), (5, 3.0)]
    assert events.Images("pictures/validation-1")
    assert b"name: mine" in events.Tensors("config/text_summary")[0].tensor_proto.string_val[0]


@pytest.fixture(params=FAKED)
def faked(request, monkeypatch) -> Iterator[tuple[str, dict[str, tracker_packages.FakeRun]]]:
    """A tracker's name, and the runs at its stand-in."""
    name, runs = request.param, {}
    module = getattr(tracker_packages, name)(runs)
    monkeypatch.setitem(sys.modules, name, module)
    if name == "mlflow":
        monkeypatch.setitem(sys.modules, "mlflow.entities", module.entities)
    monkeypatch.setattr(trackers, "find_spec", lambda package: package == name or None)
    for variable in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    return name, runs


def test_a_resumed_run_continues_its_run_and_the_report_goes_there_too(faked, tmp_path) -> None:
    name, runs = faked
    config, run = new_run(tmp_path, name, name)
    train(config, run, 1)
    train(config, run, 4)
    run.report.write_text("<html>")
    add_report(config, run, run.report, lambda: {"pictures/test-1": PICTURE})
    (found,) = runs.values()
    numbers = [(step or values.get("step"), values) for step, values in found.rows]
    losses = [(step, values["loss/policy"]) for step, values in numbers if "loss/policy" in values]
    assert losses == LOSSES
    shown = {key: value for _, values in numbers for key, value in values.items()}
    assert shown["pictures/validation-1"].value is shown["pictures/test-1"].value is PICTURE
    assert {str(run.config), str(run.report)} <= set(found.files)
    assert found.finished == 3
    if name == "mlflow":
        assert "staleness/32_/success" in shown


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in FAKED])
def test_stand_ins_take_what_the_packages_take(name) -> None:
    real, fake = importlib.import_module(name), getattr(tracker_packages, name)({})
    run = {"trackio": "Run", "wandb": "sdk.wandb_run.Run", "mlflow": "MlflowClient"}[name]
    pairs = [(real.init, fake.init)] if name != "mlflow" else []
    whole = real
    for part in run.split("."):
        whole = getattr(whole, part)
    standing = fake.MlflowClient if name == "mlflow" else tracker_packages.FakeRun
    used = [key for key, value in inspect.getmembers(standing, inspect.isfunction) if key != "__init__"]
    used = [key for key in used if (name, key) != ("trackio", "define_metric")]
    pairs += [(getattr(whole, key), getattr(standing, key)) for key in used]
    for theirs, ours in pairs:
        known = inspect.signature(theirs).parameters
        # W&B's calls have other names for what is passed by position.
        wanted = [key for key in inspect.signature(ours).parameters if key not in ("metrics", "step")]
        assert [key for key in wanted if key not in known] == [], theirs


@pytest.mark.needs("trackio")
def test_trackio_keeps_a_resumed_run_as_one(tmp_path, monkeypatch) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    for module in ("trackio.utils", "trackio.sqlite_storage", "trackio"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    config, run = new_run(tmp_path, "trackio")
    train(config, run, 1)
    train(config, run, 4)
    assert SQLiteStorage.get_runs("distrl") == [run.run_id()]
    rows = SQLiteStorage.get_logs("distrl", run.run_id())
    losses = [(row["step"], row["loss/policy"]) for row in rows if "loss/policy" in row]
    assert losses == LOSSES
    assert any("pictures/validation-1" in row for row in rows)


def records(log: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: a header, then LevelDB's log, blocks of 32 KiB with parts of records."""
    place, record = 7, b""
    while place < len(log):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", log, place)
        record += log[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.needs("wandb")
def test_wandb_writes_both_parts_offline_under_one_id(tmp_path, monkeypatch) -> None:
    from wandb.proto import wandb_internal_pb2

    monkeypatch.delenv("WANDB_MODE", raising=False)
    config, run = new_run(tmp_path, "wandb")
    train(config, run, 1)
    time.sleep(1.0)  # its folders have the second in their names
    train(config, run, 4)
    losses, ids = [], set()
    for file in sorted((run.path / "wandb").glob("offline-run-*/*.wandb")):
        for data in records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                ids.add((record.run.run_id, record.run.display_name))
            values = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            if "loss/policy" in values:
                losses.append((int(values["step"]), float(values["loss/policy"])))
    assert ids == {(run.run_id(), "mine")}
    assert losses == LOSSES


@pytest.mark.needs("mlflow", "sqlalchemy")
def test_mlflow_keeps_a_resumed_run_as_one_in_the_run_directory(tmp_path, monkeypatch, caplog) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    config, run = new_run(tmp_path, "mlflow")
    train(config, run, 1)
    train(config, run, 4)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert not logging.getLogger(trackers.__name__).disabled, "alembic left other loggers on"
    client = MlflowClient(f"sqlite:///{run.path}/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("distrl").experiment_id])
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    history = client.get_metric_history(found.info.run_id, "loss/policy")
    assert sorted((one.step, one.value) for one in history) == [
        *((n, 1.0) for n in (1, 2, 3)),
        *((n, 4.0) for n in (4, 5, 6)),
    ]
    kept = {path.name.partition("%")[0] for path in (run.path / "mlartifacts").rglob("*") if path.is_file()}
    assert "config.yaml" in kept
    assert any(name.startswith("pictures") for name in kept)
    assert not (tmp_path / "mlruns").exists()


def test_a_missing_package_is_one_line_with_its_extra(monkeypatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    with pytest.raises(MissingDependency, match=r'includes wandb.* pip install "distrl\[wandb\]"'):
        check_trackers(["wandb"])


@pytest.mark.parametrize("command", ["train", "run-learner"])
def test_commands_refuse_before_the_run_starts(command, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    options = [f"--set=runs_dir={tmp_path}/runs", "--set=metrics.trackers=[mlflow]"]
    result = CliRunner().invoke(app, [command, "quickstart", *options])
    assert result.exit_code == MissingDependency.exit_code
    assert "metrics.trackers includes mlflow, which is not installed" in result.stderr
    assert not (tmp_path / "runs").exists()


class Broken(trackers.TrackerRun):
    """Fails with its second row."""

    rows = 0

    def log(self, step, values) -> None:
        self.rows += 1
        if self.rows > 1:
            raise ConnectionError("the server is gone")


def test_a_tracker_that_fails_is_told_once_and_metrics_go_on(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", Broken)
    config, run = new_run(tmp_path, "tensorboard")
    with caplog.at_level(logging.WARNING):
        train(config, run, 1)
    said = "the tracker tensorboard failed, and the run continues without it"
    assert caplog.messages == [f"{said}: ConnectionError: the server is gone"]
    assert run.metrics.read_text().count("loss/policy") == 3


def test_a_tracker_that_hangs_delays_nothing(tmp_path, monkeypatch, caplog) -> None:
    released = threading.Event()

    class Hanging(Broken):
        def log(self, step, values) -> None:
            released.wait(60.0)

    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", Hanging)
    monkeypatch.setattr(trackers, "MAX_WAITING", 2)
    monkeypatch.setattr(trackers, "FINISH_S", 0.05)
    config, run = new_run(tmp_path, "tensorboard")
    train(config, run, 1)
    released.set()
    assert run.metrics.read_text().count("loss/policy") == 3
    assert len(caplog.messages) == 2
    assert "is too slow" in caplog.messages[0]
    assert "did not finish" in caplog.messages[1]
