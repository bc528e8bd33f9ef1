"""What robot arms in MuJoCo share: how motions are executed, when an episode ends, how pictures are drawn.

An action is a motion: rows of numbers in [-1, 1], each held for `repeat` simulated steps. An episode ends
when the simulator first reports success, or after `limit` simulated steps.

Pictures are drawn by MuJoCo without a screen, on CPUs by Mesa. Shadows, reflections and multisampling are
off, and small pictures are drawn with simpler meshes: one of Meta-World then takes 4 ms instead of 125.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from PIL import Image

from distrl.core.actions import MAX_ROWS, Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency
from distrl.core.types import Task
from distrl.workers.envs.base import Frame, StepResult

SMALL = 128
"""Pixels up to which pictures are drawn with simpler meshes: a centimetre can hardly be seen there."""
_CELL_M = 0.01
_DRIVERS = "Install Mesa (Debian: apt install libegl1 libgl1-mesa-dri); or set MUJOCO_GL=osmesa (libosmesa6)."


@dataclass(frozen=True)
class View:
    size: int
    camera: str
    zoom: float


class Arm(ABC):
    """One task's simulation, kept for later episodes.

    Used by one thread, because a picture is drawn in an OpenGL context of the thread that drew the first.

    Args:
        model, data: MuJoCo's.
        upside_down: Cameras whose pictures are turned round.
        hidden: The groups of shapes that are not drawn.
    """

    is_solved = False
    """Whether the simulator reported success at any step of the episode."""

    def __init__(
        self,
        model: Any,
        data: Any,
        view: View,
        upside_down: Collection[str] = (),
        hidden: Collection[int] = (),
    ) -> None:
        mujoco = import_module("mujoco")
        self._data, self._view, self._is_turned = data, view, view.camera in upside_down
        camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, view.camera)
        if camera < 0:
            raise EnvError(f"the scene has no camera {view.camera!r}.", "Correct env.options.camera.")
        half = math.tan(math.radians(model.cam_fovy[camera] / 2)) / view.zoom
        model.cam_fovy[camera] = 2 * math.degrees(math.atan(half))
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        if view.size <= SMALL:
            _simplify(model)
        try:
            self._renderer = mujoco.Renderer(model, view.size, view.size)
        except Exception as error:  # the OpenGL libraries have no common one
            raise MissingDependency(f"MuJoCo cannot draw pictures here: {error}.", _DRIVERS) from error
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            self._renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = 0
        self._shown = mujoco.MjvOption()
        self._shown.geomgroup[list(hidden)] = 0

    @abstractmethod
    def reset(self, task: Task) -> None:
        """Puts the arm and the objects to where the task says. Raises TaskError if there is no such place."""

    @abstractmethod
    def move(self, row: Sequence[float]) -> None:
        """One simulated step."""

    @property
    @abstractmethod
    def state(self) -> tuple[float, ...]:
        """What the arm measures of itself."""

    def picture(self) -> Image.Image:
        self._renderer.update_scene(self._data, self._view.camera, self._shown)
        pixels = self._renderer.render()
        return Image.fromarray(pixels[::-1, ::-1].copy() if self._is_turned else pixels)

    def close(self) -> None:
        self._renderer.close()


A = TypeVar("A", bound=Arm)


class ArmEnv(ABC, Generic[A]):
    """The arm, at one task at a time. The classes of the simulators say what their options are."""

    NAME: ClassVar[str]
    MODULE: ClassVar[str]
    INSTALL: ClassVar[str]
    VERSIONS: ClassVar[tuple[str, ...]]
    """The distributions that results depend on, under all their names."""
    AXES: ClassVar[int]
    MAX_LIMIT: ClassVar[int]

    def __init__(
        self, size: int, repeat: int, chunk: int, limit: int, camera: str, zoom: float, keep: int = 50
    ) -> None:
        for name, value, low, high in (
            ("size", size, 16, 512),
            ("repeat", repeat, 1, 50),
            ("chunk", chunk, 1, MAX_ROWS),
            ("limit", limit, 1, self.MAX_LIMIT),
            ("zoom", zoom, 0.5, 8),
            ("keep", keep, 1, 1000),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must be a number from {low} to {high}, not {value!r}")
        if find_spec(self.MODULE) is None:
            raise MissingDependency(f"Robot arms need {self.NAME}, which is not installed.", self.INSTALL)
        self._repeat, self._chunk, self._limit, self._keep = repeat, chunk, limit, keep
        self._view = View(size, camera, zoom)
        self._app = self.simulator()  # in every record
        self._arms: dict[str, A] = {}
        self._arm: A | None = None
        self._steps = 0

    @classmethod
    def simulator(cls) -> str:
        """The versions that results depend on: the same policy solves less or more with another MuJoCo."""
        found = []
        for name in cls.VERSIONS:
            with suppress(PackageNotFoundError):
                found.append(f"{name} {version(name)}")
        return ", ".join(found)

    @abstractmethod
    def _make(self, task: Task) -> A:
        """The simulation of a task's `params.env`. Raises TaskError for unknown ones."""

    @abstractmethod
    def expert_action(self) -> Action:
        """The expert's next `chunk` rows, each the mean of what it does in `repeat` steps."""

    def max_actions(self, rows: int) -> int:
        """How many motions with so many rows an episode has at most."""
        return -(-self._limit // (self._repeat * rows))

    def reset(self, task: Task) -> Frame:
        """Puts the arm and the objects to where the task says. Raises TaskError for unknown tasks."""
        name = str(task.params.get("env"))
        if (found := self._arms.pop(name, None)) is None:
            while len(self._arms) >= self._keep:  # the one that was used longest ago
                self._arms.pop(next(iter(self._arms))).close()
            found = self._make(task)
        self._arm, self._arms[name], self._steps = found, found, 0
        found.reset(task)
        return self._frame()

    def step(self, action: Action) -> StepResult:
        """Executes the rows of a motion, up to the end of the episode; any other action does nothing."""
        arm = self._begun()
        if action.kind is ActionKind.MOTION:
            if len(action.motion[0]) != self.AXES:
                raise EnvError(
                    f"a motion of this arm has {self.AXES} numbers in a row, not {len(action.motion[0])}.",
                    f"Set agent.options.axes to {self.AXES}.",
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
        """1 if the simulator reported success at any step."""
        return float(self._begun().is_solved)

    def close(self) -> None:
        for arm in self._arms.values():
            arm.close()
        self._arms.clear()
        self._arm = None

    def _begun(self) -> A:
        if self._arm is None:
            raise EnvError("the arm has no task.", "Call reset first.")
        return self._arm

    def _frame(self) -> Frame:
        arm = self._begun()
        return Frame.of(arm.picture(), self._app, arm.state)


def load_simulator(module: str, name: str, install: str) -> Any:
    """A simulator's module. MuJoCo reads from the environment variable MUJOCO_GL how it draws."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    os.environ.setdefault("LP_NUM_THREADS", "0")  # else Mesa draws with all cores
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependency(f"{name} cannot be imported: {error}.", install) from error
    except AttributeError as error:  # OpenGL's binding finds no library
        raise MissingDependency(f"MuJoCo finds no OpenGL ({os.environ['MUJOCO_GL']}).", _DRIVERS) from error


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
