"""Environments, what is collected from them, and statistics that merge."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("gymnasium", reason="needs gymnasium: not installed")

import sys

import numpy as np
from appo_envs import LENGTH, OFFSET, SCALE
from appo_world import AIM, appo_config, new_policy
from hypothesis import given
from hypothesis import strategies as st

from distrl.appo.envs import Collector, GymGroup, Moments, make_env, run_episodes, space_of
from distrl.core.errors import ConfigError, MissingDependency


def test_actions_are_clipped_to_the_box_for_the_environment() -> None:
    group = GymGroup({"id": AIM}, 2)
    group.reset(0, 1), group.reset(1, 2)
    observations, *_ = group.step(np.array([[9.0, -9.0], [0.0, 0.0]]))  # the fake checks the box
    assert observations.shape == (2, 2)
    assert group.space.sizes == (2, 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "NoSuch-v0"}, "gymnasium cannot make"),
        ({"id": AIM, "colour": 1}, "colour"),
        ({"id": "appo_envs:Still-v0"}, "actions of the kind Discrete"),
        ({"id": "no_such_module:Env-v0"}, "gymnasium cannot make"),
    ],
)
def test_what_cannot_be_made_is_told_in_one_line(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        space_of(options)
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingDependency, match=r'pip install "distrl\[gym\]"'):
        make_env({"id": AIM})


GAMMA = 0.9


def new_collector(end: float = 0.0, num: int = 3) -> Collector:
    return Collector(GymGroup({"id": AIM, "end": end}, num), GAMMA, np.random.default_rng(0))


def test_time_limits_are_not_terminations() -> None:
    data = new_collector().collect(new_policy(appo_config()), 2 * LENGTH)
    assert data is not None
    assert not data.terminated.any()
    assert np.flatnonzero(data.done[:, 0]).tolist() == [LENGTH - 1, 2 * LENGTH - 1]
    assert [episode.length for episode in data.episodes] == [LENGTH] * 6
    ended = new_collector(end=1.0).collect(new_policy(appo_config()), 4)
    assert ended is not None
    assert ended.terminated.all()


def test_the_observation_after_an_end_is_the_last_one_of_its_episode() -> None:
    policy = new_policy(appo_config())
    policy.observations = Moments(1.0, np.full(2, OFFSET), np.full(2, SCALE**2))
    data = new_collector().collect(policy, LENGTH + 1)
    assert data is not None
    np.testing.assert_array_equal(data.next_observations[0], data.observations[1])
    assert (data.next_observations[LENGTH - 1] != data.observations[LENGTH]).all()


def test_episodes_and_discounted_returns_go_over_the_ends_of_rounds() -> None:
    policy, collector = new_policy(appo_config()), new_collector(num=1)
    rewards, returns, episodes = [], [], []
    for _ in range(3):
        data = collector.collect(policy, 5)
        assert data is not None
        rewards += data.rewards[:, 0].tolist()
        returns.append(data.returns)
        episodes += data.episodes
    (episode,) = episodes
    assert (episode.total, episode.length) == (pytest.approx(sum(rewards[:LENGTH]), rel=1e-5), LENGTH)
    expected, total = [], 0.0
    for step, reward in enumerate(rewards):
        total = (GAMMA * total if step % LENGTH else 0.0) + reward
        expected.append([total])
    merged = Moments.empty(1)
    for one in returns:
        merged.merge(one)
    whole = Moments.of(np.array(expected))
    assert (merged.count, merged.mean[0]) == (15.0, pytest.approx(whole.mean[0], rel=1e-5))
    assert merged.m2[0] == pytest.approx(whole.m2[0], rel=1e-4)


def test_rewards_are_divided_by_the_deviation_of_returns_that_came_with_the_weights() -> None:
    policy = new_policy(appo_config())
    plain = new_collector().collect(policy, 4)  # the deviation is 1 while there are no returns
    policy.returns = Moments(10.0, np.zeros(1), np.full(1, 40.0))
    scaled = new_collector().collect(policy, 4)
    assert plain is not None
    assert scaled is not None
    np.testing.assert_allclose(scaled.rewards, plain.rewards / 2.0, rtol=1e-6)


def test_the_statistics_of_a_round_do_not_change_within_it() -> None:
    policy = new_policy(appo_config())
    policy.observations = Moments(1.0, np.full(2, OFFSET), np.full(2, 100.0 * SCALE**2))
    data = new_collector().collect(policy, 40)
    assert data is not None
    raw = data.observations.reshape(-1, 2)
    x = torch.from_numpy(((raw - OFFSET) / (10.0 * SCALE)).astype(np.float32))
    actions = torch.from_numpy(data.actions).flatten(0, 1)
    np.testing.assert_allclose(
        data.log_probs.ravel(), policy.log_prob(x, actions).detach().numpy(), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(data.seen.mean, raw.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(data.seen.std(), raw.std(axis=0), rtol=1e-3)
    assert policy.observations.count == 1.0


def test_an_episode_of_a_seed_is_the_same_in_any_company() -> None:
    policy = new_policy(appo_config())
    together = run_episodes(GymGroup({"id": AIM, "end": 0.2}, 4), policy.act_greedily, range(9))
    alone = [run_episodes(GymGroup({"id": AIM, "end": 0.2}, 1), policy.act_greedily, [s]) for s in range(9)]
    assert together is not None
    assert [[episode.length] for episode in together] == [[e.length for e in one or []] for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert other is not None
        assert one.total == pytest.approx(other[0].total, rel=1e-5)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_merged_parts_have_the_moments_of_the_whole(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(1e3, 2.0, (size, 3)) * [1.0, 5.0, 0.0] for size in sizes]
    merged = Moments.empty(3)
    for part in parts:
        merged.merge(Moments.of(part))
    whole = np.concatenate(parts)
    assert merged.count == len(whole)
    if len(whole):
        np.testing.assert_allclose(merged.mean, whole.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(merged.m2 / merged.count, whole.var(axis=0), rtol=1e-9, atol=1e-9)
