"""Publication of weights: the policy's tensors as bytes, under a version that never goes back."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from distrl.core.errors import CheckpointError
from distrl.core.files import write_bytes_atomically
from distrl.core.messages import WeightInfo
from distrl.core.policies import weights_io
from distrl.core.weights import Buffer, describe
from distrl.learner.server import KEPT_WEIGHTS
from distrl.learner.transfer import WeightTransfer

_log = logging.getLogger(__name__)


class Publishable(Protocol):
    """What is published: a policy, of chats or of continuous control."""

    def published_state(self) -> Mapping[str, Tensor]: ...

    def published_metadata(self) -> Mapping[str, str]: ...

    def published_kind(self) -> str: ...


class Announcer(Protocol):
    """Takes weights to those who act with them, such as `distrl.learner.server.ServerBase`."""

    def publish_weights(self, info: WeightInfo, data: Buffer) -> None: ...


class Publisher:
    """Counts versions.

    The newest version is noted in a file before it is announced, so that a learner restarted from an older
    checkpoint continues above it: two different weights never share a number.

    With a `lag` of N, version v is announced when version v + N is made: all servers act, in validation too,
    with weights N versions behind. As long as there are no N older ones, the oldest of this process is
    announced.

    Args:
        lag: Versions between the newest and what is announced.

    Attributes:
        version: The newest version, announced or held back.
        recent: The bytes of the newest announced versions, oldest first; there are none of those that
            `transfer` took to all servers.
        transfer: Sends full weights from GPU to GPU, with `learner.transfer: nccl`.
    """

    def __init__(
        self,
        policy: Publishable,
        server: Announcer,
        version_file: Path,
        lag: int = 0,
        level: int = logging.INFO,
    ) -> None:
        self._policy, self._server, self._file = policy, server, version_file
        self._level = level
        self._held: deque[tuple[WeightInfo, Buffer]] = deque(maxlen=lag + 1)  # the newest versions
        self._announced = -1
        self.recent: OrderedDict[int, Buffer] = OrderedDict()
        self.transfer: WeightTransfer | None = None
        self.version = _noted(version_file)

    def publish(self, catch_up: bool = False) -> WeightInfo:
        """Makes the present weights the next version; announces it, or with a lag the one that is due.

        Args:
            catch_up: Announce the newest in spite of the lag, which starts again.
        """
        state, metadata = self._policy.published_state(), self._policy.published_metadata()
        write_bytes_atomically(self._file, f"{self.version + 1}\n".encode())
        self.version += 1
        is_everywhere = self.transfer is not None and self.transfer.send(state, self.version)
        digest = hashlib.sha256()
        data: Buffer = b"" if is_everywhere else weights_io.to_bytes(state, metadata, digest)
        if catch_up:
            self._held.clear()
        kind: Literal["full", "adapter"] = "adapter" if self._policy.published_kind() == "adapter" else "full"
        self._held.append((describe(self.version, data, kind, digest=digest.hexdigest()), data))
        info, data = self._held[0]
        if info.version != self._announced:
            self._server.publish_weights(info, data)
            self._announced = info.version
            if data:
                self.recent[info.version] = data
            while len(self.recent) > KEPT_WEIGHTS:  # as the server, which has the same buffers
                self.recent.popitem(last=False)
            _log.log(
                self._level,
                "published weights %d (%d bytes), newest %d", info.version, info.size_bytes, self.version,
            )  # fmt: skip
        return info


def _noted(version_file: Path) -> int:
    """The newest version that a learner of this run noted; 0 if there never was one."""
    if not version_file.exists():
        return 0
    try:
        return int(version_file.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{version_file}, which records the newest version of the weights, does not contain a number.",
            "Write a number into it that is at least the last `published weights` of the learner's log.",
        ) from error
