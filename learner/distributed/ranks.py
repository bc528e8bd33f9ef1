"""Puts the ranks of a learner together: what all of them build, and what rank 0 has besides."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from distrl.configs.algorithms import ArideConfig
from distrl.configs.ranks import RanksConfig
from distrl.configs.schema import Config
from distrl.core.policies import build_critic, build_policy, resolve_device
from distrl.core.policies.points import check_agent_points
from distrl.learner.algorithms import build_algorithm
from distrl.learner.distributed.launch import local_ranks
from distrl.learner.distributed.link import Place, open_job
from distrl.learner.distributed.team import RankTeam, Watch, follow, unwatched
from distrl.learner.distributed.zero import ZeroPolicy
from distrl.learner.engine import Engine
from distrl.learner.trainer import Trainer

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def other_ranks(
    config: RanksConfig, command: Sequence[str], logs: Path
) -> Iterator[tuple[Place | None, Watch]]:
    """Rank 0's place, and who watches the others; these are started here unless a launcher did.

    Args:
        command: Of `distrl`, which makes another process a rank.
        logs: Where ranks that are started here have their logs.
    """
    place = Place.given()
    if place is not None:
        yield place, unwatched
    elif config.num_processes > 1:
        with local_ranks(command, config.num_processes, logs) as ranks:
            yield ranks.place, ranks.watch
    elif config.engine == "deepspeed":  # which wants a job even of one
        with tempfile.TemporaryDirectory(prefix="distrl-ranks-") as folder:
            yield Place(0, 1, 0, f"file://{Path(folder) / 'meeting'}"), unwatched
    else:
        yield None, unwatched


@contextlib.contextmanager
def open_trainer(config: Config, words: Sequence[str], place: Place | None) -> Iterator[Trainer]:
    """The networks of one rank, which has met the others; without a place, of a single process.

    Raises:
        RankError: The ranks did not meet.
        PolicyError: The policy cannot be built.
        ConfigError: The agent's points lie elsewhere than the model sees them.
    """
    with contextlib.ExitStack() as stack:
        if place is not None:
            stack.enter_context(open_job(place, config.learner.rank_timeout_s))
        learner = config.learner
        own = config.policy.model_copy(update={"device": learner.device})  # of weights, and of dtype "auto"
        policy = build_policy(own, words, config.seed)
        check_agent_points(config.agent, policy)
        policy.to(resolve_device(learner.device))
        has_q = isinstance(learner.algorithm, ArideConfig) and learner.algorithm.critic == "q"
        critic = build_critic(policy, config.seed, has_q, config.policy.critic)
        zero = ZeroPolicy(policy, learner) if learner.engine == "deepspeed" else None
        yield Trainer(policy, critic, build_algorithm(learner), learner, zero)


@contextlib.contextmanager
def open_engine(config: Config, trainer: Trainer, place: Place | None, watch: Watch) -> Iterator[Engine]:
    """Rank 0's engine; when all went well the other ranks are told to end."""
    if place is None or place.size == 1:
        team = None
    else:
        team = RankTeam(trainer, place.size, config.learner.rank_timeout_s, watch)
        team.equalise()
        _log.info("a learner of %d ranks", place.size)
    engine = Engine(trainer.policy, trainer.critic, trainer.algorithm, config.learner, team or trainer)
    yield engine
    if team is not None:
        team.stop()


def follow_learner(config: Config, words: Sequence[str], place: Place) -> None:
    """Another rank than 0: does what rank 0 says, until the end.

    Raises:
        RankError: Rank 0 is gone.
    """
    torch.set_num_threads(config.learner.threads)
    torch.manual_seed(config.seed + place.rank)
    with open_trainer(config, words, place) as trainer:
        _log.info("rank %d of %d, process %d", place.rank, place.size, os.getpid())
        follow(trainer)
