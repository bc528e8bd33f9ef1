"""LIBERO's arm: what keeps workers from hanging and from torch, where episodes start, and what they show."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import libero_install
import numpy as np
import pytest
import yaml

from distrl.configs.schema import EnvConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.types import Task
from distrl.workers.envs import libero, simulator_of
from distrl.workers.envs.base import Frame
from distrl.workers.envs.libero import LiberoEnv, initial_states

real = pytest.mark.needs("libero", "libero-assets")
UP = (0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0)


def task(name: str = "turn_on_the_stove", **start: int) -> Task:
    params = {"env": f"libero_goal/{name}", **(start or {"init": 0})}
    return Task(id="t", suite="s", template=name, split="test", goal="g", params=params)


def python(code: str, *path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process without a terminal."""
    paths = os.pathsep.join([*map(str, path), os.environ["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_config_is_written_before_it_can_ask(tmp_path: Path) -> None:
    root, config = libero_install.make(tmp_path), tmp_path / "config" / "config.yaml"
    bare = python("import libero.libero", tmp_path, LIBERO_CONFIG_PATH=str(config.parent))
    assert "EOFError" in bare.stderr, "it asks"
    code = "from distrl.workers.envs.libero import load; print(load().__name__)"
    done = python(code, tmp_path, LIBERO_CONFIG_PATH=str(config.parent))
    assert done.stdout.strip() == "libero.libero.envs.env_wrapper", done.stderr
    written = yaml.safe_load(config.read_text())
    assert written["bddl_files"] == str(root / "bddl_files")
    assert set(written) == {"benchmark_root", "bddl_files", "init_states", "datasets", "assets"}
    config.write_text(own := f"assets: {root / 'assets'}\n")
    assert python(code, tmp_path, LIBERO_CONFIG_PATH=str(config.parent)).returncode == 0
    assert config.read_text() == own, "the user's own is kept"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An install without assets."""
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delitem(sys.modules, "libero", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return libero_install.make(tmp_path, assets=False)


def test_without_assets_one_line_says_where_they_belong(install: Path) -> None:
    with pytest.raises(MissingDependency, match="LIBERO's assets are not in") as refused:
        LiberoEnv()
    assert str(install / "assets") in refused.value.message
    assert "get_assets_path" in refused.value.remedy
    assert "\n" not in f"{refused.value.message}{refused.value.remedy}"
    downloaded = Path("~/.cache/libero/assets/scenes").expanduser()
    downloaded.mkdir(parents=True)
    LiberoEnv()
    assert libero.find_assets() == downloaded.parent


def test_without_the_package_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libero", None)
    with pytest.raises(MissingDependency, match="need LIBERO, which is not installed") as refused:
        LiberoEnv()
    assert "pip install --no-deps hf-libero" in refused.value.remedy


@pytest.mark.parametrize(
    "options", [{"size": 8}, {"repeat": 0}, {"chunk": 65}, {"limit": 601}, {"zoom": 0.0}, {"keep": 0}]
)
def test_impossible_options_are_refused_without_the_package(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number from"):
        LiberoEnv(**options)  # type: ignore[arg-type]


def test_a_worker_imports_it_without_torch_and_without_the_simulator() -> None:
    unwanted = "{'torch', 'mujoco', 'libero', 'robosuite', 'h5py'}"
    code = f"import sys, distrl.workers.envs.libero; print({unwanted} & set(sys.modules))"
    assert python(code).stdout.strip() == "set()"


def saved(file: Path, data: bytes) -> Path:
    """A file as torch writes it."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
    return file


def test_initial_states_are_read_without_torch(tmp_path: Path) -> None:
    states = np.arange(12.0).reshape(3, 4)
    data = pickle.dumps(states, protocol=2)
    for numpy in (b"numpy._core", b"numpy.core"):  # NumPy 2's name, and NumPy 1's
        renamed = data.replace(b"numpy._core", b"numpy.core").replace(b"numpy.core", numpy)
        assert np.array_equal(initial_states(saved(tmp_path / "x.pruned_init", renamed)), states)


class Evil:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self._path), "w")


@pytest.mark.parametrize("what", ["code", "objects", "list", "flat", "cut off", "no zip", "missing"])
def test_what_is_no_array_of_numbers_is_refused_and_never_run(tmp_path: Path, what: str) -> None:
    file, victim = tmp_path / "x.pruned_init", tmp_path / "victim"
    if what == "code":
        saved(file, pickle.dumps([Evil(victim)], protocol=2))
    elif what == "objects":
        saved(file, pickle.dumps(np.array([[Evil(victim)]], dtype=object), protocol=2))
    elif what in ("list", "flat"):
        saved(file, pickle.dumps([1.0] if what == "list" else np.ones(3), protocol=2))
    elif what == "cut off":
        saved(file, pickle.dumps(np.ones((2, 2)), protocol=2)[:-20])
    elif what == "no zip":
        file.write_bytes(b"==> no zip")
    with pytest.raises(EnvError, match="has no initial states"):
        initial_states(file)
    assert not victim.exists()


@real
def test_a_first_episode_neither_asks_nor_imports_torch_nor_leaves_errors(tmp_path: Path) -> None:
    code = """
import sys, threading
from test_libero import task, UP
from distrl.core.actions import Action
from distrl.workers.envs.libero import LiberoEnv

def slot(shown):
    env = LiberoEnv(size=32)
    shown.append(env.reset(task()).image.tobytes())
    shown.append(env.step(Action.move([UP] * 2)).frame.image.tobytes())
    env.close()
    env.close()

slots = [[], []]
threads = [threading.Thread(target=slot, args=(shown,)) for shown in slots]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(slots[0] == slots[1], len(set(slots[0])), "torch" in sys.modules)
"""
    done = python(code, Path(__file__).parent, LIBERO_CONFIG_PATH=str(tmp_path / "config"))
    assert done.stdout.splitlines()[-1:] == ["True 2 False"], done.stderr
    assert "Error" not in done.stderr
    assert (tmp_path / "config" / "config.yaml").exists()


@pytest.fixture(scope="module")
def env() -> Iterator[LiberoEnv]:
    env = LiberoEnv(size=48, repeat=2, chunk=2, limit=12, keep=1)
    yield env
    env.close()


@real
def test_a_task_is_an_episode_whatever_was_played_before(env: LiberoEnv) -> None:
    def play(init: int = 0) -> list[bytes]:
        frames = [env.reset(task(init=init))]
        for row in ((0.5, 1.0, -0.5, 0.2, 0.0, 0.0, 1.0), (-1.0, 0.2, 0.0, 0.0, 0.3, 0.0, -1.0)):
            frames.append(env.step(Action.move([row] * 2)).frame)
        return [frame.image.tobytes() + repr(frame.state).encode() for frame in frames]

    first = play()
    assert play(init=1)[0] != first[0]
    assert play() == first
    env.reset(task("put_the_bowl_on_the_plate"))  # takes the first one's place
    env.step(Action.move([UP] * 2))
    assert play() == first


@real
def test_rows_move_the_hand_their_way_and_the_gripper(env: LiberoEnv) -> None:
    before = np.array(env.reset(task()).state)
    after = np.array(env.step(Action.move([UP] * 2)).frame.state)
    assert len(before) == 8
    assert np.abs(after - before)[:2] == pytest.approx(0.0, abs=0.02)
    assert 0.02 < (after - before)[2] < 0.2, "four steps of up to 5 cm, and the hand lags"
    closed = np.array(env.step(Action.move([(*UP[:6], 1.0)] * 2)).frame.state)
    assert closed[6] - closed[7] < after[6] - after[7]


@real
def test_pictures_are_upright_and_not_mirrored(env: LiberoEnv) -> None:
    """A plain wall is behind the wooden table; the dark cabinet is at y < 0, which agentview sees left."""
    shown = np.asarray(env.reset(task()).image).astype(int)
    warmth = shown[..., 0] - shown[..., 2]
    assert np.abs(warmth[:6]).mean() < 10 < warmth[-6:].mean()
    lower = shown[20:36].mean(axis=(0, 2))
    assert lower[:8].mean() < 0.7 * lower[-8:].mean()


@real
def test_an_episode_ends_with_success_or_at_the_limit_even_without_motions(env: LiberoEnv) -> None:
    env.reset(task())
    invalid = Action.invalid("x", "no motion")
    actions = (invalid, Action(kind=ActionKind.WAIT), Action.move([UP] * 2), invalid, invalid)
    assert [env.step(action).truncated for action in actions] == [False] * 4 + [True]
    assert env.evaluate() == 0.0
    env.reset(task())
    stove = env._arm._env.env.object_states_dict["flat_stove_1"]  # type: ignore[union-attr]
    stove.set_joint(0.8)
    assert env.step(Action.move([UP] * 2)).done
    assert env.evaluate() == 1.0
    env.reset(task())
    assert env.evaluate() == 0.0


@real
def test_every_record_has_the_simulator_s_versions(env: LiberoEnv) -> None:
    found = simulator_of(EnvConfig(kind="libero"))
    assert found.startswith(f"mujoco {version('mujoco')}, robosuite {version('robosuite')}")
    assert "libero" in found
    assert env.reset(task()).app == found


@real
def test_what_it_lacks_is_said(env: LiberoEnv) -> None:
    with pytest.raises(TaskError, match="no task 'libero_goal/fly'"):
        env.reset(task("fly"))
    with pytest.raises(TaskError, match="no initial state 50"):
        env.reset(task(init=50))
    with pytest.raises(EnvError, match="no camera 'moon'"):
        LiberoEnv(camera="moon").reset(task())
    env.reset(task())
    with pytest.raises(EnvError, match="7 numbers in a row, not 4"):
        env.step(Action.move([(0.0,) * 4]))
    with pytest.raises(EnvError, match="LIBERO has no scripted expert"):
        env.expert_action()


@pytest.mark.needs("libero", "libero-assets", "h5py")
def test_the_expert_plays_a_recording_back(
    env: LiberoEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frames(actions: list[Action]) -> list[Frame]:
        return [env.step(action).frame for action in actions]

    config = {key: str(path) for key, path in libero.places().items()} | {"datasets": str(tmp_path)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path))
    env.reset(task(init=4))
    rows = [(0.1 * number, 0.5, 1.0 - 0.2 * number, 0.0, 0.1, 0.0, -1.0) for number in range(3)]
    played = frames([Action.move(rows[:2]), Action.move(rows[2:])])
    with pytest.raises(TaskError, match="recording 2 cannot be read from"):
        env.reset(task(recording=2))
    (tmp_path / "libero_goal").mkdir()
    with import_module("h5py").File(tmp_path / "libero_goal" / "turn_on_the_stove_demo.hdf5", "w") as file:
        start = initial_states(libero.places()["init_states"] / "libero_goal/turn_on_the_stove.pruned_init")
        file["data/demo_2/states"] = start[4:6]
        file["data/demo_2/actions"] = np.repeat(rows, 2, axis=0)  # `repeat` is 2
    env.reset(task(recording=2))
    shown = [env.expert_action()]
    replayed = frames(shown)
    shown.append(env.expert_action())
    replayed += frames([Action.move(shown[1].motion[:1])])
    assert [row for action in shown for row in action.motion] == [
        *(pytest.approx(row) for row in rows),
        (0.0,) * 6 + (-1.0,),
    ]
    assert [frame.state for frame in replayed] == [frame.state for frame in played]
    with pytest.raises(EnvError, match="no recorded motion for this step"):
        env.expert_action()
