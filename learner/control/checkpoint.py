"""Checkpoints of a master: step_N/ with policy/ (weights, statistics, how it is built) and state.json."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from distrl.core import checkpoints
from distrl.core.errors import CheckpointError
from distrl.core.policies import weights_io
from distrl.core.policies.gaussian import GaussianPolicy
from distrl.learner.control.measuring import Weights


class ControlCheckpointer:
    """Writes and reads checkpoints of one run. N is the number of gradients accepted.

    What a killed process left half written is removed.

    Args:
        directory: The run's `checkpoints/`. No other process writes there.
        policy: One like the run's, which this overwrites.
        keep: How many of the newest stay; what a pointer names stays besides.
    """

    def __init__(self, directory: Path, policy: GaussianPolicy, keep: int) -> None:
        self.directory, self._policy, self._keep = directory, policy, keep
        self._written: set[str] = set()
        checkpoints.remove_unfinished(directory)

    def save(self, weights: Weights, state: dict[str, Any], protected: Collection[str] = ()) -> str:
        """Writes `weights` unless they are there, and deletes old ones. Returns the name.

        `latest` points to the newest; what is written late, because it is being measured, is not that.

        Args:
            weights: Of one moment of this run.
            state: JSON-able, of the same moment.
            protected: Names that must stay.
        """
        name = name_of(weights)
        if name in self._written:
            return name

        def fill(path: Path) -> None:
            self._policy.load_published(weights_io.from_bytes(weights.data))
            self._policy.save(path / "policy")
            (path / "state.json").write_text(json.dumps(state))

        checkpoints.write_checkpoint(self.directory, name, fill)
        self._written.add(name)
        latest = checkpoints.step_of(checkpoints.pointed(self.directory, "latest") or "")
        if latest is None or latest < weights.step:
            checkpoints.point(self.directory, "latest", name)
        self._written -= set(checkpoints.remove_old(self.directory, self._keep, {name, *protected}))
        return name

    def load(self, policy: GaussianPolicy) -> dict[str, Any] | None:
        """The state of the newest whole checkpoint, whose weights `policy` has afterwards; None without one.

        Raises:
            CheckpointError: As `checkpoints.to_resume_from`; or it is of another policy.
        """
        path = checkpoints.to_resume_from(self.directory)
        if path is None:
            return None
        policy.load(path / "policy")
        try:
            state: dict[str, Any] = json.loads((path / "state.json").read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path / 'state.json'} is missing or damaged.", "Resume from another checkpoint."
            ) from error
        self._written.add(path.name)
        return state


def name_of(weights: Weights) -> str:
    """What a checkpoint of `weights` is called."""
    return f"step_{weights.step}"
