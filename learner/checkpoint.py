"""The learner's checkpoints: policy, critic, optimisers, random states, replay, scheduler, progress.

    step_N/  policy/ (as the policy saves itself)  critic.safetensors  training.pt  state.json  files.json

No pickle is read: training.pt holds tensors and plain containers and is loaded with `weights_only=True`.
Trajectories are referred to by id; they are in the store.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from distrl.core import checkpoints
from distrl.core.errors import CheckpointError
from distrl.core.policies import weights_io
from distrl.learner.context import Context, Progress
from distrl.learner.train_step import TrainStep

WARM_START = "step_0"


class Checkpointer:
    """Writes and reads checkpoints of one run; removes what a killed process left half written.

    Args:
        directory: The run's `checkpoints/`. No other process writes there.
        keep: How many of the newest stay; the warm start `step_0` and what a pointer names stay besides.
    """

    def __init__(self, directory: Path, train_step: TrainStep, keep: int) -> None:
        self.directory, self._train_step, self._keep = directory, train_step, keep
        checkpoints.remove_unfinished(directory)

    def save(self, updates: int, state: dict[str, Any], protected: Collection[str] = ()) -> str:
        """Writes `step_{updates}`, lets `latest` point to it and deletes old ones. Returns its name.

        The checkpoint of the same update may exist (a stop, or a validation, right after a save). It stays:
        networks cannot have changed since, and what arrived meanwhile is in the store.
        """
        name = f"step_{updates}"
        if checkpoints.pointed(self.directory, "latest") == name:
            return name

        def fill(path: Path) -> None:
            with self._train_step.gathered():
                self._train_step.policy.save(path / "policy")
            weights_io.write(path / "critic.safetensors", self._train_step.critic.state_dict())
            states = self._train_step.state_dict()
            with (path / "training.pt").open("wb") as file:  # by a path, torch would not say why it cannot
                torch.save(states, file)
            (path / "state.json").write_text(json.dumps(state))

        checkpoints.write_checkpoint(self.directory, name, fill)
        checkpoints.point(self.directory, "latest", name)
        checkpoints.remove_old(self.directory, self._keep, {WARM_START, name, *protected})
        return name

    def load(self) -> dict[str, Any] | None:
        """Restores networks, optimisers and random states from the newest whole checkpoint, if any."""
        path = checkpoints.to_resume_from(self.directory)
        if path is None:
            return None
        own = self._train_step
        own.policy.load(path / "policy")
        weights_io.load_into(own.critic.state_dict(), path / "critic.safetensors")
        try:
            own.load_state_dict(torch.load(path / "training.pt", map_location="cpu", weights_only=True))
            state = json.loads((path / "state.json").read_text())
        except (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
            raise CheckpointError(
                f"{path} does not fit this learner: {error}.", "Resume with the run's own configuration."
            ) from error
        assert isinstance(state, dict)
        return state


def state_of(context: Context) -> dict[str, Any]:
    """The JSON part of a checkpoint."""
    clock, episodes = context.clock, context.ingest.episodes
    progress = replace(context.progress, elapsed_s=clock.elapsed_s(), online_s=clock.online_s())
    return {
        "progress": asdict(progress),
        "replay": context.replay.state_dict(),
        "scheduler": context.scheduler.state_dict(),
        "ingest": context.ingest.state_dict(),
        "rng": context.rng.bit_generator.state,
        "values": {name: list(episode.values) for name, episode in episodes.items() if episode.values},
    }


def restore(context: Context, state: dict[str, Any]) -> None:
    """Restores `state_of`; then every trajectory that arrived after it is taken from the store."""
    try:
        vars(context.progress).update(asdict(Progress(**state["progress"])))
        context.replay.load_state_dict(state["replay"])
        context.scheduler.load_state_dict(state["scheduler"])
        context.rng.bit_generator.state = state["rng"]
        ingest = {name: state["ingest"][name] for name in context.ingest.state_dict()}
    except (KeyError, TypeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
        raise CheckpointError(
            f"The checkpoint's state.json {what}.",
            "Resume with the version of distrl that wrote it, or start a new run.",
        ) from error
    context.scheduler.set_updates(context.progress.updates)
    context.ingest.restore(ingest)
    episodes, values = context.ingest.episodes, state.get("values", {})
    for name in episodes.keys() & values.keys():
        episodes[name] = replace(episodes[name], values=tuple(values[name]))
