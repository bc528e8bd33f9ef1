"""Robot arms: the 50 tasks of Meta-World, a Sawyer arm over a table in MuJoCo, seen by a camera.

A row of a motion has four numbers: the hand's way along x, y and z (1 is one centimetre a simulated step) and
how hard the gripper closes. Success counts when Meta-World first reports it, as in its own evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from distrl.core.actions import Action
from distrl.core.errors import TaskError
from distrl.core.types import Task
from distrl.workers.envs.arm import Arm, ArmEnv, View, load_simulator

AXES = 4
UPSIDE_DOWN = frozenset({"corner2"})
_INSTALL = "Install the extra: pip install 'distrl[vla]'."


class MetaWorldEnv(ArmEnv["_Arm"]):
    """The arm, at one task at a time. A task's seed places the objects.

    Args:
        size: Width and height of pictures in pixels.
        repeat: Simulated steps for which each row of a motion is held.
        chunk: Rows of the expert's motions; an agent writes as many of them as it has in an action.
        limit: Simulated steps of an episode; Meta-World's own limit is 500.
        camera: A camera of Meta-World's scenes: corner, corner2, corner3, corner4, topview, gripperPOV,
            behindGripper.
        zoom: How much larger than Meta-World shows them things are in the picture.
        objects: Whether `Observation.state` has the objects and the goal, too, which no arm can measure.
    """

    NAME, MODULE, INSTALL, VERSIONS = "Meta-World", "metaworld", _INSTALL, ("mujoco", "metaworld")
    AXES, MAX_LIMIT = AXES, 500
    seed_is_instance = True

    def __init__(
        self,
        size: int = 96,
        repeat: int = 1,
        chunk: int = 8,
        limit: int = 500,
        camera: str = "corner2",
        zoom: float = 1.0,
        objects: bool = False,
    ) -> None:
        self._sees_objects = objects
        super().__init__(size, repeat, chunk, limit, camera, zoom)

    def _make(self, task: Task) -> _Arm:
        return _Arm(str(task.params.get("env")), self._view, self._sees_objects)

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


class _Arm(Arm):
    """It takes 0.4 s to make, and 80 MB."""

    def __init__(self, name: str, view: View, sees_objects: bool) -> None:
        load()
        self._sees_objects = sees_objects
        self._mujoco = import_module("mujoco")
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
        self._kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        self._seen: Any = None
        super().__init__(self._env.model, self._env.data, view, UPSIDE_DOWN)

    def reset(self, task: Task) -> None:
        self._env.seed(task.seed)
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
        """The hand's place in metres and how far the gripper is open, 0 to 1.

        With `objects` also the ways from the hand to two objects, each with its quaternion, and to the goal.
        """
        measured = [self._seen[:AXES]]
        if self._sees_objects:
            hand = self._seen[:3]
            for start in (4, 11):
                measured += [self._seen[start : start + 3] - hand, self._seen[start + 3 : start + 7]]
            measured.append(self._seen[-3:] - hand)
        return tuple(round(float(number), 4) for number in np.concatenate(measured))

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


def load() -> Any:
    """The module metaworld."""
    return load_simulator("metaworld", "Meta-World", _INSTALL)
