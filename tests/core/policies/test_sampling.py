"""Sampled tokens and their log-probabilities."""

import numpy as np
import torch

from distrl.core.policies.sampling import MASKED, choose, score_tokens, token_log_probs, truncate
from distrl.core.types import Sampling


def test_log_probs_are_a_masked_softmax_at_each_rows_temperature() -> None:
    logits = torch.randn(2, 5)
    allowed = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]]).bool()
    found = token_log_probs(logits, allowed, torch.tensor([0.5, 2.0]))
    for row, temperature in enumerate((0.5, 2.0)):
        weights = np.exp(logits[row].double().numpy() / temperature) * allowed[row].numpy()
        expected = weights / weights.sum()
        np.testing.assert_allclose(found[row].exp().numpy(), expected, atol=1e-6)


def test_truncation_is_that_of_transformers() -> None:
    import transformers

    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        log_probs = (3 * torch.randn(1, 40, generator=generator)).log_softmax(-1)
        top_k = int(torch.randint(1, 45, (), generator=generator))
        top_p = float(torch.rand((), generator=generator).clamp(min=0.01))
        scores = transformers.TopKLogitsWarper(top_k)(None, log_probs)
        scores = transformers.TopPLogitsWarper(top_p)(None, scores)
        found = truncate(log_probs, [Sampling(top_k=top_k, top_p=top_p)])
        torch.testing.assert_close(found.exp(), scores.softmax(-1))


def test_greedy_takes_the_mode_and_reports_the_untruncated_log_probability() -> None:
    log_probs = torch.tensor([[0.2, 0.5, 0.3]]).log()
    tokens, chosen, _ = choose(log_probs, [Sampling(temperature=0.0, top_k=1)], None)
    assert tokens.tolist() == [1]
    torch.testing.assert_close(chosen, torch.tensor([0.5]).log())


def test_sampling_follows_the_distribution_and_never_takes_a_masked_token() -> None:
    log_probs = torch.tensor([0.2, 0.0, 0.8]).log().clamp(min=MASKED).repeat(20_000, 1)
    tokens, _, _ = choose(log_probs, [Sampling()] * 20_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(tokens, minlength=3) / 20_000
    assert counts[1] == 0
    assert abs(float(counts[2]) - 0.8) < 0.02


def test_no_temperature_makes_a_masked_token_probable_or_a_number_infinite() -> None:
    logits, allowed = torch.tensor([[-8.0, -9.0, 0.0]]).repeat(3, 1), torch.tensor([True, True, False])
    for temperature in (1e-46, 1e-38, 1e-31, 1e39):
        log_probs = token_log_probs(logits, allowed, torch.tensor([temperature] * 3))
        assert not log_probs[:, :2].isnan().any()
        tokens, chosen, _ = choose(log_probs, [Sampling(temperature=temperature)] * 3, None)
        assert (tokens < 2).all()
        assert (chosen > -20).all()


class Output(torch.nn.Linear):
    """An output layer that notes how many logits it makes at a time."""

    def __init__(self, d: int, num_tokens: int) -> None:
        super().__init__(d, num_tokens)
        self.sizes: list[int] = []

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        logits = super().forward(states)
        self.sizes.append(logits.numel())
        return logits


def test_statistics_in_pieces_are_those_of_all_logits_at_once() -> None:
    """Values, gradients, and how many logits there are at a time, also in the backward pass."""
    torch.manual_seed(0)
    layer, allowed = Output(4, 10), torch.tensor([True] * 9 + [False])
    tokens, temperature = torch.tensor([[0], [3], [8], [1], [2]]), torch.tensor([1.0, 0.5, 2.0, 1.0, 0.1])
    mask = torch.ones_like(tokens).bool()
    calls: list[object] = []
    layer.register_forward_hook(lambda *call: calls.append(call))
    results = []
    for max_logits in (1000, 20):
        torch.manual_seed(1)
        hidden = torch.randn(5, 4, requires_grad=True)
        layer.zero_grad()
        chosen, entropy = score_tokens(layer, hidden, tokens, mask, allowed, temperature, max_logits)
        (chosen.sum() + 0.3 * entropy.sum()).backward()
        results.append((chosen, entropy, hidden.grad, layer.weight.grad.clone()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    assert layer.sizes == [50, *[20, 20, 10] * 2] or layer.sizes == [50, 20, 20, 10, 10, 20, 20]
    assert len(calls) == 2, "a call gathers weights that are sharded: one for all pieces"
    expected = token_log_probs(layer(hidden), allowed, temperature)
    torch.testing.assert_close(results[1][0], expected.gather(1, tokens))
    with torch.no_grad():
        alone = score_tokens(layer, hidden, tokens, mask, allowed, temperature, 1)[1]
    torch.testing.assert_close(alone, results[0][1])
    nothing = score_tokens(layer, hidden[:0], tokens, ~mask, allowed, temperature)
    assert [part.tolist() for part in nothing] == [[[0.0]] * 5] * 2
