"""Robot arms: the 130 tasks of LIBERO, a Panda arm that moves things in kitchens, living rooms and studies.

A row of a motion has seven numbers: the hand's way along x, y and z (1 asks for 5 cm a step), its turn about
them (1 asks for half a radian) and the gripper (1 closes it, -1 opens it). There are 20
simulated steps a second. Success counts when LIBERO first reports it, as in its own evaluation.

LIBERO and its assets are the user's own install. Three of its habits are kept out of workers: at its first
import it asks where to store data, so its `config.yaml` is written before; its module `benchmark` imports
torch, so tasks and initial states are read from their files; it draws every camera at every step, upside
down, which takes ten times as long as the physics, so MuJoCo draws here, upright and only what is asked for.
"""

from __future__ import annotations

import os
import pickle
import re
import threading
import zipfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from distrl.core.actions import Action
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.files import write_atomically
from distrl.core.types import Task
from distrl.workers.envs.arm import Arm, ArmEnv, View, load_simulator

INSTALL = (
    "Run: pip install --no-deps hf-libero==0.1.4 robosuite==1.4.0 bddl==1.0.1 && pip install mujoco==3.3.0 "
    "scipy numba gymnasium cloudpickle easydict future termcolor matplotlib opencv-python-headless h5py"
)
SETTLE = 5
"""Steps at rest before an episode, in which things come to lie still, as in LIBERO's own evaluation."""
_COLLISION = 0  # the group of shapes that only collide
_ONE = threading.Lock()
"""Held while robosuite makes and places things, because it draws from NumPy's global generator."""


class LiberoEnv(ArmEnv["_Arm"]):
    """The arm, at one task at a time. The parameters of a task say from where it starts.

    `params.env` is a suite and a task, such as libero_goal/turn_on_the_stove; `params.init` the number of one
    of LIBERO's initial states, or `params.recording` that of a recorded demonstration, whose start it takes
    and whose motions the expert then shows.

    Args:
        size: Width and height of pictures in pixels.
        repeat: Simulated steps for which each row of a motion is held.
        chunk: Rows of the expert's motions; an agent writes as many of them as it has in an action.
        limit: Simulated steps of an episode; LIBERO's own limit is 600.
        camera: A camera of LIBERO's scenes: agentview, robot0_eye_in_hand, frontview, birdview, sideview.
        zoom: How much larger than LIBERO shows them things are in the picture.
        keep: Simulations that are kept, one for each task, the latest; a task takes 3 s to make, and 400 MB.
    """

    NAME, MODULE, INSTALL = "LIBERO", "libero", INSTALL
    VERSIONS = ("mujoco", "robosuite", "hf-libero", "libero")
    AXES, MAX_LIMIT = 7, 600

    def __init__(
        self,
        size: int = 128,
        repeat: int = 1,
        chunk: int = 8,
        limit: int = 600,
        camera: str = "agentview",
        zoom: float = 1.0,
        keep: int = 4,
    ) -> None:
        super().__init__(size, repeat, chunk, limit, camera, zoom, keep)
        find_assets()

    def _make(self, task: Task) -> _Arm:
        return _Arm(task, self._view)

    def expert_action(self) -> Action:
        """The recorded motions from this step on. Raises EnvError where there are none (left)."""
        held = self._begun().recorded[self._steps : self._steps + self._chunk * self._repeat]
        if not len(held):
            raise EnvError(
                "LIBERO has no scripted expert, and no recorded motion for this step.",
                "Use tasks of the split train_recorded, without noise. Replays that do not succeed end so.",
            )
        rest = np.zeros_like(held[-1:])
        rest[0, -1] = held[-1, -1]  # the gripper stays
        held = np.concatenate([held, rest.repeat(self._chunk * self._repeat - len(held), axis=0)])
        return Action.move(held.reshape(self._chunk, self._repeat, -1).mean(axis=1).clip(-1, 1).tolist())


class _Arm(Arm):
    def __init__(self, task: Task, view: View) -> None:
        file, self._name = task_file(task), task.params["env"]
        self._states = initial_states(places()["init_states"] / f"{self._name}.pruned_init")
        with _ONE:
            wrapper = load()
            np.random.seed(0)
            self._env: Any = wrapper.ControlEnv(
                bddl_file_name=str(file),
                has_offscreen_renderer=False,
                use_camera_obs=False,
                hard_reset=False,  # which would make another model in every episode
                ignore_done=True,  # `limit` ends episodes
            )
        self._angles = import_module("robosuite.utils.transform_utils").quat2axisangle
        self._seen: Any = None
        self.recorded = np.empty((0, LiberoEnv.AXES))
        super().__init__(self._env.sim.model._model, self._env.sim.data._data, view, hidden=(_COLLISION,))

    def reset(self, task: Task) -> None:
        start = self._start(task)
        with _ONE:
            np.random.seed(0)  # for the places of fixtures, which are no part of a state
            self._env.env.reset()  # the wrapper's tries for ever, whatever the error
        gripper = self._env.robots[0].gripper
        gripper.current_action = np.zeros_like(gripper.current_action)  # else it keeps the last episode's
        self._env.set_init_state(start)
        for _ in range(SETTLE):
            self.move([0.0] * LiberoEnv.AXES)
        self.is_solved = False

    def _start(self, task: Task) -> np.ndarray:
        start: np.ndarray
        if "recording" in task.params:
            start, self.recorded = recording(self._name, task.params["recording"])
            return start
        self.recorded = self.recorded[:0]
        init = task.params.get("init", 0)
        if init not in range(len(self._states)):
            raise TaskError(
                f"Task {task.id!r} has no initial state {init!r}.",
                f"Set params.init to a number from 0 to {len(self._states) - 1}.",
            )
        start = self._states[init]
        return start

    def move(self, row: Sequence[float]) -> None:
        self._seen, _, done, _ = self._env.step(np.array(row))
        self.is_solved |= bool(done)

    @property
    def state(self) -> tuple[float, ...]:
        """The hand's place in metres and turn (axis × angle), and its fingers' places, as LIBERO's data."""
        seen = self._seen
        turn = self._angles(seen["robot0_eef_quat"])
        numbers = (*seen["robot0_eef_pos"], *turn, *seen["robot0_gripper_qpos"])
        return tuple(round(float(number), 4) for number in numbers)

    def close(self) -> None:
        super().close()
        self._env.close()


def load() -> Any:
    """The module that makes LIBERO's environments. Its `config.yaml` is written if there is none."""
    assets = find_assets()
    if not (file := config_file()).exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, yaml.safe_dump({key: str(path) for key, path in places().items()}))
    load_simulator("scipy", "LIBERO", INSTALL)  # numba asks for it at the first step only
    wrapper = load_simulator("libero.libero.envs.env_wrapper", "LIBERO", INSTALL)
    package: Any = import_module("libero.libero")
    package._assets_path_cache = str(assets)  # else it may download them
    return wrapper


def config_file() -> Path:
    """What LIBERO reads its paths from."""
    return Path(os.environ.get("LIBERO_CONFIG_PATH", "~/.libero")).expanduser() / "config.yaml"


def places() -> dict[str, Path]:
    """Where LIBERO's files are: as its `config.yaml` says, else in the package. Nothing is imported."""
    spec = find_spec("libero")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency("LIBERO is not installed.", INSTALL)
    root = Path(spec.submodule_search_locations[0]) / "libero"
    found = {
        "benchmark_root": root,
        "bddl_files": root / "bddl_files",
        "init_states": root / "init_files",
        "datasets": root.parent / "datasets",
        "assets": root / "assets",
    }
    if (file := config_file()).is_file():
        own = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        found |= {key: Path(path) for key, path in own.items()}
    return found


def task_file(task: Task) -> Path:
    """The file that says what is to be done. Raises TaskError if LIBERO has no such task."""
    name = str(task.params.get("env"))
    file = places()["bddl_files"] / f"{name}.bddl"
    if not re.fullmatch(r"\w+/\w+", name) or not file.is_file():
        raise TaskError(
            f"Task {task.id!r} is not a task of the env libero: it has no task {name!r}.",
            "Set params.env to one of its tasks, such as libero_goal/turn_on_the_stove.",
        )
    return file


def find_assets() -> Path:
    """The folder of meshes and textures."""
    own = places()["assets"]
    for folder in (own, Path("~/.cache/libero/assets").expanduser()):  # the second is that of its download
        if (folder / "scenes").is_dir():
            return folder
    raise MissingDependency(
        f"LIBERO's assets are not in {own}.",
        "Copy the folder libero/libero/assets of LIBERO's repository there, or let LIBERO download them: "
        "python -c 'import libero.libero as own; own.get_assets_path()'.",
    )


def initial_states(file: Path) -> np.ndarray:
    """A file's initial states, [N, numbers of a state]. torch wrote them, but is not needed to read them."""
    try:
        with zipfile.ZipFile(file) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(name) as stream:
                states = _Numbers(stream).load()
        if not isinstance(states, np.ndarray) or states.ndim != 2:
            raise ValueError("it holds something else")
    except Exception as error:  # what damaged files raise has no common class
        raise EnvError(f"{file} has no initial states: {error!r}.", "Install LIBERO again.") from error
    return states


class _Numbers(pickle.Unpickler):
    """Reads arrays of float64. Whatever else a pickle asks for is refused, so that it can run nothing."""

    KNOWN = {
        "numpy.ndarray": None,
        "numpy.dtype": lambda code, *_: np.dtype({"f8": "f8"}[code], copy=True),
        "numpy.core.multiarray._reconstruct": lambda *_: np.empty(0),
        "numpy._core.multiarray._reconstruct": lambda *_: np.empty(0),
        "_codecs.encode": lambda text, _: text.encode("latin1"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (path := f"{module}.{name}") not in self.KNOWN:
            raise pickle.UnpicklingError(f"it asks for {path}")
        return self.KNOWN[path]


def recording(name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The state that a recorded demonstration of a task starts from, and its actions, [N, 7]."""
    file = places()["datasets"] / f"{name}_demo.hdf5"
    try:
        with import_module("h5py").File(file) as data:
            found = data[f"data/demo_{number}"]
            return np.array(found["states"][0]), np.array(found["actions"])
    except ImportError as error:
        raise MissingDependency(f"Recordings of LIBERO cannot be read: {error}.", INSTALL) from error
    except (OSError, KeyError) as error:
        raise TaskError(
            f"LIBERO's recording {number} cannot be read from {file}: {error}.",
            f"Download LIBERO's demonstrations; `datasets` in {config_file()} says where they are.",
        ) from error
