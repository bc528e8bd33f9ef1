"""Engines of several ranks against one process; run by tests/learner/distributed."""

from __future__ import annotations

from typing import Any

import torch
from linear_policy import LinearPolicy, LinearQCritic
from rank_objectives import CASES
from rank_world import join, make_batch

from distrl.configs.schema import LearnerConfig
from distrl.learner.algorithms import build_algorithm
from distrl.learner.distributed.team import RankTeam, follow
from distrl.learner.engine import Engine
from distrl.learner.trainer import Trainer

TIMEOUT_S = 120.0


def trainer_of(name: str, options: dict[str, Any], **config: Any) -> tuple[Trainer, LearnerConfig]:
    """The same weights every time."""
    loaded = LearnerConfig.model_validate(
        {"algorithm": {"kind": name, **options}, "optim": {"lr": 0.01}, **config}
    )
    torch.manual_seed(3)
    policy, critic = LinearPolicy().double(), LinearQCritic().double()
    torch.nn.init.normal_(policy.head.weight, std=0.5)
    return Trainer(policy, critic, build_algorithm(loaded), loaded), loaded


def numbers(engine: Engine) -> list[Any]:
    """What a few updates of all kinds come to: metrics, priorities, and weights in the end."""
    found: list[Any] = [engine.clone(make_batch().steps)]
    if engine.algorithm.has_critic:
        found += [engine.fit_critic(make_batch()), engine.values(make_batch())]
    for seed, lengths in enumerate([(2, 1, 3, 1, 4, 2), (3,), (1, 2)]):  # fewer trajectories than ranks, too
        torch.manual_seed(7)  # of the minibatches
        result = engine.update(make_batch(lengths, seed=seed))
        found += [result.metrics, result.priorities]
    found.append(engine.measure(make_batch()).metrics)
    others = {name: tensor + 0.1 for name, tensor in engine.policy.published_state().items()}
    found += [engine.logprobs(make_batch().steps, others), engine.logprobs(make_batch().steps)]
    return [*found, *(p.detach().clone() for net in (engine.policy, engine.critic) for p in net.parameters())]


def compare(rank: int, size: int, file: str) -> None:
    """Every objective, by several ranks, gives what it gives by one; other ranks begin with other weights."""
    alone = [numbers(_engine(*trainer_of(*case))) for case in CASES]
    join(rank, size, file)
    for case, expected in zip(CASES, alone, strict=True):
        trainer, config = trainer_of(*case)
        if rank > 0:
            torch.nn.init.normal_(trainer.policy.head.weight)
            follow(trainer)
            continue
        team = RankTeam(trainer, size, TIMEOUT_S)
        team.equalise()
        engine = Engine(trainer.policy, trainer.critic, trainer.algorithm, config, team)
        for one, other in zip(expected, numbers(engine), strict=True):
            torch.testing.assert_close(
                _plain(other), _plain(one), rtol=1e-7, atol=1e-9, msg=lambda m, case=case: f"{case} {m}"
            )
        team.stop()
    torch.distributed.destroy_process_group()


def skip(rank: int, size: int, file: str) -> None:
    """A batch that is not finite in one rank's share changes no rank; the next one is learnt from."""
    case = next(case for case in CASES if case[0] == "ppo")
    bad = make_batch((2, 2))
    bad.outcome[1, 0] = float("inf")
    good = make_batch()
    alone = _engine(*trainer_of(*case))
    assert alone.update(bad) is None
    torch.manual_seed(7)
    alone.update(good)
    join(rank, size, file)
    trainer, config = trainer_of(*case)
    if rank > 0:
        follow(trainer)
    else:
        team = RankTeam(trainer, size, TIMEOUT_S)
        team.equalise()
        engine = Engine(trainer.policy, trainer.critic, trainer.algorithm, config, team)
        before = [p.detach().clone() for p in trainer.policy.parameters()]
        assert engine.update(bad) is None
        assert all(torch.equal(a, b) for a, b in zip(before, trainer.policy.parameters(), strict=True))
        assert not trainer.state_dict()["actor"]["state"]
        torch.manual_seed(7)
        assert engine.update(good) is not None
        team.stop()
    for one, other in zip(alone.policy.parameters(), trainer.policy.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-7, atol=1e-9)
    torch.distributed.destroy_process_group()


def _engine(trainer: Trainer, config: LearnerConfig) -> Engine:
    return Engine(trainer.policy, trainer.critic, trainer.algorithm, config, trainer)


def _plain(value: Any) -> Any:
    return list(vars(value).values()) if hasattr(value, "bootstrap") else value
