"""An update: minibatches, passes in parts that fit into memory, the learning rate."""

from __future__ import annotations

import math

import pytest
import torch
from linear_policy import LinearPolicy, LinearQCritic
from rank_updates import CASES, Adapted
from rank_world import make_batch

from distrl.configs.learner import LearnerConfig
from distrl.core.policies.base import Generated
from distrl.learner import losses, off_policy
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.aride import Aride
from distrl.learner.algorithms.base import Loss
from distrl.learner.algorithms.bc import cloning_loss
from distrl.learner.batching import pack, trimmed
from distrl.learner.off_policy import StepStats
from distrl.learner.optimisers import Optimiser
from distrl.learner.train_step import TrainStep, merge, minibatches


@pytest.fixture
def make(toy, policy):
    trajectories = [
        toy.trajectory("a", [toy.step(1, (1,), (-1.5,), image=k) for k in range(2)], truncated=True),
        toy.trajectory("b", [toy.step(2, (4, 5), (-2.5, -1.0), image=3, kind="invalid", invalid=-0.2)]),
        toy.trajectory("c", [toy.step(3, (5,), (-1.9,), image=k) for k in range(3)], truncated=True),
        toy.trajectory("d", [toy.step(4, (6,), (-2.2,), image=5, outcome=1.0)]),
    ]
    return lambda *rows: toy.batch(policy, *(trajectories[row] for row in rows))


def test_every_epoch_sees_every_trajectory_once(make) -> None:
    batch = make(0, 1, 2, 3)
    torch.manual_seed(0)
    parts = list(minibatches(batch, epochs=2, parts=3))
    assert [len(rows) for rows, _ in parts] == [2, 1, 1, 2, 1, 1]
    for epoch in (parts[:3], parts[3:]):
        assert sorted(torch.cat([rows for rows, _ in epoch]).tolist()) == [0, 1, 2, 3]
    assert [len(part.ids) for _, part in minibatches(make(1), 1, 4)] == [1]
    assert [(rows, part is batch) for rows, part in minibatches(batch, 2, 1)] == [(None, True)] * 2


def said(rows, lengths, ratio, level="action", **metrics: float) -> tuple[torch.Tensor, Loss]:
    """A pass over trajectories `rows` of these lengths, one token a step, of one ratio, capped at 2."""
    row = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(lengths))
    mask = torch.ones(len(row), 1, dtype=torch.bool)
    ratios = losses.importance_ratios(torch.full((len(row), 1), math.log(ratio)), 0.0 * mask, mask)
    steps = StepStats.of(row, ratios, mask, level, {"clipped_fraction": ratios.at(level) > 2.0})
    priorities = torch.full((len(rows), 3), ratio)
    metrics = {**metrics, **off_policy.metrics(steps)}
    return torch.tensor(rows), Loss(torch.tensor(ratio), None, priorities, metrics, steps)


@pytest.mark.parametrize("level", ["action", "token"])
def test_what_several_steps_say_becomes_one(level) -> None:
    """Two epochs over trajectories of 1, 2 and 3 steps. 12 steps in all, of ratios 1 (4), 2 (2), 3 (5), 4."""
    merged = merge(
        [
            said([2, 0], [3, 1], 1.0, level, x=1.0, **{"batch/imagined": 0.0, "policy/grad_norm": 1.0}),
            said([1], [2], 2.0, level, x=2.0, **{"batch/imagined": 1.0, "policy/grad_norm": 2.0}),
            said([1, 2], [2, 3], 3.0, level, x=3.0, **{"batch/imagined": 0.5, "policy/grad_norm": 3.0}),
            said([0], [1], 4.0, level, x=4.0, **{"batch/imagined": 0.0, "policy/grad_norm": 8.0}),
        ],
        3,
    )
    assert merged.priorities[:, 0].tolist() == [4.0, 3.0, 3.0]
    assert float(merged.policy_loss) == 4.0
    found = merged.metrics
    assert found["x"] == pytest.approx((4 * 1 + 2 * 2 + 5 * 3 + 4) / 12), "by steps"
    assert found["batch/imagined"] == pytest.approx((2 * 0 + 1 * 1 + 2 * 0.5 + 0) / 6), "by trajectories"
    assert found["policy/grad_norm"] == pytest.approx((1 + 2 + 3 + 8) / 4), "by gradient steps"
    assert found["batch/steps"] == 6
    assert found["off_policy/ratio_max"] == pytest.approx(4.0)
    assert found["off_policy/ratio_mean"] == pytest.approx((4 * 1 + 2 * 2 + 5 * 3 + 4) / 12)
    assert found["off_policy/clipped_fraction"] == pytest.approx(6 / 12)
    assert found["off_policy/ess"] == pytest.approx(27**2 / (12 * (4 * 1 + 2 * 4 + 5 * 9 + 16)))
    assert merged.steps.row.tolist() == [2, 2, 2, 0, 1, 1, 1, 1, 2, 2, 2, 0]


def test_an_update_makes_all_steps_around_one_proximal_policy(make, policy, critic) -> None:
    options = {"decoupled": True, "epochs": 3, "minibatches": 2, "entropy": 0.0}
    config = LearnerConfig.model_validate({"algorithm": {"kind": "ppo", **options}, "optim": {"lr": 0.1}})
    algorithm = build_algorithm(config)
    engine, batch = TrainStep(policy, critic, algorithm, config), make(0, 1, 2, 3)
    steps = batch.steps
    with torch.no_grad():
        before = policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature).logprobs
    seen = []
    judge = algorithm.loss

    moments = []

    def spy(part, outputs):
        seen.append(part.steps.proximal_logprobs)
        moments.append(part.advantage_moments)
        return judge(part, outputs)

    algorithm.loss = spy
    result = engine.update(batch)
    assert torch.equal(batch.steps.proximal_logprobs, before)
    assert len(seen) == 6
    assert sorted(torch.cat(seen[:2]).flatten().tolist()) == pytest.approx(sorted(before.flatten().tolist()))
    assert moments == [batch.advantage_moments] * 6, "all are normalised alike, by the whole batch"
    assert result.priorities.shape == (4, 3)
    assert {"policy/grad_norm", "value/grad_norm", "off_policy/clipped_fraction"} <= set(result.metrics)
    assert int(engine.state_dict()["num_steps"]) == 1, "the learning rate counts batches"


class Watched(Adapted):
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


Q = ("aride", {"critic": "q"})


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


STORED = [
    ("ppo", {}),
    ("ppo", {"epochs": 2, "minibatches": 2, "decoupled": True, "returns": "mc"}),
    ("gipo", {"entropy_by_failure": True}),
    ("aride", {"returns": "gae", "entropy": 0.2}),
]
SEPARABLE = [case for case in CASES if engine_of(*case).algorithm.is_separable]


@pytest.mark.parametrize(
    ("name", "options", "learner"),
    [*((*case, {}) for case in SEPARABLE), *((*case, {"value_recompute": False}) for case in STORED)],
    ids=str,
)
@pytest.mark.parametrize("limit", [12, 1])
def test_a_separable_objective_takes_one_pass_with_the_gradients_of_two(
    name, options, learner, limit, monkeypatch
) -> None:
    """Parts of one step each too, which are less than a trajectory."""
    once, twice = (
        engine_of(name, options, micro_batch_tokens=limit, optim={"grad_clip": 1e9}, **learner)
        for _ in range(2)
    )
    assert once.algorithm.is_separable
    monkeypatch.setattr(
        type(twice.algorithm), "is_separable", property(lambda own: own is not twice.algorithm)
    )
    results, passes = [], []
    for engine in (once, twice):
        batch = make_batch()
        batch.old_values, batch.old_bootstrap = torch.rand(len(batch.row), generator=seeded()), batch.success
        torch.manual_seed(7)  # of the minibatches
        results.append(engine.update(batch))
        passes.append(len(engine.policy.tokens))
    assert results[0].metrics == pytest.approx(results[1].metrics, rel=1e-9, abs=1e-12)
    torch.testing.assert_close(results[0].priorities, results[1].priorities)
    for a, b in zip(gradients(once), gradients(twice), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert float(gradients(once)[0].abs().sum()) > 1e-3
    assert passes[0] < passes[1]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def gradients(engine):
    nets = (engine.policy, engine.critic) if engine.algorithm.has_critic else (engine.policy,)
    return [p.grad for net in nets for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("name", "options", "learner"),
    [
        ("ppo", {}, {}),
        ("aride", {}, {"value_recompute": False}),
        ("digirl", {}, {"value_recompute": False}),
        ("vtrace", {}, {"value_recompute": False}),
        ("grpo", {"ratio_level": "sequence", "per": "trajectory"}, {}),
    ],
    ids=str,
)
def test_an_objective_that_mixes_steps_is_not_separable(name, options, learner) -> None:
    assert not engine_of(name, options, **learner).algorithm.is_separable


def test_a_loss_that_is_not_finite_skips_a_batch_in_parts() -> None:
    engine, batch = engine_of("grpo", {}, micro_batch_tokens=12), make_batch()
    before = weights(engine)
    batch.outcome[1, 0] = float("inf")
    assert engine.update(batch) is None
    assert all(torch.equal(a, b) for a, b in zip(before, weights(engine), strict=True))


@pytest.mark.parametrize("name", ["ppo", "digirl"])
def test_so_are_the_other_passes(name) -> None:
    whole, parts = engine_of(name, {}), engine_of(name, {}, micro_batch_tokens=9)
    assert parts.fit_critic(make_batch()) == pytest.approx(whole.fit_critic(make_batch()))
    assert parts.clone(make_batch().steps) == pytest.approx(whole.clone(make_batch().steps))
    assert parts.measure(make_batch()).metrics == pytest.approx(whole.measure(make_batch()).metrics)
    torch.testing.assert_close(parts.values(make_batch()), whole.values(make_batch()))
    for a, b in zip(weights(whole), weights(parts), strict=True):
        torch.testing.assert_close(a, b)


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


@pytest.fixture
def make_step(toy):
    def build(**optim: float) -> TrainStep:
        config = LearnerConfig.model_validate({"optim": {"lr": 0.02, **optim}})
        torch.manual_seed(0)
        return TrainStep(toy.policy(), toy.critic(), Aride(config.algorithm, config), config)

    return build


@pytest.fixture
def two(toy, policy):
    won = toy.trajectory("won", [toy.step(1, (2,), (-1.0,), image=1, outcome=1.0)])
    lost = toy.trajectory("lost", [toy.step(2, (4,), (-2.0,), image=3)])
    return toy.batch(policy, won, lost)


def rates(engine, two, shares) -> list[float]:
    return [engine.update(two, share).metrics["policy/lr"] for share in shares]


def test_the_rate_falls_linearly_to_its_final_fraction_after_a_warm_up(make_step, two) -> None:
    engine = make_step(final_lr_fraction=0.1)
    assert rates(engine, two, [0.0, 0.5, 1.0, 1.2]) == pytest.approx([0.02, 0.011, 0.002, 0.002])
    engine = make_step(final_lr_fraction=0.5, warmup_updates=4)
    assert rates(engine, two, [0.0, 0.2, 0.4, 0.6, 0.8]) == pytest.approx(
        [0.02 * 0.25 * 1.0, 0.02 * 0.5 * 0.9, 0.02 * 0.75 * 0.8, 0.02 * 0.7, 0.02 * 0.6]
    )


def test_cloning_leaves_nothing_in_the_optimiser_of_what_comes_after(make_step, two) -> None:
    cloned, other = make_step(), make_step()
    cloned.clone(two.steps)
    other.policy.load_state_dict(cloned.policy.state_dict())
    for engine in (cloned, other):
        engine.update(two)
    assert torch.equal(cloned.policy.head.weight, other.policy.head.weight)


@pytest.mark.parametrize("limit", [None, 1])
def test_demonstrations_add_their_weighted_gradient_to_the_objective(limit) -> None:
    def gradient(rehearsal: float, with_demonstrations: bool) -> torch.Tensor:
        options = {"optim": {"grad_clip": 1e9}, "demonstrations": {"rehearsal": rehearsal}}
        config = LearnerConfig.model_validate({**options, "micro_batch_tokens": limit})
        torch.manual_seed(3)
        policy, critic = LinearPolicy().double(), LinearQCritic().double()
        torch.nn.init.normal_(policy.head.weight, std=0.5)
        engine, batch = TrainStep(policy, critic, build_algorithm(config), config), make_batch()
        batch.demonstrated = demonstrated if with_demonstrations else None
        if rehearsal == 0.0:  # cloning alone
            cloning_loss(policy, demonstrated, len(demonstrated)).backward()
        else:
            engine.step(batch, 0.0)
        return policy.head.weight.grad.clone()

    demonstrated = make_batch((2, 1, 1), seed=9).steps
    found = gradient(0.4, with_demonstrations=True) - gradient(0.4, with_demonstrations=False)
    torch.testing.assert_close(found, 0.4 * gradient(0.0, with_demonstrations=False))


def test_the_optimiser_steps_by_the_rate(make_step, two) -> None:
    engine = make_step(final_lr_fraction=0.1)
    before = engine.policy.head.weight.detach().clone()
    critic_before = engine.critic.value.bias.detach().clone()
    engine.update(two, 0.5)
    # AdamW's first step moves a parameter with a gradient by the learning rate, whatever the gradient's size.
    moved = (engine.policy.head.weight.detach() - before).abs().max()
    assert float(moved) == pytest.approx(0.011, rel=1e-3)
    critic_moved = (engine.critic.value.bias.detach() - critic_before).abs().max()
    assert float(critic_moved) == pytest.approx(1e-3, rel=1e-3), "the critic's rate is its own and constant"


def test_a_resumed_optimiser_has_the_rate_and_decay_of_the_present_configuration() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    first = Optimiser(module, 0.01, 0.0, 1e9)
    steps(first, module, 3)
    resumed = Optimiser(module, 0.2, 0.5, 1e9)
    resumed.load_state_dict(first.state_dict())
    before = float(module.weight.detach())
    steps(resumed, module, 1)
    assert float(module.weight.detach()) == pytest.approx(before * (1 - 0.2 * 0.5) - 0.2, rel=1e-4)
    assert int(resumed.state_dict()["state"][0]["step"]) == 4


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone() -> None:
    module = torch.nn.Linear(2, 1)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    optimiser = Optimiser(module, 0.1, 0.0, 1.0)
    optimiser.begin()
    loss = (module.weight * 0.0).sqrt().sum()  # whose derivative at 0 is infinite, times 0
    assert bool(torch.isfinite(loss))
    optimiser.backward(loss)
    assert math.isnan(optimiser.norm())
    assert all(bool((one == other).all()) for one, other in zip(before, module.parameters(), strict=True))


def half(values: torch.Tensor) -> torch.nn.Linear:
    """A layer with these weights in bfloat16."""
    module = torch.nn.Linear(*reversed(values.shape), bias=False).bfloat16()
    module.weight.data.copy_(values)
    return module


def steps(optimiser: Optimiser, module: torch.nn.Linear, count: int) -> None:
    """Steps with equal gradients, with which AdamW moves each weight by the learning rate."""
    for _ in range(count):
        optimiser.begin()
        optimiser.backward(module.weight.float().sum())
        optimiser.step()


def test_steps_that_bfloat16_cannot_hold_add_up_in_copies() -> None:
    module = half(torch.randn(32, 32, generator=torch.Generator().manual_seed(0)) * 0.02)
    before = module.weight.detach().float()
    optimiser = Optimiser(module, 1e-6, 0.0, 1e9)
    steps(optimiser, module, 16)
    copy = optimiser.state_dict()["state"][0]["copy"]
    torch.testing.assert_close(before - copy, torch.full_like(copy, 1.6e-5), rtol=1e-2, atol=1e-8)
    assert torch.equal(module.weight, copy.bfloat16())
    assert 0.1 < float((module.weight != before).float().mean()) < 0.9, "where 1.6e-5 reaches another number"
    assert optimiser._parameters[0].grad is not None
    assert module.weight.grad is None, "gradients are where the steps are made"


def test_copies_are_resumed_and_follow_weights_that_something_else_sets() -> None:
    values = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) * 0.02
    one = half(values)
    optimiser = Optimiser(one, 1e-6, 0.0, 1e9)
    steps(optimiser, one, 5)
    other = half(one.weight.detach())
    resumed = Optimiser(other, 1e-6, 0.0, 1e9)
    resumed.load_state_dict(optimiser.state_dict())
    for module, own in ((one, optimiser), (other, resumed)):
        module.weight.data[0] = 1.0  # as by a checkpoint
        steps(own, module, 11)
    first, second = (own.state_dict()["state"][0]["copy"] for own in (optimiser, resumed))
    assert torch.equal(first, second)
    torch.testing.assert_close(first[0], torch.full((8,), 1.0 - 1.1e-5), rtol=0, atol=1e-6)
    moved = half(values).weight.detach().float()[1:] - first[1:]
    torch.testing.assert_close(moved, torch.full_like(moved, 1.6e-5), rtol=1e-2, atol=1e-8)


def test_shares_of_a_gradient_add_up_in_float32() -> None:
    module = half(torch.zeros(1, 1))
    optimiser = Optimiser(module, 1e-6, 0.0, 1e9)
    optimiser.begin()
    for share in (256.0, 1.0):  # whose sum bfloat16 rounds to 256
        optimiser.backward(module.weight.float().sum() * share)
    assert optimiser.norm() == 257.0
