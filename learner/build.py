"""Puts a learner together from its configuration, its run directory and its tasks."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import torch

from distrl.configs.schema import Config
from distrl.core.metrics import MetricsWriter
from distrl.core.policies.images import IMAGES_SHARE, ImageCache, memory_share
from distrl.core.rundir import RunDir
from distrl.core.security import SERVER, load_security
from distrl.core.store import TrajectoryStore
from distrl.core.types import Task, Trajectory
from distrl.learner.batching import Batcher
from distrl.learner.checkpoint import Checkpointer, restore
from distrl.learner.context import Context, Network, Progress, Reporter, RunClock
from distrl.learner.distributed import open_train_step
from distrl.learner.ingest import Ingest
from distrl.learner.learner import Learner
from distrl.learner.publish import Publisher
from distrl.learner.ranks import Place, Watch, unwatched
from distrl.learner.replay import MixedReplay, Replay
from distrl.learner.scheduler import TaskScheduler
from distrl.learner.server import Endpoints, LearnerServer, RunLimits
from distrl.learner.task_sampling import Drift
from distrl.learner.trackers import open_trackers
from distrl.learner.transfer import WeightTransfer

if TYPE_CHECKING:
    from distrl.learner.train_step import TrainStep

MAX_INGESTED = 256
LINGER_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskSets:
    """The tasks to learn on and to measure on, the words of the suite's goals, and the tasks of a drift."""

    train: Sequence[Task]
    validation: Sequence[Task]
    words: Sequence[str]
    drift: Sequence[Task] = ()


@contextlib.contextmanager
def open_learner(
    config: Config,
    run: RunDir,
    tasks: TaskSets,
    stop: Event,
    place: Place | None = None,
    watch: Watch = unwatched,
) -> Iterator[Learner]:
    """A learner whose sockets are bound and served; everything is closed afterwards.

    A run that has a checkpoint continues from it; one that has only trajectories ingests them again.
    """
    network = config.network
    torch.set_num_threads(config.learner.threads)
    torch.manual_seed(config.seed)
    with contextlib.ExitStack() as stack:
        train_step = stack.enter_context(open_train_step(config, tasks.words, place, watch))
        store = TrajectoryStore(run.store)
        stack.callback(store.close)
        scheduler = make_scheduler(config, tasks, uuid.uuid4().hex[:12], run.lease_secret())
        ingested: queue.Queue[Trajectory] = queue.Queue(MAX_INGESTED)
        server = LearnerServer(
            Endpoints(network.control, network.broadcast, network.weights, network.rendezvous),
            load_security(network.keys_path, SERVER),
            store,
            scheduler,
            ingested,
            run_id=run.run_id(),
        )
        stack.callback(server.close)
        metrics = MetricsWriter(run.metrics, open_trackers(config, run))
        stack.callback(metrics.close)
        context = make_context(config, run, train_step, store, scheduler, server, ingested, metrics)
        stack.callback(context.ingest.close)
        policy = train_step.policy
        server.limits = RunLimits(
            policy.num_tokens,
            policy.max_prompt_tokens,
            policy.max_sequence_tokens(config.learner.max_new_tokens),
            config.learner.max_new_tokens,
            newest_version=lambda: context.publisher.version,
        )
        _resume(context)
        if config.learner.transfer == "nccl":
            context.publisher.transfer = WeightTransfer(server)
        server.on_arrival = context.ingest.announce
        server.start()
        stack.enter_context(run.announced(server.endpoints.control))
        yield Learner(context, stop)
        if server.status.phase == "done":
            time.sleep(LINGER_S)  # late subscribers hear the shutdown, last trajectories are acked


def make_scheduler(
    config: Config,
    tasks: TaskSets,
    incarnation: str,
    secret: bytes,
    clock: Callable[[], float] = time.monotonic,
) -> TaskScheduler:
    """The scheduler of a run's tasks."""
    drift = config.tasks.drift
    return TaskScheduler(
        config.learner,
        tasks.train,
        tasks.validation,
        config.seed,
        incarnation,
        secret,
        clock,
        Drift(tasks.drift, drift.after, drift.share) if drift else None,
        config.world,
    )


def make_replay(config: Config) -> Replay:
    """An empty replay buffer; with a world model one of imagined trajectories beside it."""
    if config.world.is_on:
        return MixedReplay(config.learner.replay, config.seed, config.world.max_imagined_share)
    return Replay(config.learner.replay, config.seed)


def make_context(
    config: Config,
    run: RunDir,
    train_step: TrainStep,
    store: TrajectoryStore,
    scheduler: TaskScheduler,
    server: Network,
    ingested: queue.Queue[Trajectory],
    metrics: MetricsWriter,
    now: Callable[[], float] = time.monotonic,
) -> Context:
    """What the training thread works with, besides the given parts; `now` is the run's clock in seconds."""
    learner, policy = config.learner, train_step.policy
    replay = make_replay(config)
    images = ImageCache(policy.image, store.images, memory_share(IMAGES_SHARE))
    train_step.load_images = store.images
    run.weights.mkdir(exist_ok=True)
    progress = Progress()
    clock = RunClock(progress, learner.max_minutes, now)
    publisher = Publisher(policy, server, run.weights / "version", learner.policy_lag)
    return Context(
        config=config,
        server=server,
        store=store,
        scheduler=scheduler,
        replay=replay,
        ingest=Ingest(ingested, store, policy, images, replay, scheduler, lambda: publisher.version, learner),
        batcher=Batcher(policy, images),
        train_step=train_step,
        publisher=publisher,
        checkpointer=Checkpointer(run.checkpoints, train_step, learner.keep_checkpoints),
        report=Reporter(metrics, server, progress, clock),
        rng=np.random.default_rng(config.seed),
        progress=progress,
        clock=clock,
    )


def _resume(context: Context) -> None:
    state = context.checkpointer.load()
    if state is not None:
        restore(context, state)
        _log.info("resumed after %d updates", context.progress.updates)
    else:
        context.ingest.restore()
    context.report.writer.resume(context.progress.updates)
