"""Passes in parts that memory has room for: the same numbers, and no pass with more tokens than allowed."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from linear_policy import LinearCritic, LinearPolicy, LinearQCritic
from rank_objectives import CASES
from rank_world import make_batch

from distrl.configs.schema import LearnerConfig
from distrl.core.policies.base import Generated
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import pack, trimmed
from distrl.learner.train_step import TrainStep


class Watched(LinearPolicy):
    """Notes how many tokens each pass has; draws what is most probable."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[int] = []

    def score(self, batch, completions, mask, temperature):
        self.tokens.append(len(batch) * (batch.input_ids.shape[1] + completions.shape[1]))
        return super().score(batch, completions, mask, temperature)

    def states(self, batch):
        self.tokens.append(batch.input_ids.numel())
        return super().states(batch)

    def generate(self, batch, sampling, generator=None):
        greedy = self.head(torch.ones(8, dtype=self.head.weight.dtype)).argmax()
        return [Generated([int(greedy)], [0.0]) for _ in sampling]


def engine_of(name, options, **config):
    config = LearnerConfig.model_validate(
        {"algorithm": {"kind": name, **options}, "optim": {"lr": 0.01}, **config}
    )
    torch.manual_seed(3)
    policy, critic = Watched().double(), LinearQCritic().double()
    torch.nn.init.normal_(policy.head.weight, std=0.5)
    return TrainStep(policy, critic, build_algorithm(config), config)


def weights(engine):
    return [p.detach().clone() for net in (engine.policy, engine.critic) for p in net.parameters()]


Q = ("aride", {"critic": "q", "q_samples": 2})


@pytest.mark.parametrize(("name", "options"), [*CASES, Q], ids=str)
@pytest.mark.parametrize("limit", [12, 1])
def test_an_update_in_parts_is_the_update(name, options, limit) -> None:
    whole, parts = engine_of(name, options), engine_of(name, options, micro_batch_tokens=limit)
    for seed in range(2):
        results = []
        for engine in (whole, parts):
            torch.manual_seed(7)  # of the minibatches
            results.append(engine.update(make_batch(seed=seed)))
        one, other = results
        assert other.metrics == pytest.approx(one.metrics, rel=1e-6, abs=1e-9)
        torch.testing.assert_close(other.priorities, one.priorities)
    for a, b in zip(weights(whole), weights(parts), strict=True):
        torch.testing.assert_close(a, b)
    longest = 4  # a prompt of one token and an action of three, which a part may have at any limit
    assert max(parts.policy.tokens) <= max(limit, longest) < max(whole.policy.tokens)


@pytest.mark.parametrize("name", ["ppo", "digirl"])
def test_so_are_the_other_passes(name) -> None:
    whole, parts = engine_of(name, {}), engine_of(name, {}, micro_batch_tokens=9)
    assert parts.fit_critic(make_batch()) == pytest.approx(whole.fit_critic(make_batch()))
    assert parts.clone(make_batch().steps) == pytest.approx(whole.clone(make_batch().steps))
    assert parts.measure(make_batch()).metrics == pytest.approx(whole.measure(make_batch()).metrics)
    torch.testing.assert_close(parts.values(make_batch()).taken, whole.values(make_batch()).taken)
    for a, b in zip(weights(whole), weights(parts), strict=True):
        torch.testing.assert_close(a, b)


def test_a_pass_of_a_batch_that_fits_is_made_once() -> None:
    engine = engine_of("gipo", {}, micro_batch_tokens=1000)
    engine.update(make_batch())
    assert len(engine.policy.tokens) == 3, "the actions, their states, and those after a cut"


def test_parts_hold_steps_of_about_the_same_length_and_stay_below_the_limit() -> None:
    steps = make_batch((40,)).steps
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (40,), generator=g)
    steps.prompts.input_ids = torch.zeros(40, 30, dtype=torch.int64)
    steps.prompts.attention_mask = (torch.arange(30) < lengths[:, None]).long()  # padded on the right
    parts = pack(steps, 64)
    assert sorted(torch.cat(parts).tolist()) == list(range(40))
    sizes = []
    for at in parts:
        part = trimmed(steps[at])
        sizes.append(len(at) * (part.prompts.input_ids.shape[1] + part.completions.shape[1]))
        assert part.prompts.input_ids.shape[1] == int(lengths[at].max())
    assert max(sizes) <= 64
    real = int(lengths.sum() + steps.token_mask.sum())
    assert sum(sizes) < 1.3 * real, "little is padding"
    assert [at.tolist() for at in pack(steps, None)] == [list(range(40))]


def test_padding_on_the_left_goes_too() -> None:
    steps = make_batch((2,)).steps
    steps.prompts.input_ids = torch.tensor([[0, 0, 5], [0, 6, 7]])
    steps.prompts.attention_mask = torch.tensor([[0, 0, 1], [0, 1, 1]])
    assert steps[torch.tensor([0, 1])].prompts.input_ids.tolist() == [[0, 5], [6, 7]]
    assert trimmed(steps[torch.tensor([0])]).prompts.input_ids.tolist() == [[5]]


def test_steps_of_one_sequence_stay_together() -> None:
    steps = make_batch((4,)).steps
    steps.prompts.token_rows = torch.tensor([[0], [1], [0], [1]]).expand(4, 3)
    steps.prompts.attention_mask = torch.ones(2, 10, dtype=torch.int64)
    assert [at.tolist() for at in pack(steps, 10)] == [[0, 2], [1, 3]]
    assert len(pack(steps, 20)) == 1
    steps.prompts.token_rows = torch.tensor(
        [[0, 0, 0], [1, 1, 1], [1, 2, 2], [3, 3, 3]]
    )  # two answers in one step
    steps.prompts.attention_mask = torch.ones(4, 10, dtype=torch.int64)
    assert [at.tolist() for at in pack(steps, 20)] == [[0], [1, 2], [3]]


def test_a_critic_that_nothing_asks_is_left_alone() -> None:
    engine = engine_of("grpo", {}, micro_batch_tokens=8)
    before = copy.deepcopy(engine.critic.state_dict())
    engine.update(make_batch())
    assert all(torch.equal(before[name], value) for name, value in engine.critic.state_dict().items())
    assert isinstance(engine.critic, LinearCritic)
