"""Robot arms: the 50 tasks of Meta-World, a Sawyer arm over a table in MuJoCo, seen by a camera.

An action is a motion: rows of four numbers in [-1, 1], the hand's way along x, y and z (1 is one centimetre
a simulated step) and how hard the gripper closes. Each row is held for `repeat` simulated steps. An episode
ends when Meta-World first reports success, which is how its own evaluation counts, or after `limit` simulated
steps.

Pictures are drawn by MuJoCo without a screen, on CPUs by Mesa. Shadows, reflections and multisampling are
off, and small pictures are drawn with simpler meshes: a picture then takes 4 ms instead of 125.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import Image

from distrl.core.actions import MAX_ROWS, Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.types import Task
from distrl.workers.envs.base import Frame, StepResult

AXES = 4
UPSIDE_DOWN = frozenset({"corner2"})
"""Cameras whose pictures are turned round."""
SMALL = 128
"""Pixels up to which pictures are drawn with simpler meshes: a centimetre can hardly be seen there."""
_CELL_M = 0.01
_INSTALL = "Install the extra: pip install 'distrl[vla]'."
_DRIVERS = "Install Mesa (Debian: apt install libegl1 libgl1-mesa-dri); or set MUJOCO_GL=osmesa (libosmesa6)."


class MetaWorldEnv:
    """The arm, at one task at a time.

    Args:
        size: Width and height of pictures in pixels.
        repeat: Simulated steps for which each row of a motion is held.
        chunk: Rows of the expert's motions; an agent writes as many of them as it has in an action.
        limit: Simulated steps of an episode; Meta-World's own limit is 500.
        camera: A camera of Meta-World's scenes: corner, corner2, corner3, corner4, topview, gripperPOV,
            behindGripper.
        zoom: How much larger than Meta-World shows them things are in the picture.
    """

    seed_is_instance = True

    def __init__(
        self,
        size: int = 96,
        repeat: int = 1,
        chunk: int = 8,
        limit: int = 500,
        camera: str = "corner2",
        zoom: float = 1.0,
    ) -> None:
        for name, value, low, high in (
            ("size", size, 16, 512),
            ("repeat", repeat, 1, 50),
            ("chunk", chunk, 1, MAX_ROWS),
            ("limit", limit, 1, 500),
            ("zoom", zoom, 0.5, 8),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must be a number from {low} to {high}, not {value!r}")
        if find_spec("metaworld") is None:
            raise MissingDependency("Robot arms need Meta-World, which is not installed.", _INSTALL)
        self._repeat, self._chunk, self._limit = repeat, chunk, limit
        self._view = _View(size, camera, zoom)
        self._app = self.simulator()  # in every record
        self._arms: dict[str, _Arm] = {}
        self._arm: _Arm | None = None
        self._steps = 0

    @staticmethod
    def simulator() -> str:
        """The versions that results depend on: the same policy solves less or more with another MuJoCo."""
        return ", ".join(f"{name} {version(name)}" for name in ("mujoco", "metaworld"))

    def reset(self, task: Task) -> Frame:
        """Puts the arm and the objects to where the task's seed says. Raises TaskError for unknown tasks."""
        name = str(task.params.get("env"))
        if name not in self._arms:
            self._arms[name] = _Arm(name, self._view)
        self._arm, self._steps = self._arms[name], 0
        self._arm.reset(task.seed)
        return self._frame()

    def step(self, action: Action) -> StepResult:
        """Executes the rows of a motion, up to the end of the episode; any other action does nothing."""
        arm = self._begun()
        if action.kind is ActionKind.MOTION:
            if len(action.motion[0]) != AXES:
                raise EnvError(
                    f"a motion of this arm has {AXES} numbers in a row, not {len(action.motion[0])}.",
                    f"Set agent.options.axes to {AXES}.",
                )
            rows = [row for row in action.motion for _ in range(self._repeat)]
            for row in rows[: self._limit - self._steps]:
                arm.move(row)
                self._steps += 1
                if arm.is_solved:
                    break
        else:  # time passes, so that what is no motion cannot go on for ever
            self._steps += self._repeat
        return StepResult(self._frame(), done=arm.is_solved, truncated=self._steps >= self._limit)

    def evaluate(self) -> float:
        """1 if Meta-World reported success at any step."""
        return float(self._begun().is_solved)

    def expert_action(self) -> Action:
        """The motion of Meta-World's scripted policy, which sees the objects' places.

        The policy is played ahead and the arm put back. A row is the mean of what it does in `repeat` steps.
        """
        arm = self._begun()
        rows = []
        with arm.kept():
            for _ in range(self._chunk):
                held = []
                for _ in range(self._repeat):
                    held.append(arm.wanted())
                    arm.move(held[-1])
                rows.append(np.mean(held, axis=0).tolist())
        return Action.move(rows)

    def close(self) -> None:
        for arm in self._arms.values():
            arm.close()
        self._arms.clear()
        self._arm = None

    def _begun(self) -> _Arm:
        if self._arm is None:
            raise EnvError("the arm has no task.", "Call reset first.")
        return self._arm

    def _frame(self) -> Frame:
        arm = self._begun()
        return Frame.of(arm.picture(), self._app, arm.state)


@dataclass(frozen=True)
class _View:
    size: int
    camera: str
    zoom: float


class _Arm:
    """One task's simulation, kept for later episodes: it takes 0.4 s to make, and 80 MB.

    Used by one thread, because a picture is drawn in an OpenGL context of the thread that drew the first.
    """

    def __init__(self, name: str, view: _View) -> None:
        mujoco, self._view = load(), view
        envs = import_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS
        if name not in envs:
            raise TaskError(
                f"Meta-World has no task {name!r}.", "Name one in params.env, such as drawer-open-v3."
            )
        self._env: Any = envs[name]()
        self._expert: Any = import_module("metaworld.policies").ENV_POLICY_MAP[name]()
        self._env._partially_observable = False  # for the expert
        self._env.__dict__.pop("sawyer_observation_space", None)  # a cache of before
        self._env._freeze_rand_vec, self._env.seeded_rand_vec, self._env._set_task_called = False, True, True
        self._env.max_path_length = 10**9  # `limit` ends episodes
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION
        self._mujoco = mujoco
        self._renderer = self._make_renderer(view)
        self._seen: Any = None
        self.is_solved = False

    def _make_renderer(self, view: _View) -> Any:
        model = self._env.model
        camera = self._mujoco.mj_name2id(model, self._mujoco.mjtObj.mjOBJ_CAMERA, view.camera)
        if camera < 0:
            raise EnvError(f"Meta-World has no camera {view.camera!r}.", "Correct env.options.camera.")
        half = math.tan(math.radians(model.cam_fovy[camera] / 2)) / view.zoom
        model.cam_fovy[camera] = 2 * math.degrees(math.atan(half))
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        if view.size <= SMALL:
            _simplify(model)
        try:
            renderer = self._mujoco.Renderer(model, view.size, view.size)
        except Exception as error:  # the OpenGL libraries have no common one
            raise MissingDependency(f"MuJoCo cannot draw pictures here: {error}.", _DRIVERS) from error
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            renderer.scene.flags[getattr(self._mujoco.mjtRndFlag, flag)] = 0
        return renderer

    def reset(self, seed: int) -> None:
        self._env.seed(seed)
        self._seen, _ = self._env.reset()
        self.is_solved = False

    def move(self, row: Sequence[float]) -> None:
        self._seen, _, _, _, info = self._env.step(np.array(row))
        self.is_solved |= bool(info["success"])

    def wanted(self) -> list[float]:
        """What the scripted policy does now."""
        found: list[float] = np.clip(self._expert.get_action(self._seen), -1.0, 1.0).tolist()
        return found

    @property
    def state(self) -> tuple[float, ...]:
        """The hand's place in metres and how far the gripper is open, 0 to 1."""
        return tuple(round(float(number), 4) for number in self._seen[:AXES])

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A block after which all is as before it."""
        mujoco, env = self._mujoco, self._env
        physics = np.empty(mujoco.mj_stateSize(env.model, self._kind))
        mujoco.mj_getState(env.model, env.data, physics, self._kind)
        fields, seen, is_solved = dict(env.__dict__), self._seen, self.is_solved
        try:
            yield
        finally:
            env.__dict__.clear()
            env.__dict__.update(fields)
            mujoco.mj_setState(env.model, env.data, physics, self._kind)
            mujoco.mj_forward(env.model, env.data)
            self._seen, self.is_solved = seen, is_solved

    def picture(self) -> Image.Image:
        self._renderer.update_scene(self._env.data, self._view.camera)
        pixels = self._renderer.render()
        return Image.fromarray(pixels[::-1, ::-1].copy() if self._view.camera in UPSIDE_DOWN else pixels)

    def close(self) -> None:
        self._renderer.close()


def _simplify(model: Any) -> None:
    """Merges vertices of meshes that are in one centimetre cell: a fifth of the faces is left to draw.

    Physics does not read faces, so nothing but pictures changes.
    """
    for mesh in range(model.nmesh):
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        cells = np.floor(model.mesh_vert[start : start + count] / _CELL_M)
        _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        start, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
        merged = first[cell.reshape(-1)][model.mesh_face[start : start + count]]
        is_kept = np.all(merged != np.roll(merged, 1, axis=1), axis=1)
        model.mesh_facenum[mesh] = left = int(is_kept.sum())
        for faces in (model.mesh_facenormal, model.mesh_facetexcoord):
            faces[start : start + left] = faces[start : start + count][is_kept]
        model.mesh_face[start : start + left] = merged[is_kept]


def load() -> Any:
    """The module mujoco, which reads from the environment variable MUJOCO_GL how it draws."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    os.environ.setdefault("LP_NUM_THREADS", "0")  # else Mesa draws with all cores
    try:
        import_module("metaworld")
        return import_module("mujoco")
    except ImportError as error:
        raise MissingDependency(f"Meta-World cannot be imported: {error}.", _INSTALL) from error
    except AttributeError as error:  # OpenGL's binding finds no library
        raise MissingDependency(f"MuJoCo finds no OpenGL ({os.environ['MUJOCO_GL']}).", _DRIVERS) from error
