"""Puts a learner together from its configuration, its run directory and its tasks."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event

import numpy as np
import torch

from distrl.configs.schema import Config
from distrl.core.messages import RunLimits
from distrl.core.metrics import MetricsWriter
from distrl.core.rundir import RunDir
from distrl.core.security import SERVER, load_security
from distrl.core.store import TrajectoryStore
from distrl.core.types import Task, Trajectory
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.checkpoint import Checkpointer
from distrl.learner.distributed.link import Place
from distrl.learner.distributed.ranks import open_engine, open_trainer
from distrl.learner.distributed.team import Watch, unwatched
from distrl.learner.drift import Drift
from distrl.learner.engine import Engine
from distrl.learner.ingest import Ingest
from distrl.learner.learner import Learner
from distrl.learner.parts import Parts
from distrl.learner.publish import Publisher
from distrl.learner.renaming import Renaming
from distrl.learner.replay import Replay
from distrl.learner.scheduler import TaskScheduler
from distrl.learner.server import Endpoints, LearnerServer
from distrl.learner.tensorboard import tensorboard_sinks

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

    A run that has a checkpoint goes on from it; one that has only trajectories takes them in again.

    Args:
        place: With several ranks, this one's, rank 0's.
        watch: Who knows when another rank has ended.

    Raises:
        NetworkError: An address is in use.
        CheckpointError: The newest checkpoint cannot be used.
        RankError: Another rank cannot be reached.
    """
    torch.set_num_threads(config.learner.threads)
    torch.manual_seed(config.seed)
    with contextlib.ExitStack() as stack:
        trainer = stack.enter_context(open_trainer(config, tasks.words, place))
        engine = stack.enter_context(open_engine(config, trainer, place, watch))
        store = TrajectoryStore(run.store)
        stack.callback(store.close)
        drift = config.tasks.drift
        scheduler = TaskScheduler(
            config.learner,
            tasks.train,
            tasks.validation,
            config.seed,
            incarnation=uuid.uuid4().hex[:12],
            secret=run.lease_secret(),
            drift=Drift(tasks.drift, drift.after, drift.share) if drift else None,
        )
        ingested: queue.Queue[Trajectory] = queue.Queue(MAX_INGESTED)
        network = config.network
        server = LearnerServer(
            Endpoints(network.control, network.broadcast, network.weights),
            load_security(network.keys_path, SERVER),
            store,
            scheduler,
            ingested,
            run_id=run.run_id(),
        )
        stack.callback(server.close)
        metrics = MetricsWriter(run.metrics, tensorboard_sinks(run.tensorboard))
        stack.callback(metrics.close)
        parts = _parts(config, run, engine, store, scheduler, server, ingested, metrics)
        _resume(parts)
        server.start()
        yield Learner(parts, stop)
        if server.status.phase == "done":
            time.sleep(LINGER_S)  # late subscribers hear the shutdown, last trajectories are acked


def _parts(
    config: Config,
    run: RunDir,
    engine: Engine,
    store: TrajectoryStore,
    scheduler: TaskScheduler,
    server: LearnerServer,
    ingested: queue.Queue[Trajectory],
    metrics: MetricsWriter,
) -> Parts:
    learner = config.learner
    policy = engine.policy
    replay = Replay(learner.replay, config.seed)
    images = ImageCache(policy.image, store.images)
    run.weights.mkdir(exist_ok=True)
    rng = np.random.default_rng(config.seed)
    publisher = Publisher(policy, server, run.weights / "version", learner.policy_lag)
    server.limits = RunLimits(
        policy.num_tokens,
        policy.max_prompt_tokens,
        policy.max_sequence_tokens(learner.max_new_tokens),
        learner.max_new_tokens,
        newest_version=lambda: publisher.version,
    )
    return Parts(
        config=config,
        server=server,
        store=store,
        scheduler=scheduler,
        replay=replay,
        ingest=Ingest(ingested, store, policy, images, replay, scheduler, lambda: publisher.version, learner),
        batcher=Batcher(policy, images),
        engine=engine,
        publisher=publisher,
        checkpointer=Checkpointer(run.checkpoints, engine, learner.keep_checkpoints),
        metrics=metrics,
        rng=rng,
        renaming=Renaming(policy.word_ids, learner.demonstrations.rename, rng),
    )


def _resume(parts: Parts) -> None:
    """Brings back the newest checkpoint, and every trajectory that came in after it."""
    state = parts.checkpointer.load()
    if state is not None:
        parts.load_state_dict(state)
        _log.info("resumed after %d updates", parts.progress.updates)
    else:
        parts.ingest.restore(None, [])
    parts.metrics.resume(parts.progress.updates)
