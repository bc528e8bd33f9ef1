"""The critic: attention by its equation, which action sees what, and that no gradient reaches the policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from distrl.core.errors import PolicyError
from distrl.core.policies import build_critic
from distrl.core.policies.base import States

T = torch.tensor


class Tokens:
    """What a critic asks of a policy."""

    state_size, num_tokens = 6, 12
    device = torch.device("cpu")


@pytest.fixture
def make():
    return lambda seed=0, q=False: build_critic(Tokens(), seed, has_action_values=q).double()


@pytest.fixture
def states() -> States:
    torch.manual_seed(1)
    mask = T([[1, 1, 1, 1, 0], [0, 1, 1, 0, 0]])
    return States(torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True), mask)


def array(tensor) -> np.ndarray:
    return tensor.detach().numpy()


def slow_features(critic, states: States, steps: list[int], aim=None) -> np.ndarray:
    """α = softmax(W h_i + aim·h_i) over the real positions of each head, then Σ α_i U h_i; emb(t)."""
    out = []
    for b, step in enumerate(steps):
        hidden = array(critic.norm(states.hidden[b]))
        pooled = []
        for head in range(critic.weigh.out_features):
            e = hidden @ array(critic.weigh.weight)[head] + array(critic.weigh.bias)[head]
            if aim is not None:
                e = e + hidden @ aim[b, head]
            alpha = np.exp(e) * states.mask[b].numpy()
            alpha = alpha / alpha.sum()
            read = hidden @ array(critic.read.weight).T + array(critic.read.bias)
            pooled.append(sum(alpha[i] * read[i] for i in range(len(alpha))))
        out.append(np.concatenate([*pooled, array(critic.steps.weight)[step]]))
    return np.stack(out)


def shaken(critic):
    """With weights that are nowhere 0."""
    torch.manual_seed(2)
    with torch.no_grad():
        for tensor in critic.parameters():
            tensor.add_(0.1 * torch.randn_like(tensor))
    return critic


def test_values_follow_the_equation(make, states) -> None:
    critic = shaken(make())
    expected = critic.value(torch.tensor(slow_features(critic, states, [3, 0])))[:, 0]
    torch.testing.assert_close(critic.values(states, T([3, 0])), expected)


def test_action_values_look_where_the_action_points(make, states) -> None:
    critic = shaken(make(q=True))
    tokens, mask = T([[4, 7], [5, 0]]), T([[True, True], [True, False]])
    action = critic.action_summary(tokens, mask)
    aim = array(critic.aim(action)).reshape(2, critic.weigh.out_features, 6)
    features = np.concatenate([slow_features(critic, states, [1, 2], aim), array(action)], axis=1)
    expected = critic.action_value(torch.tensor(features))[:, 0]
    found = critic.action_values(states, T([1, 2]), tokens, mask)
    torch.testing.assert_close(found, expected)
    other = critic.action_values(states, T([1, 2]), T([[4, 8], [5, 11]]), mask)
    assert float((other - found)[0].abs().detach()) > 1e-6
    torch.testing.assert_close(other[1], found[1])  # padding is not read


def test_padding_and_far_steps(make, states) -> None:
    critic = shaken(make())
    before = critic.values(states, T([3, 700]))
    with torch.no_grad():
        states.hidden[states.mask == 0] = 99.0
    torch.testing.assert_close(critic.values(states, T([3, 63])), before)


def test_a_prompt_without_a_token_has_a_value_too(make, states) -> None:
    """Workers may send one: a batch whose loss is not finite would be skipped, and ten of them end a run."""
    critic = shaken(make())
    alone = States(states.hidden, states.mask * T([[1], [0]]))
    in_a_sequence = States(states.hidden[:1], states.mask[:1], T([0, 0]), T([4, 0]))
    for some in (alone, in_a_sequence):
        values = critic.values(some, T([0, 0]))
        values.sum().backward()
        assert values.isfinite().all()
        assert all(x.grad.isfinite().all() for x in critic.parameters() if x.grad is not None)
        torch.testing.assert_close(values[0], critic.values(states, T([0, 0]))[0])


def test_no_gradient_reaches_the_policy(make, states) -> None:
    critic = shaken(make(q=True))
    tokens, mask = T([[4], [5]]), T([[True], [True]])
    out = [
        critic.values(states, T([0, 1])),
        critic.trajectory_values(states, T([0, 1]), tokens, mask),
        critic.action_values(states, T([0, 1]), tokens, mask),
    ]
    torch.stack(out).sum().backward()
    assert states.hidden.grad is None
    assert all(parameter.grad is not None for parameter in critic.parameters())


def test_a_head_for_actions_changes_nothing_else(make, states) -> None:
    with_q, without = make(4, q=True), make(4)
    for name, tensor in without.state_dict().items():
        assert torch.equal(with_q.state_dict()[name], tensor)
    assert len(with_q.state_dict()) > len(without.state_dict())
    assert not with_q.aim.weight.any(), "at first the action does not matter"
    with pytest.raises(PolicyError, match="no action values"):
        without.action_values(states, T([0, 1]), T([[1], [2]]), T([[True], [True]]))


def test_the_small_critic_reads_the_last_state_only(states) -> None:
    critic = shaken(build_critic(Tokens(), 0, has_action_values=True, kind="head").double())
    steps, tokens, mask = T([3, 700]), T([[4, 7], [5, 0]]), T([[True, True], [True, False]])
    last = torch.stack([states.hidden[0, 3], states.hidden[1, 2]])
    read = critic.read(critic.norm(last)).relu()
    features = torch.cat([read, critic.steps(T([3, 63]))], dim=1)
    torch.testing.assert_close(critic.values(states, steps), critic.value(features)[:, 0])
    one = critic.trajectory_values(states, steps, tokens, mask)
    torch.testing.assert_close(
        one, critic.outcome(torch.cat([features, critic.actions(tokens, mask)], dim=1))[:, 0]
    )
    value = critic.action_values(states, steps, tokens, mask)
    (one.sum() + value.sum() + critic.values(states, steps).sum()).backward()
    assert states.hidden.grad is None
    assert all(parameter.grad is not None for parameter in critic.parameters())
    shared = States(states.hidden[:1], states.mask[:1], rows=T([0, 0]), ends=T([4, 2]))
    alone = States(states.hidden[:1, :2], states.mask[:1, :2])
    torch.testing.assert_close(critic.values(shared, T([1, 1]))[1], critic.values(alone, T([1]))[0])
    with pytest.raises(PolicyError, match="no action values"):
        build_critic(Tokens(), 0, kind="head").action_values(states, steps, tokens, mask)
