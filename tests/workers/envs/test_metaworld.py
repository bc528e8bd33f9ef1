"""Meta-World's arm: what motions do, what the expert shows, how episodes end, and what pictures show."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import numpy as np
import pytest

from distrl.configs.schema import EnvConfig, WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.messages import Lease
from distrl.core.types import Branch, Completion, Purpose, Task
from distrl.workers.agents.arm import ArmAgent
from distrl.workers.envs import arm, metaworld, simulator_of
from distrl.workers.envs.base import Frame
from distrl.workers.envs.metaworld import MetaWorldEnv
from distrl.workers.episode import EpisodeRunner

STILL = Action.move([(0.0, 0.0, 0.0, 0.0)])


def task(name: str = "drawer-close-v3", seed: int = 7) -> Task:
    return Task(id="t", suite="s", template=name, split="test", goal="g", params={"env": name}, seed=seed)


class Guesses:
    """A policy whose answer depends on the prompt alone."""

    def act(self, messages, images, sampling, prefix):  # type: ignore[no-untyped-def]
        rng = random.Random(repr(messages))
        rows = [[rng.randrange(21) for _ in range(4)] for _ in range(2)]
        text = "; ".join(" ".join(map(str, row)) for row in rows)
        return Completion(text=text, token_ids=(1,), logprobs=(-1.0,), weight_versions=(1,))


@pytest.fixture(scope="module")
def env() -> Iterator[MetaWorldEnv]:
    env = MetaWorldEnv(size=48, repeat=5, chunk=2, limit=150)
    yield env
    env.close()


def pixels(frame: Frame) -> np.ndarray:
    return np.asarray(frame.image).astype(int)


@pytest.mark.needs("metaworld")
@pytest.mark.parametrize("name", ["drawer-close-v3", "coffee-button-v3"])
def test_the_expert_solves_a_task_and_then_it_is_over(env: MetaWorldEnv, name: str) -> None:
    env.reset(task(name))
    count, done = 0, False
    while not done:
        assert env.evaluate() == 0.0
        action = env.expert_action()
        assert len(action.motion) == 2
        count, done = count + 1, env.step(action).done
    assert env.evaluate() == 1.0
    assert count < 12


@pytest.mark.needs("metaworld")
def test_a_seed_is_an_episode_whatever_was_played_and_asked_before(env: MetaWorldEnv) -> None:
    def play(asks: int) -> list[bytes]:
        frames = [env.reset(task())]
        for row in ((0.5, 1.0, -0.5, 0.0), (-1.0, 0.2, 0.0, 1.0), (0.0, 1.0, -1.0, 1.0)):
            shown = [env.expert_action() for _ in range(asks)]
            assert len(set(shown)) <= 1, "asking changes nothing"
            frames.append(env.step(Action.move([row] * 2)).frame)
        return [frame.image.tobytes() + repr(frame.state).encode() for frame in frames]

    first = play(asks=0)
    env.reset(task("coffee-button-v3"))
    assert play(asks=2) == first
    env.reset(task(seed=8))
    env.step(Action.move([(1.0, 1.0, 1.0, 1.0)] * 2))
    assert play(asks=1) == first
    assert env.reset(task(seed=8)).image.tobytes() != env.reset(task()).image.tobytes()


@pytest.mark.needs("metaworld")
def test_an_imagined_episode_goes_on_from_the_real_state_exactly(env: MetaWorldEnv) -> None:
    one = task("coffee-button-v3")
    runner = EpisodeRunner(env, ArmAgent(chunk=2), Guesses(), WorkerConfig())
    played = runner.run(Lease(id="real", task=one))
    assert played is not None
    real = played[0]
    env.reset(task())  # something else in between
    for step in (0, 1, len(real.steps) - 1):
        branch = Branch.of(real, step, horizon=100)
        lease = Lease(id="branch", task=one, purpose=Purpose.IMAGINED, branch=branch)
        imagined = runner.run(lease)
        assert imagined is not None
        found = imagined[0]
        assert [one.observation for one in found.steps] == [one.observation for one in real.steps[step:]]
        assert (found.final, found.outcome) == (real.final, real.outcome)


@pytest.mark.needs("metaworld")
def test_rows_are_held_for_repeat_steps_and_move_the_hand_their_way(env: MetaWorldEnv) -> None:
    before = np.array(env.reset(task()).state)
    after = np.array(env.step(Action.move([(0.0, 0.0, 1.0, -1.0)] * 2)).frame.state)
    assert np.abs(after - before)[:2] == pytest.approx(0.0, abs=0.01)
    assert 0.04 < (after - before)[2] < 0.11, "ten steps of a centimetre, and the hand lags"


@pytest.mark.needs("metaworld")
def test_the_objects_are_seen_from_the_hand() -> None:
    env = MetaWorldEnv(size=32, repeat=5, objects=True)
    first = env.reset(task("coffee-button-v3"))
    plain = len(STILL.motion[0])
    assert len(first.state) == plain + 2 * 7 + 3
    way, goal = np.array(first.state[plain : plain + 3]), np.array(first.state[-3:])
    moved = env.step(Action.move([(1.0, 0.0, 0.0, -1.0)] * 2)).frame.state
    hand = np.array(moved[:3]) - np.array(first.state[:3])
    assert hand[0] > 0.03
    assert np.array(moved[plain : plain + 3]) == pytest.approx(way - hand, abs=0.002)
    assert np.array(moved[-3:]) == pytest.approx(goal - hand, abs=0.002)
    env.close()


@pytest.mark.needs("metaworld")
def test_simpler_meshes_change_pictures_a_little_and_motions_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = []
    for small in (128, 0):
        monkeypatch.setattr(arm, "SMALL", small)
        env = MetaWorldEnv(size=48, repeat=10)
        env.reset(task())
        shown.append(env.step(Action.move([(0.0, 1.0, -1.0, 1.0)] * 3)).frame)
        env.close()
    assert shown[0].state == shown[1].state
    changed = np.abs(pixels(shown[0]) - pixels(shown[1])).max(axis=2) > 20
    assert 0 < changed.mean() < 0.05


@pytest.mark.needs("metaworld")
def test_an_episode_ends_at_the_limit_even_without_motions() -> None:
    env = MetaWorldEnv(size=32, repeat=4, chunk=1, limit=10)
    env.reset(task())
    assert (env.max_actions(1), env.max_actions(2)) == (3, 2)
    assert [env.step(STILL).truncated for _ in range(3)] == [False, False, True]
    env.reset(task())
    invalid = Action.invalid("x", "no motion")
    last = [env.step(action) for action in (invalid, Action(kind=ActionKind.WAIT), invalid)][-1]
    assert (last.done, last.truncated, env.evaluate()) == (False, True, 0.0)
    env.close()
    env.close()


@pytest.mark.needs("metaworld")
def test_pictures_are_upright_not_mirrored_and_without_shadows() -> None:
    """The drawer is green and on the table's far side, which corner2 sees right of the red arm."""
    env = MetaWorldEnv(size=64)
    shown = pixels(env.reset(task()))
    red, green = (
        np.argwhere((shown[..., a] > 1.3 * shown[..., b]) & (shown[..., a] > 1.3 * shown[..., c]))
        for a, b, c in ((0, 1, 2), (1, 0, 2))
    )
    assert len(green) > 5
    assert red[:, 1].mean() < green[:, 1].mean()
    floor = shown[-4:, :, :]
    assert shown[:4].std() < floor.std(), "the wall behind is plain, and above"
    env.close()
    closer = MetaWorldEnv(size=64, zoom=2.0)
    large = pixels(closer.reset(task()))
    assert (large[..., 1] > 1.3 * large[..., 0]).sum() > 2 * len(green)
    closer.close()


@pytest.mark.needs("metaworld")
def test_every_record_and_every_evaluation_has_the_simulator_s_version(env: MetaWorldEnv) -> None:
    found = simulator_of(EnvConfig(kind="metaworld"))
    assert found.startswith(f"mujoco {version('mujoco')}, metaworld ")
    assert env.reset(task()).app == found
    assert simulator_of(EnvConfig(kind="two_screens")) == ""


@pytest.mark.needs("metaworld")
def test_what_it_lacks_is_said() -> None:
    env = MetaWorldEnv(size=32)
    with pytest.raises(EnvError, match="no task"):
        env.evaluate()
    with pytest.raises(TaskError, match="no task 'fly-v3'"):
        env.reset(task("fly-v3"))
    with pytest.raises(EnvError, match="no camera 'moon'"):
        MetaWorldEnv(camera="moon").reset(task())
    env.reset(task())
    with pytest.raises(EnvError, match="4 numbers in a row, not 3"):
        env.step(Action.move([(0.0, 0.0, 0.0)]))
    env.close()


@pytest.mark.parametrize(
    "options", [{"size": 8}, {"repeat": 0}, {"chunk": 65}, {"limit": 501}, {"zoom": 0.0}]
)
def test_impossible_options_are_refused_without_the_package(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number from"):
        MetaWorldEnv(**options)  # type: ignore[arg-type]


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(MissingDependency, match=r"distrl\[vla\]"):
        metaworld.load()


def test_a_worker_imports_it_without_torch_and_without_mujoco() -> None:
    code = "import sys, distrl.workers.envs.metaworld; print({'torch', 'mujoco'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
