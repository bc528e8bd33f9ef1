"""Trackers: where metrics go besides metrics.jsonl. Each is fed by a thread of its own.

    training thread ── log, add_file ──► bounded queue ──► thread tracker-NAME ──► the tracker's package

So a tracker neither delays a run nor ends it: one that raises is logged once and gets nothing more, and one
that falls behind by `MAX_WAITING` calls loses values. Packages are imported in that thread. Nothing leaves
this machine unless the tracker's own environment variables say so.
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL.Image import Image

from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency
from distrl.core.metrics import RESUMED, Values, read_metrics
from distrl.core.rundir import RunDir
from distrl.core.user_errors import EXTRAS

MAX_WAITING = 10_000
FINISH_S = 30.0  # how long the end of a run waits for a tracker to write what it has
_log = logging.getLogger(__name__)


class TrackerRun(Protocol):
    """A run at a tracker. A run that is resumed continues the same one."""

    def __init__(self, config: Config, run: RunDir) -> None: ...

    def log(self, step: int, values: Values) -> None: ...

    def add_file(self, path: Path) -> None: ...  # nothing where files are not kept

    def finish(self) -> None: ...


class TensorBoard(TrackerRun):
    """Event files in the run directory."""

    def __init__(self, config: Config, run: RunDir) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._open = functools.partial(SummaryWriter, str(run.tensorboard), flush_secs=10)
        self._writer = self._open()

    def log(self, step: int, values: Values) -> None:
        if RESUMED in values:  # TensorBoard drops what its earlier files have of the later steps
            self._writer.close()
            self._writer = self._open(purge_step=step + 1)
        for name, value in values.items():
            if isinstance(value, Image):
                self._writer.add_image(name, np.asarray(value), step, dataformats="HWC")
            else:
                self._writer.add_scalar(name, value, step)

    def add_file(self, path: Path) -> None:
        if path.suffix == ".yaml":
            self._writer.add_text(path.stem, f"<pre>{path.read_text(encoding='utf-8')}</pre>")

    def finish(self) -> None:
        self._writer.close()


class Trackio(TrackerRun):
    """Trackio's database in its own folder, where `trackio show` looks; or the Space in TRACKIO_SPACE_ID."""

    def __init__(self, config: Config, run: RunDir) -> None:
        import trackio

        self._image = trackio.Image
        self._run = trackio.init(
            project=config.metrics.project,
            name=run.run_id(),  # it tells runs apart by name only
            config=config.model_dump(mode="json"),
            resume="allow",
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, values: Values) -> None:
        self._run.log(self._shown(values), step=step)

    def add_file(self, path: Path) -> None:
        self._run.log_artifact(str(path), name=f"{self._run.id}-{path.stem}", type=path.stem)

    def _shown(self, values: Values) -> dict[str, Any]:
        return {key: self._image(one) if isinstance(one, Image) else one for key, one in values.items()}

    def finish(self) -> None:
        self._run.finish()


class Wandb(Trackio):
    """W&B's files in the run directory, for `wandb sync`; its server with WANDB_MODE=online."""

    def __init__(self, config: Config, run: RunDir) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._image = wandb.Image
        self._run = wandb.init(
            project=config.metrics.project,
            id=run.run_id(),
            name=config.name,
            dir=str(run.path),
            config=config.model_dump(mode="json"),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
            settings={"console": "off", "silent": True},
        )
        # Its own steps never go back, as those of a resumed run do.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Values) -> None:
        self._run.log({"step": step, **self._shown(values)})


class MlFlow(TrackerRun):
    """A database and files in the run directory; or the server in MLFLOW_TRACKING_URI."""

    def __init__(self, config: Config, run: RunDir) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        home, server = run.path.absolute(), os.environ.get("MLFLOW_TRACKING_URI")
        client = MlflowClient(server or f"sqlite:///{home}/mlflow.db")

        def create() -> str:
            project, place = config.metrics.project, None if server else (home / "mlartifacts").as_uri()
            found = client.get_experiment_by_name(project)
            experiment = found.experiment_id if found else client.create_experiment(project, place)
            return str(client.create_run(experiment, run_name=config.name).info.run_id)

        self._client, self._metric, self._id = client, Metric, run.tracker_id("mlflow", create)
        self._client.update_run(self._id, status="RUNNING")

    def log(self, step: int, values: Values) -> None:
        now, numbers = int(1000 * time.time()), []
        for name, value in values.items():
            key = re.sub(r"[^\w./ -]", "_", name)  # it refuses others, such as the plus of "32+"
            if isinstance(value, Image):
                self._client.log_image(self._id, value, key=key, step=step)
            else:
                numbers.append(self._metric(key, value, now, step))
        self._client.log_batch(self._id, metrics=numbers)

    def add_file(self, path: Path) -> None:
        self._client.log_artifact(self._id, str(path))

    def finish(self) -> None:
        self._client.set_terminated(self._id)


TRACKERS: dict[str, Callable[[Config, RunDir], TrackerRun]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": Wandb,
    "mlflow": MlFlow,
}


class Feed:
    """Feeds a tracker from a thread of its own, where `make` opens it (`distrl.core.metrics.Tracker`)."""

    def __init__(self, name: str, make: Callable[[], TrackerRun]) -> None:
        self._name, self._make, self._problem = name, make, ""
        self._queue: queue.Queue[Callable[[TrackerRun], None] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Values | Callable[[], Values]) -> None:
        self._put(lambda package: package.log(step, values() if callable(values) else values))

    def add_file(self, path: Path) -> None:
        self._put(lambda package: package.add_file(path))

    def finish(self) -> None:
        """Waits until the tracker has everything, for up to twice `FINISH_S`."""
        self._put(None, FINISH_S)
        self._thread.join(FINISH_S)
        if self._thread.is_alive():
            self._tell(f"did not finish within {FINISH_S:g} s")

    def _put(self, call: Callable[[TrackerRun], None] | None, timeout_s: float = 0.0) -> None:
        try:
            if self._thread.is_alive():
                self._queue.put(call, timeout=timeout_s)
        except queue.Full:
            self._tell("is too slow: values are dropped")

    def _run(self) -> None:
        try:
            package = self._make()
            while (call := self._queue.get()) is not None:
                call(package)
            package.finish()
        except Exception as error:  # noqa: BLE001 - whatever a tracker does, the run goes on
            self._tell(f"failed, and the run continues without it: {type(error).__name__}: {error}")

    def _tell(self, problem: str) -> None:
        """Logs the first problem of a kind."""
        if problem != self._problem:
            _log.warning("the tracker %s %s", self._name, problem)
        self._problem = problem


def check_trackers(names: Sequence[str]) -> None:
    """Raises MissingDependency if the package of a tracker is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise MissingDependency(
                f"metrics.trackers includes {name}, which is not installed.",
                f'Run pip install "distrl[{EXTRAS[name]}]", or remove {name} from the list.',
            )


def open_trackers(config: Config, run: RunDir, without: Sequence[str] = ()) -> list[Feed]:
    """The trackers of a run, which have its configuration. Raises as `check_trackers`."""
    names = [name for name in dict.fromkeys(config.metrics.trackers) if name not in without]
    check_trackers(names)
    feeds = [Feed(name, functools.partial(TRACKERS[name], config, run)) for name in names]
    for feed in feeds:
        feed.add_file(run.config)
    return feeds


def add_report(config: Config, run: RunDir, page: Path, episodes: Callable[[], Values]) -> None:
    """Gives the trackers that keep files the run's report, and pictures of its measured episodes.

    TensorBoard keeps neither: it reads the run directory, where they are.
    """
    step = int(max((row["step"] for row in read_metrics(run.metrics)), default=0))
    feeds = open_trackers(config, run, without=["tensorboard"])
    for feed in feeds:
        feed.add_file(page)
        feed.log(step, episodes)
    for feed in feeds:
        feed.finish()
