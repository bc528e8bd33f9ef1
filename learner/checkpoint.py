"""The learner's checkpoints: policy, critic, optimisers, random states, replay, scheduler, progress.

    step_N/  policy/ (as the policy saves itself)  critic.safetensors  training.pt  state.json  files.json

No pickle is read: training.pt holds tensors and plain containers and is loaded with `weights_only=True`.
Trajectories are referred to by id; they are in the store.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from distrl.core import checkpoints
from distrl.core.errors import CheckpointError
from distrl.core.policies import weights_io
from distrl.learner.engine import Engine

WARM_START = "step_0"


class Checkpointer:
    """Writes and reads checkpoints of one run; what a killed process left half written is removed.

    Args:
        directory: The run's `checkpoints/`. No other process writes there.
        engine: Networks and optimisers.
        keep: How many of the newest stay; the warm start `step_0` and what a pointer names stay besides.
    """

    def __init__(self, directory: Path, engine: Engine, keep: int) -> None:
        self.directory, self._engine, self._keep = directory, engine, keep
        checkpoints.remove_unfinished(directory)

    def save(self, updates: int, state: dict[str, Any], protected: Collection[str] = ()) -> str:
        """Writes `step_{updates}`, lets `latest` point to it and deletes old ones. Returns its name.

        The checkpoint of the same update may exist (a stop, or an evaluation, right after a save). It stays:
        networks cannot have changed since, and what came in meanwhile is in the store.

        Args:
            state: JSON-able: progress, replay, scheduler, ingest.
            protected: Names that must stay.

        Raises:
            CheckpointError: The disk is full or not writable; nothing of the checkpoint is left.
        """
        name = f"step_{updates}"
        if checkpoints.pointed(self.directory, "latest") == name:
            return name

        def fill(path: Path) -> None:
            with self._engine.gathered(is_full=True):
                self._engine.policy.save(path / "policy")
            weights_io.write(path / "critic.safetensors", self._engine.critic.state_dict())
            states = self._engine.state_dict()
            with (path / "training.pt").open("wb") as file:  # by a path, torch would not say why it cannot
                torch.save(states, file)
            (path / "state.json").write_text(json.dumps(state))

        checkpoints.write_checkpoint(self.directory, name, fill)
        checkpoints.point(self.directory, "latest", name)
        checkpoints.remove_old(self.directory, self._keep, {WARM_START, name, *protected})
        return name

    def load(self) -> dict[str, Any] | None:
        """Restores networks, optimisers and random states from the newest whole checkpoint.

        Returns:
            The saved `state`; None if there is no checkpoint yet.

        Raises:
            CheckpointError: As `checkpoints.to_resume_from`; or it is of another policy.
        """
        path = checkpoints.to_resume_from(self.directory)
        if path is None:
            return None
        engine = self._engine
        engine.policy.load(path / "policy")
        weights_io.load_into(engine.critic.state_dict(), path / "critic.safetensors")
        try:
            engine.load_state_dict(torch.load(path / "training.pt", map_location="cpu", weights_only=True))
            state = json.loads((path / "state.json").read_text())
        except (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
            raise CheckpointError(
                f"{path} does not fit this learner: {error}.", "Resume with the run's own configuration."
            ) from error
        assert isinstance(state, dict)
        return state
