"""Stand-ins for the packages of trackers, with the parameters that distrl passes; they keep what they get."""

from __future__ import annotations

import types
from types import SimpleNamespace
from typing import Any


class FakeRun:
    """A run of trackio or W&B."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.rows: list[tuple[int | None, dict[str, Any]]] = []
        self.files: list[str] = []
        self.finished = 0

    def log(self, metrics: dict, step: int | None = None) -> None:
        self.rows.append((step, metrics))

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        assert (name, step_metric) == ("*", "step")

    def log_artifact(self, artifact_or_path: str, name: str | None = None, type: str | None = None) -> None:
        self.files.append(str(artifact_or_path))

    def finish(self) -> None:
        self.finished += 1


class FakeImage:
    def __init__(self, value: Any) -> None:
        self.value = value


def trackio(runs: dict[str, FakeRun]) -> types.ModuleType:
    """The module trackio: a run that has the name of an earlier one continues it."""

    def init(
        project: str,
        name: str | None = None,
        config: dict | None = None,
        resume: str = "never",
        auto_log_gpu: bool | None = None,
        auto_log_cpu: bool | None = None,
    ) -> FakeRun:
        assert resume == "allow"
        assert name is not None
        return runs.setdefault(name, FakeRun(f"id of {name}"))

    return _module("trackio", init=init, Image=FakeImage)


def wandb(runs: dict[str, FakeRun]) -> types.ModuleType:
    """The module wandb: a run that has the id of an earlier one continues it."""

    def init(
        project: str | None = None,
        dir: str | None = None,
        id: str | None = None,
        name: str | None = None,
        config: dict | None = None,
        mode: str | None = None,
        resume: str | None = None,
        settings: dict | None = None,
    ) -> FakeRun:
        assert (mode, resume) == ("offline", "allow")
        assert id is not None
        return runs.setdefault(id, FakeRun(id))

    return _module("wandb", init=init, Image=FakeImage)


class FakeClient:
    """mlflow's client of a store, of which all clients know the runs."""

    runs: dict[str, FakeRun]
    status: dict[str, str]

    def __init__(self, tracking_uri: str | None = None) -> None:
        assert tracking_uri is not None
        assert tracking_uri.startswith("sqlite:///")

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        assert artifact_location is not None
        assert artifact_location.startswith("file:///")
        return "1"

    def create_run(self, experiment_id: str, run_name: str | None = None) -> SimpleNamespace:
        name = f"run {len(self.runs)}"
        self.runs[name] = FakeRun(name)
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def update_run(self, run_id: str, status: str | None = None) -> None:
        self.status[run_id] = str(status)

    def log_batch(self, run_id: str, metrics: Any = ()) -> None:
        for metric in metrics:
            self.runs[run_id].rows.append((metric.step, {metric.key: metric.value}))

    def log_image(self, run_id: str, image: Any, key: str | None = None, step: int | None = None) -> None:
        self.runs[run_id].rows.append((step, {str(key): FakeImage(image)}))

    def log_artifact(self, run_id: str, local_path: str) -> None:
        self.runs[run_id].files.append(local_path)

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id].finish()
        self.status[run_id] = "FINISHED"


def mlflow(runs: dict[str, FakeRun]) -> types.ModuleType:
    """The module mlflow."""

    def metric(key: str, value: float, timestamp: int, step: int) -> SimpleNamespace:
        return SimpleNamespace(key=key, value=value, step=step)

    client = type("MlflowClient", (FakeClient,), {"runs": runs, "status": {}})
    entities = _module("mlflow.entities", Metric=metric)
    return _module("mlflow", MlflowClient=client, entities=entities)


def _module(name: str, **content: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(content)
    return module
