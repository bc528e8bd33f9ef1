"""Sampled tokens and their log-probabilities."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from distrl.core.policies.sampling import MASKED, choose, token_log_probs, truncate
from distrl.core.types import Sampling


def test_log_probs_are_a_masked_softmax_at_each_rows_temperature() -> None:
    logits = torch.randn(2, 5)
    allowed = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]]).bool()
    found = token_log_probs(logits, allowed, torch.tensor([0.5, 2.0]))
    for row, temperature in enumerate((0.5, 2.0)):
        weights = np.exp(logits[row].double().numpy() / temperature) * allowed[row].numpy()
        expected = weights / weights.sum()
        np.testing.assert_allclose(found[row].exp().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(top_k=2), [0, 1]),
        (Sampling(top_p=0.5), [0]),
        (Sampling(top_p=0.6), [0, 1]),
        (Sampling(top_p=0.01), [0]),
        (Sampling(top_p=0.95, top_k=3), [0, 1, 2]),
        (Sampling(), [0, 1, 2, 3]),
    ],
)
def test_truncation_keeps_the_head_and_renormalises(sampling: Sampling, kept: list[int]) -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.15, 0.1])
    found = truncate(probabilities.log()[None], [sampling])[0].exp()
    expected = torch.zeros(4)
    expected[kept] = probabilities[kept] / probabilities[kept].sum()
    torch.testing.assert_close(found, expected)


def test_greedy_takes_the_mode_and_reports_the_untruncated_log_probability() -> None:
    log_probs = torch.tensor([[0.2, 0.5, 0.3]]).log()
    tokens, chosen = choose(log_probs, [Sampling(temperature=0.0, top_k=1)], None)
    assert tokens.tolist() == [1]
    torch.testing.assert_close(chosen, torch.tensor([0.5]).log())


def test_sampling_follows_the_distribution_and_never_takes_a_masked_token() -> None:
    log_probs = torch.tensor([0.2, 0.0, 0.8]).log().clamp(min=MASKED).repeat(20_000, 1)
    tokens, _ = choose(log_probs, [Sampling()] * 20_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(tokens, minlength=3) / 20_000
    assert counts[1] == 0
    assert abs(float(counts[2]) - 0.8) < 0.02
