"""Masks and truncation against slow loops: what counts, its gradient, and what they add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from learning_world import build
from rank_world import make_batch

from distrl.configs.mismatch import MismatchConfig
from distrl.configs.schema import LearnerConfig
from distrl.core.metrics import read_metrics
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.outputs import Outputs
from distrl.learner.bounds import kept

CASES = [
    ("aride", {}),
    ("aride", {"ratio_level": "token", "policy_clip": 0.9}),
    ("gipo", {}),
    ("vtrace", {}),
    ("ppo", {}),
    ("ppo", {"ratio_level": "token", "decoupled": True, "epochs": 2}),
    ("grpo", {}),
    ("grpo", {"ratio_level": "action", "per": "trajectory"}),
]
LEVELS = ["token", "action", "trajectory"]


def algorithm(name: str, options: dict[str, object], **bound: object):
    config = {"algorithm": {"kind": name, **options}, "mismatch": bound}
    return build_algorithm(LearnerConfig.model_validate(config))


def outputs(batch, seed: int = 5) -> Outputs:
    """What networks might say; log-probabilities are leaves."""
    g = torch.Generator().manual_seed(seed)
    noise = 0.6 * torch.randn(batch.steps.behaviour_logprobs.shape, generator=g, dtype=torch.float64)
    logprobs = torch.where(batch.steps.token_mask, batch.steps.behaviour_logprobs + noise, 0.0)
    count = len(batch.steps)
    return Outputs(
        logprobs=logprobs.requires_grad_(),
        entropy=torch.ones_like(noise),
        values=torch.randn(count, generator=g, dtype=torch.float64),
        trajectory=torch.randn(count, generator=g, dtype=torch.float64),
        final=torch.rand(len(batch.final_row), generator=g, dtype=torch.float64),
    )


def gradient(one, batch, said: Outputs) -> torch.Tensor:
    said.logprobs.grad = None
    result = one.judge(batch, said)
    (found,) = torch.autograd.grad(result.policy_loss, said.logprobs, retain_graph=True)
    return found


def slow_kept(batch, logprobs, level: str, lowest: float, highest: float) -> np.ndarray:
    """[N, L], token by token."""
    mask, mu = batch.steps.token_mask.numpy(), batch.steps.behaviour_logprobs.numpy()
    pi, found = logprobs.detach().numpy(), np.zeros(mask.shape, dtype=bool)
    for n in range(len(mask)):
        for place in range(mask.shape[1]):
            if level == "token":
                ratio = math.exp(pi[n, place] - mu[n, place])
            elif level == "action":
                ratio = math.exp(sum(pi[n, i] - mu[n, i] for i in range(mask.shape[1]) if mask[n, i]))
            else:
                logs = [
                    pi[m, i] - mu[m, i]
                    for m in range(len(mask))
                    for i in range(mask.shape[1])
                    if batch.row[m] == batch.row[n] and mask[m, i]
                ]
                ratio = math.exp(sum(logs) / len(logs))
            found[n, place] = lowest <= ratio <= highest
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_kept_is_what_a_slow_loop_keeps(level) -> None:
    batch = make_batch()
    said, mask = outputs(batch), batch.steps.token_mask
    config = MismatchConfig(bound="mask", level=level, min_ratio=0.8, max_ratio=1.3)
    expected = slow_kept(batch, said.logprobs, level, 0.8, 1.3)
    found = kept(config, batch, said.logprobs, "token")
    assert np.array_equal((found & mask).numpy(), expected & mask.numpy())
    assert 0 < (found & mask).sum() < mask.sum(), "nothing to see"
    if level != "token":
        assert np.array_equal(kept(config, batch, said.logprobs, "action").numpy(), expected[:, 0])


def weighs_tokens(name: str, options: dict[str, object]) -> bool:
    return options.get("ratio_level", "token" if name in ("gipo", "grpo") else "action") == "token"


@pytest.mark.parametrize(
    ("name", "options", "level"),
    [(*case, level) for case in CASES for level in LEVELS if level != "token" or weighs_tokens(*case)],
)
def test_a_mask_takes_gradients_away_and_changes_no_other(name, options, level) -> None:
    is_token_level = weighs_tokens(name, options)
    options = {**options, "entropy": 0.0}
    batch = make_batch()
    said = outputs(batch)
    if options.get("decoupled"):
        batch.steps.proximal_logprobs = outputs(batch, seed=9).logprobs.detach()
    proximal = said.logprobs if batch.steps.proximal_logprobs is None else batch.steps.proximal_logprobs
    masked = algorithm(name, options, bound="mask", level=level, min_ratio=0.8, max_ratio=1.3)
    found, free = gradient(masked, batch, said), gradient(algorithm(name, options), batch, said)
    expected = torch.from_numpy(slow_kept(batch, proximal, level, 0.8, 1.3))
    torch.testing.assert_close(found, torch.where(expected, free, 0.0))
    assert not torch.equal(found, free)
    units = batch.steps.token_mask if is_token_level else torch.ones(len(batch.steps), 1, dtype=torch.bool)
    share = float((~expected[:, : units.shape[1]] & units).sum() / units.sum())
    metrics = masked.judge(batch, said).metrics
    assert metrics["off_policy/masked_fraction"] == pytest.approx(share)


def test_the_mask_of_a_batch_stays_while_its_steps_change_the_policy() -> None:
    batch = make_batch()
    one = algorithm("ppo", {"epochs": 2}, bound="mask")
    assert one.takes_notes
    said = outputs(batch)
    one.note(batch, said)
    before = gradient(one, batch, said) == 0
    later = outputs(batch, seed=11)
    config = MismatchConfig(bound="mask")
    assert torch.equal(
        kept(config, batch, batch.steps.proximal_logprobs, "action"),
        kept(config, batch, said.logprobs, "action"),
    )
    dropped = ~kept(config, batch, said.logprobs, "action")
    assert dropped.any()
    assert (gradient(one, batch, later)[dropped] == 0).all()
    assert before[dropped].all()


WIDE = {"clip": 0.99, "clip_high": 1e6, "entropy": 0.0, "invalid": 0.0}  # a clip that never holds


@pytest.mark.parametrize("level", ["token", "action"])
@pytest.mark.parametrize("name", ["ppo", "grpo"])
def test_truncation_caps_the_weight_of_one_step(name, level) -> None:
    """Plain: ∇L = −r A ∇log π / N, where r = π/μ is not clipped. Truncated: min(r, C) in the place of r."""
    batch = make_batch()
    batch.steps.behaviour_logprobs = batch.steps.behaviour_logprobs.clamp(min=-2.2)
    said = outputs(batch)
    options = {**WIDE, "ratio_level": level}
    found = gradient(algorithm(name, options, bound="truncate", max_ratio=1.2), batch, said)
    free = gradient(algorithm(name, options), batch, said)
    mask, expected = batch.steps.token_mask, torch.zeros_like(free)
    log_ratio = said.logprobs.detach() - batch.steps.behaviour_logprobs
    for n in range(len(mask)):
        logs = [float(log_ratio[n, i]) for i in range(3)]
        for place in range(3):
            if mask[n, place]:
                over = [logs[i] for i in range(3) if mask[n, i]] if level == "action" else [logs[place]]
                r = math.exp(sum(over))
                expected[n, place] = free[n, place] * min(r, 1.2) / r
    low = free == 0  # where even this wide clip holds, at ratios below 0.01
    torch.testing.assert_close(found[~low], expected[~low])
    assert (found.abs() < free.abs() - 1e-9).any(), "nothing to see"


@pytest.mark.parametrize("level", ["token", "action"])
@pytest.mark.parametrize("name", ["ppo", "grpo"])
def test_truncation_of_several_steps_is_decoupling_with_its_cap(name, level) -> None:
    batch = make_batch()
    batch.steps.proximal_logprobs = outputs(batch, seed=9).logprobs.detach()
    said = outputs(batch)
    options = {"epochs": 2, "ratio_level": level}
    truncated = algorithm(name, options, bound="truncate", max_ratio=1.2)
    decoupled = algorithm(name, {**options, "decoupled": True, "rho_max": 1.2, "invalid": 0.0})
    truncated.config.invalid = 0.0
    assert truncated.takes_notes
    one, other = truncated.judge(batch, said), decoupled.judge(batch, said)
    assert float(one.policy_loss.detach()) == pytest.approx(float(other.policy_loss.detach()))
    torch.testing.assert_close(gradient(truncated, batch, said), gradient(decoupled, batch, said))
    assert one.metrics["off_policy/capped_fraction"] == other.metrics["off_policy/capped_fraction"] > 0


def test_actions_can_be_truncated_where_tokens_are_clipped() -> None:
    batch = make_batch()
    said = outputs(batch)
    one = algorithm("grpo", WIDE, bound="truncate", level="action", max_ratio=1.2)
    free = gradient(algorithm("grpo", WIDE), batch, said)
    found, mask = gradient(one, batch, said), batch.steps.token_mask
    log_ratio = torch.where(mask, said.logprobs.detach() - batch.steps.behaviour_logprobs, 0.0)
    weight = log_ratio.sum(dim=1).exp().clamp(max=1.2)[:, None]
    torch.testing.assert_close(found, free * weight / log_ratio.exp())


def test_without_a_bound_everything_is_as_ever() -> None:
    batch = make_batch()
    said = outputs(batch)
    result = algorithm("grpo", {}).judge(batch, said)
    assert "off_policy/masked_fraction" not in result.metrics
    assert "off_policy/capped_fraction" not in result.metrics
    assert not algorithm("grpo", {"epochs": 2}).takes_notes


@pytest.mark.parametrize(
    ("name", "options", "bound"),
    [
        ("aride", {}, {"bound": "mask", "max_ratio": 1.05, "min_ratio": 0.95}),
        ("ppo", {"epochs": 2, "minibatches": 2}, {"bound": "truncate", "max_ratio": 1.05}),
    ],
)
def test_a_run_is_bounded_by_its_configuration(toy, tmp_path, name, options, bound) -> None:
    learner, _ = build(toy, tmp_path, episodes=60, algorithm={"kind": name, **options}, mismatch=bound)
    learner.run()
    rows = list(read_metrics(tmp_path / "metrics.jsonl"))
    metric = f"off_policy/{'masked' if bound['bound'] == 'mask' else 'capped'}_fraction"
    shares = [row[metric] for row in rows if metric in row]
    assert len(shares) == 30
    assert 0.0 < sum(shares) < 30.0
