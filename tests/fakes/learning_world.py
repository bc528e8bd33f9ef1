"""A learner in one thread: a fake server whose `check` plays the episodes that are leased."""

from __future__ import annotations

import queue
import random
from threading import Event

import numpy as np
import torch

from distrl.configs.schema import Config
from distrl.core.metrics import MetricsWriter
from distrl.core.policies import weights_io
from distrl.core.store import TrajectoryStore
from distrl.core.types import Outcome, Purpose, Sampling
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.build import make_replay
from distrl.learner.checkpoint import Checkpointer
from distrl.learner.context import Context, Progress, Reporter, RunClock
from distrl.learner.ingest import Ingest
from distrl.learner.learner import Learner
from distrl.learner.publish import Publisher
from distrl.learner.scheduler import TaskScheduler
from distrl.learner.train_step import TrainStep

OPTIONS = {
    "episodes": 300,
    "demonstrations": {"episodes": 12, "updates": 6, "lr": 0.05, "critic_updates": 20, "noise": 0.0},
    "optim": {"lr": 0.05, "critic_lr": 0.03},
    "algorithm": {"kind": "aride", "rho_max": 1.0, "entropy": 0.01},
    "updates_per_episode": 0.5,
    "min_replay": 16,
    "batch_trajectories": 16,
    "eval_every": 50,
    "eval_episodes": 12,
    "checkpoint_every": 25,
    "publish_every": 1,
    "replay": {"capacity": 48},
}


BUILT: list[Learner] = []
"""Learners whose threads are to be ended."""


class World:
    """Two steps, in each the right token is the task's number. Server, workers and inference in one."""

    def __init__(self, toy, scheduler, store, ingested, stop_after=None) -> None:
        self.toy, self.scheduler, self.store, self.queue = toy, scheduler, store, ingested
        self.acting, self.info, self.status = toy.policy(), None, {}
        self.generator = torch.Generator().manual_seed(0)
        self.names = random.Random(0)
        self.phases, self.over, self.played, self.stop_after = [], "", 0, stop_after
        self.stop = Event()

    def check(self) -> None:
        played = [self.play(lease) for lease in self.scheduler.grant("w", 8)]
        if played:
            self.store.add_many([(trajectory, self.toy.pixels) for trajectory in played])
        for trajectory in played:
            self.scheduler.finish(trajectory)
            self.queue.put_nowait(trajectory)
            self.played += trajectory.purpose is Purpose.TRAIN
        if self.stop_after is not None and self.played >= self.stop_after:
            self.stop.set()

    def play(self, lease):
        number, steps = int(lease.task.id.rsplit("/", 1)[1]), []
        start = len(lease.branch.past) if lease.branch else 0
        horizon = lease.branch.horizon if lease.branch else 2
        for t in range(start, 2)[:horizon]:
            right = number
            digest = self.toy.digests[t]
            if lease.purpose is Purpose.DEMO:
                tokens, logprobs = (right,), (0.0,)
            else:
                image = self.acting.image(self.toy.pixels[digest])
                batch = self.acting.collate([[number]], [[image]])
                sampling = Sampling(temperature=lease.sampling.temperature)
                (generated,) = self.acting.generate(batch, [sampling], self.generator)
                tokens, logprobs = tuple(generated.token_ids), tuple(generated.logprobs)
            is_right = tokens[0] == right
            outcome = float(is_right and t == 1)
            version = self.info.version if self.info else 0
            steps.append(self.toy.step(number, tokens, logprobs, image=t, version=version, outcome=outcome))
            if not is_right:
                break
        ending = {}
        if lease.branch and is_right and t == 0:  # the horizon has cut it
            message = self.toy.step(number, (0,), (0.0,), image=1).chats[0].messages
            ending = {"truncated": True, "outcome": Outcome.UNJUDGED, "next_prompt": message}
        return self.toy.trajectory(
            f"{self.names.getrandbits(64):016x}",
            steps,
            branch=lease.branch,
            **ending,
            purpose=lease.purpose,
            lease_id=lease.id,
            group_id=lease.group_id,
            task=lease.task,
            success=sum(s.reward.outcome for s in steps),
        )

    def publish_weights(self, info, data) -> None:
        assert self.info is None or info.version > self.info.version
        self.info = info
        self.acting.load_published(weights_io.from_bytes(bytes(data)))

    def set_phase(self, phase) -> None:
        self.phases.append(phase)

    def peer_metrics(self) -> dict[str, float]:
        return {"workers/alive": 1.0}

    def takes_checkpoint(self) -> bool:
        return False

    def set_metrics(self, metrics) -> None:
        self.status = metrics

    def shutdown(self, reason) -> None:
        self.over = reason


def build(toy, path, incarnation="i1", stop_after=None, phase=None, world=None, **changes):
    """A learner of `learner` with `changes`, and of the section `world`."""
    config = Config.model_validate({"learner": {**OPTIONS, **changes}, "world": world or {}})
    torch.manual_seed(0)
    policy, critic = toy.policy(), toy.critic()
    store = TrajectoryStore(path / "store.sqlite3")
    tasks = [toy.task(i) for i in range(4)]
    validation = [toy.task(i, "val") for i in range(4)]
    scheduler = TaskScheduler(
        config.learner, tasks, validation, 0, incarnation, b"secret", world=config.world
    )
    images = ImageCache(policy.image, store.images)
    replay, ingested = make_replay(config), queue.Queue(64)
    if phase:
        scheduler.set_phase(phase)
    world = World(toy, scheduler, store, ingested, stop_after)
    algorithm = build_algorithm(config.learner)
    train_step = TrainStep(policy, critic, algorithm, config.learner)
    publisher = Publisher(policy, world, path / "version", config.learner.policy_lag)
    progress = Progress()
    clock = RunClock(progress, config.learner.max_minutes)
    writer = MetricsWriter(path / "metrics.jsonl")
    context = Context(
        config=config,
        server=world,
        store=store,
        scheduler=scheduler,
        replay=replay,
        ingest=Ingest(
            ingested, store, policy, images, replay, scheduler, lambda: publisher.version, config.learner
        ),
        batcher=Batcher(policy, images),
        train_step=train_step,
        publisher=publisher,
        checkpointer=Checkpointer(path / "checkpoints", train_step, config.learner.keep_checkpoints),
        report=Reporter(writer, world, progress, clock),
        rng=np.random.default_rng(0),
        progress=progress,
        clock=clock,
    )
    BUILT.append(Learner(context, world.stop))
    return BUILT[-1], world
