"""Publication of weights: the policy's tensors as bytes, under a version that never goes back."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Literal, Protocol

from distrl.core.messages import WeightInfo
from distrl.core.policies import weights_io
from distrl.core.policies.base import Policy
from distrl.core.weights import Buffer, describe

_log = logging.getLogger(__name__)


class Announcer(Protocol):
    """Where weights are offered: `LearnerServer`."""

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None:
        """Offers and announces `data`."""
        ...


class Publisher:
    """Counts versions.

    The newest version is noted in a file before it is announced, so that a learner restarted from an older
    checkpoint goes on above it: two different weights never share a number.

    Args:
        policy: What is published.
        server: Where.
        version_file: Remembers the newest version.
    """

    def __init__(self, policy: Policy, server: Announcer, version_file: Path) -> None:
        self._policy, self._server, self._file = policy, server, version_file
        self.version = int(version_file.read_text()) if version_file.exists() else 0

    def publish(self) -> WeightInfo:
        """Publishes the present weights as the next version."""
        data = weights_io.to_bytes(self._policy.published_state())
        kind: Literal["full", "adapter"] = "adapter" if self._policy.published_kind() == "adapter" else "full"
        info = describe(self.version + 1, data, kind)
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(f"{info.version}\n")
        os.replace(temporary, self._file)
        self.version = info.version
        self._server.publish_weights(info, data)
        _log.info("published weights %d (%d bytes)", info.version, info.size_bytes)
        return info
