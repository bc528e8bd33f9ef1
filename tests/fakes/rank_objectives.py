"""Every objective on the shares of a batch, by one rank each; run by tests/learner/test_ranks.py."""

from __future__ import annotations

from typing import Any

import torch
from linear_policy import LinearCritic, LinearPolicy, LinearQCritic
from rank_world import join, make_batch
from whole_batch import critic_loss, evaluate, prepare

from distrl.configs.learner import LearnerConfig
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.bc import cloning_loss

CASES: list[tuple[str, dict[str, Any]]] = [
    ("aride", {"entropy": 0.2, "invalid": 0.3, "rho_max": 1.1}),
    ("aride", {"ratio_level": "token", "returns": "gae", "entropy_by_failure": True}),
    ("ppo", {"clip": 0.05, "entropy": 0.2}),
    ("ppo", {"decoupled": True, "epochs": 2, "ratio_level": "token"}),
    ("gipo", {}),
    ("grpo", {}),
    ("grpo", {"per": "trajectory", "entropy": 0.1}),
    ("grpo", {"decoupled": True, "minibatches": 2}),
    ("vtrace", {"rho_bar": 0.9}),
    ("digirl", {"top_fraction": 0.5, "step_threshold": -0.3}),
    ("bc", {"entropy": 0.3, "invalid": 0.2}),
    ("filtered-bc", {"entropy": 0.1}),
]
SHARES = {2: ([0, 4], [1, 2, 3, 5]), 3: ([5], [1, 0, 3], [2, 4])}


def _networks() -> tuple[LinearPolicy, LinearCritic]:
    torch.manual_seed(3)
    policy, critic = LinearPolicy().double(), LinearQCritic().double()
    torch.nn.init.normal_(policy.head.weight, std=0.5)
    return policy, critic


def _numbers(name: str, options: dict[str, Any], rows: list[int] | None) -> torch.Tensor:
    """[·] Both losses and all their gradients, and those of the critic's warm-up; of a share, or of all."""
    config = LearnerConfig.model_validate({"algorithm": {"kind": name, **options}})
    algorithm, (policy, critic) = build_algorithm(config), _networks()
    batch = make_batch() if rows is None else make_batch().share(torch.tensor(rows))
    prepare(algorithm, policy, critic, batch)
    with torch.no_grad():  # so that the policy is not the proximal one
        policy.head.weight.add_(0.3 * torch.sin(torch.arange(64.0).view(8, 8)))
    result = evaluate(algorithm, policy, critic, batch)
    losses = [result.policy_loss]
    if result.critic_loss is not None:
        losses += [result.critic_loss, critic_loss(algorithm, policy, critic, batch)]
    for loss in losses:
        loss.backward()
    parameters = [*policy.parameters(), *critic.parameters()]
    gradients = [p.grad.flatten() for p in parameters if p.grad is not None]
    return torch.cat([torch.stack([loss.detach() for loss in losses]), *gradients])


def add_up(rank: int, size: int, file: str) -> None:
    """The numbers of all shares add up to those of the whole batch."""
    wholes = [_numbers(name, options, None) for name, options in CASES]
    steps = make_batch().steps
    cloning = cloning_loss(_networks()[0], steps).detach()
    join(rank, size, file)
    for (name, options), whole in zip(CASES, wholes, strict=True):
        total = _numbers(name, options, SHARES[size][rank])
        torch.distributed.all_reduce(total)
        torch.testing.assert_close(total, whole, rtol=1e-9, atol=1e-12, msg=f"{name} {options}")
        assert float(whole.abs().sum()) > 1e-2
    mine = torch.arange(rank, len(steps), size)
    part = cloning_loss(_networks()[0], steps[mine], len(steps)).detach()
    torch.distributed.all_reduce(part)
    torch.testing.assert_close(part, cloning)
    torch.distributed.destroy_process_group()
