"""Updates by several ranks against one process; run by tests/learner/test_distributed.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from linear_policy import LinearPolicy, LinearQCritic
from rank_world import join, make_batch

from distrl.configs.learner import LearnerConfig
from distrl.learner.algorithms import build_algorithm
from distrl.learner.distributed import RankGroup, follow
from distrl.learner.ranks import Watch, unwatched
from distrl.learner.train_step import TrainStep

CASES: list[tuple[str, dict[str, Any]]] = [
    ("aride", {"entropy": 0.2, "invalid": 0.3, "rho_max": 1.1}),
    ("aride", {"ratio_level": "token", "returns": "gae", "entropy_by_failure": True}),
    ("ppo", {"clip": 0.05, "entropy": 0.2}),
    ("ppo", {"decoupled": True, "epochs": 2, "ratio_level": "token"}),
    ("gipo", {}),
    ("grpo", {}),
    ("grpo", {"per": "trajectory", "entropy": 0.1}),
    ("grpo", {"decoupled": True, "minibatches": 2}),
    ("grpo", {"ratio_level": "sequence", "per": "trajectory", "clip": 0.02}),
    ("grpo", {"per": "token", "kl": 0.3}),
    ("vtrace", {"rho_bar": 0.9}),
    ("digirl", {"top_fraction": 0.5, "step_threshold": -0.3}),
    ("bc", {"entropy": 0.3, "invalid": 0.2}),
    ("filtered-bc", {"entropy": 0.1}),
]
IN_PARTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("gipo", {}, {"micro_batch_tokens": 12, "value_recompute": False}),
    ("grpo", {"ratio_level": "sequence"}, {"micro_batch_tokens": 12}),
]
"""Of a rank's share there may be more parts than of another's."""


class Adapted(LinearPolicy):
    """Its weights count as an adapter to a base model whose weights are 0."""

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        own = self.head.weight.data
        self.head.weight.data = torch.zeros_like(own)
        yield
        self.head.weight.data = own


def train_step_of(
    name: str,
    options: dict[str, Any],
    learner: dict[str, Any] | None = None,
    num_ranks: int = 1,
    watch: Watch = unwatched,
) -> TrainStep:
    """The same weights every time; with several ranks, rank 0's group."""
    config = LearnerConfig.model_validate(
        {
            "algorithm": {"kind": name, **options},
            "optim": {"lr": 0.01},
            "demonstrations": {"rehearsal": 0.4},
            **(learner or {}),
        }
    )
    torch.manual_seed(3)
    policy, critic = Adapted().double(), LinearQCritic().double()
    torch.nn.init.normal_(policy.head.weight, std=0.5)
    parts = (policy, critic, build_algorithm(config), config)
    if num_ranks == 1:
        return TrainStep(*parts)
    group = RankGroup(*parts, num_ranks=num_ranks, watch=watch)
    group.load_optimisers({})
    return group


def numbers(train_step: TrainStep) -> list[Any]:
    """What a few updates of all kinds come to: metrics, priorities, and weights in the end."""
    found: list[Any] = [train_step.clone(make_batch().steps)]
    if train_step.algorithm.has_critic:
        found += [train_step.fit_critic(make_batch()), train_step.values(make_batch())]
    for seed, lengths in enumerate([(2, 1, 3, 1, 4, 2), (3,), (1, 2)]):  # fewer trajectories than ranks, too
        torch.manual_seed(7)  # of the minibatches
        batch = make_batch(lengths, seed=seed)
        batch.old_values, batch.old_bootstrap = 0.2 + 0.3 * batch.invalid, 0.5 * batch.success
        batch.demonstrated = None if seed == 1 else make_batch((2, 1), seed=9).steps
        result = train_step.update(batch)
        assert result is not None
        found += [result.metrics, result.priorities]
    found.append(train_step.clone(make_batch(seed=4).steps))  # without the moments of before the updates
    batch = make_batch()
    batch.old_values, batch.old_bootstrap = 0.2 + 0.3 * batch.invalid, 0.5 * batch.success
    found.append(train_step.measure(batch).metrics)
    others = {name: tensor + 0.1 for name, tensor in train_step.policy.published_state().items()}
    found += [train_step.logprobs(make_batch().steps, others), train_step.logprobs(make_batch().steps)]
    networks = (train_step.policy, train_step.critic)
    return [*found, *(p.detach().clone() for network in networks for p in network.parameters())]


def compare(rank: int, size: int, file: str) -> None:
    """Every objective, by several ranks, gives what it gives by one; other ranks begin with other weights."""
    cases = [*((*case, {}) for case in CASES), *IN_PARTS]
    alone = [numbers(train_step_of(*case)) for case in cases]
    ppo = CASES[2]
    weights = _update_after_a_bad_one(train_step_of(*ppo))
    join(rank, size, file)
    for case, expected in zip(cases, alone, strict=True):
        if rank > 0:
            train_step = train_step_of(*case)
            torch.nn.init.normal_(train_step.policy.head.weight)
            follow(train_step)
            continue
        group = train_step_of(*case, num_ranks=size)
        for one, other in zip(expected, numbers(group), strict=True):
            torch.testing.assert_close(
                other, one, rtol=1e-7, atol=1e-9, msg=lambda m, case=case: f"{case} {m}"
            )
        group.stop()
    if rank > 0:
        follow(train_step_of(*ppo))
    else:
        group = train_step_of(*ppo, num_ranks=size)
        torch.testing.assert_close(_update_after_a_bad_one(group), weights, rtol=1e-7, atol=1e-9)
        group.stop()
    torch.distributed.destroy_process_group()


def _update_after_a_bad_one(train_step: TrainStep) -> list[torch.Tensor]:
    """The policy's weights after a batch that is not finite in one trajectory, and a good one."""
    bad = make_batch((2, 2))
    bad.outcome[1, 0] = float("inf")
    before = [p.detach().clone() for p in train_step.policy.parameters()]
    assert train_step.update(bad) is None
    assert all(torch.equal(a, b) for a, b in zip(before, train_step.policy.parameters(), strict=True))
    torch.manual_seed(7)
    assert train_step.update(make_batch()) is not None
    return [p.detach() for p in train_step.policy.parameters()]
