"""Full weights to inference servers from GPU to GPU, by vLLM's weight transfer over NCCL.

    publisher ──► WeightTransfer.send ──► a thread: vLLM's trainer engine ═══ NCCL ═══► the servers' GPUs
                        │ Status.transfer                                                    │
                        ▼                                                                    ▼
                    broadcast ──► servers join the group once, then receive ──► heartbeats: joined, received

The learner's rank 0 and all GPUs of the servers that can receive form a group, which is opened again when
these change. Each version is one broadcast. If a server does not join, fails or dies, or a deadline passes,
the group is given up: the version goes out in chunks (`core.weights`), and the next one by a new group.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distrl.core.errors import NetworkError
from distrl.core.policies import weights_io
from distrl.core.transfer import FAILED, JOINED, RANKS, STARTED_AT, Transfer

if TYPE_CHECKING:
    from distrl.learner.server import ServerBase

JOIN_S = 120.0  # until all servers have joined a group
SEND_S = 120.0  # until all servers have a version
POLL_S = 0.02
_log = logging.getLogger(__name__)


class Group:
    """The servers of a group, behind the interface by which vLLM's trainer engine calls inference servers.

    Attributes:
        state: What is sent next.
        transfer: What was announced last.
    """

    def __init__(self, servers: ServerBase, transfer: Transfer) -> None:
        self._servers, self.transfer = servers, transfer
        self._outcomes: queue.Queue[Exception | None] = queue.Queue()  # the first one counts
        self.state: Mapping[str, Tensor] = {}
        self.engine: Any = None  # vLLM's `TrainerWeightTransferEngine`

    def pairs(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors by vLLM's names: the policy's are those of its model, one level down."""
        for name in sorted(self.state):
            yield name.removeprefix("model."), self.state[name].detach()

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Lets the servers join; each adds its own rank to what it is told."""
        self._servers.announce_transfer(self.transfer)
        self._wait(JOINED, self.transfer.group, JOIN_S)

    def start_weight_update(self) -> None:
        """Servers start when they hear of a version."""

    def update_weights(self, update_info: Mapping[str, Any]) -> None:
        """Lets the servers receive the version; they know the tensors."""
        self._servers.announce_transfer(self.transfer)
        self._wait("weight_version", self.transfer.version, SEND_S)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Servers have finished when they report the version."""

    def late(self, key: str, number: int) -> list[str]:
        """The servers that have not reported the number."""
        stats = self._servers.server_stats()
        return [name for name in self.transfer.offsets if stats.get(name, {}).get(key, -1.0) < number]

    def within(self, timeout_s: float, work: Callable[[], object]) -> None:
        """Runs `work` in a thread; raises its error or that of a server, or TimeoutError."""

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised below
                self._outcomes.put(error)
            else:
                self._outcomes.put(None)

        threading.Thread(target=run, name="weight-transfer", daemon=True).start()
        try:
            error = self._outcomes.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"it has not ended within {timeout_s:g} s") from None
        if error is not None:
            raise error

    def _wait(self, key: str, number: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while late := self.late(key, number):
            stats = self._servers.server_stats()
            for name in late:
                if name not in stats or stats[name].get(FAILED) == self.transfer.group:
                    error = NetworkError(f"{name} {'failed' if name in stats else 'is gone'}.")
                    self._outcomes.put(error)  # the broadcast itself may wait for it forever
                    raise error
            if time.monotonic() > deadline:
                raise NetworkError(f"{', '.join(late)} did not answer within {timeout_s:g} s.")
            time.sleep(POLL_S)


class WeightTransfer:
    """Sends versions to the servers that can receive them. Used by the training thread.

    Args:
        host: An address of this machine that the servers reach.
        open_engine: Opens the trainer's end of a group, while its servers join.
    """

    def __init__(
        self, servers: ServerBase, host: str, open_engine: Callable[[Group, str], Any] | None = None
    ) -> None:
        self._servers, self._host, self._open_engine = servers, host, open_engine or open_nccl
        self._group: Group | None = None
        self._members: dict[str, tuple[float, float]] = {}
        self._number = int(time.time())  # of the newest group; those of an earlier learner were less
        self._left_out: set[tuple[str, float]] = set()  # servers, and when they started

    def send(self, state: Mapping[str, Tensor], version: int) -> bool:
        """Sends a version. Returns whether every server that is alive has it now."""
        members = {name: one for name, one in self._able().items() if (name, one[1]) not in self._left_out}
        if not members:
            return False
        try:
            if self._group is None or members != self._members:
                self._open(members, state)
            group = self._group
            assert group is not None
            group.state = state
            group.transfer = group.transfer.model_copy(update={"version": version})
            group.within(SEND_S, group.engine.send_weights)
        except Exception as error:  # noqa: BLE001 - whatever it is, chunks do not need it
            self._give_up(version, error)
            return False
        finally:
            if self._group is not None:
                self._group.state = {}
        return not self.has_outsiders()

    def has_outsiders(self) -> bool:
        """Whether there is a server that is not in the group, or was started since it joined."""
        able = self._able()
        alive = self._servers.server_stats()
        return any(name not in able or able[name] != self._members.get(name) for name in alive)

    def _able(self) -> dict[str, tuple[float, float]]:
        """The servers that can receive: their GPUs, and when they started."""
        stats = sorted(self._servers.server_stats().items())
        return {name: (one[RANKS], one[STARTED_AT]) for name, one in stats if RANKS in one}

    def _open(self, members: dict[str, tuple[float, float]], state: Mapping[str, Tensor]) -> None:
        self._close()
        self._number += 1
        offsets, end = {}, 1
        for name, (ranks, _) in members.items():
            offsets[name] = end
            end += int(ranks)
        _, layout = weights_io.layout(state)
        transfer = Transfer(
            group=self._number, port=_free_port(), num_ranks=end, offsets=offsets, layout=layout
        )
        group = Group(self._servers, transfer)
        group.state, self._group, self._members = state, group, members

        def open_it() -> None:
            group.engine = self._open_engine(group, self._host)

        group.within(JOIN_S, open_it)
        _log.info("weights go to %s from GPU to GPU", ", ".join(members))

    def _give_up(self, version: int, error: Exception) -> None:
        group, members = self._group, self._members
        assert group is not None
        has_joined = group.engine is not None
        late = group.late("weight_version", version) if has_joined else group.late(JOINED, self._number)
        self._left_out |= {(name, members[name][1]) for name in late or members}
        reason = str(error) or type(error).__name__
        _log.warning(
            "weights %d go out in chunks, and so do later ones to %s until they restart: %s",
            version, ", ".join(late or members), reason,
        )  # fmt: skip
        self._close()

    def _close(self) -> None:
        group, self._group, self._members = self._group, None, {}
        if group is not None and group.engine is not None:
            # NCCL may wait for a rank that is gone, and so may the end of its communicator.
            threading.Thread(target=group.engine.shutdown, name="transfer-end", daemon=True).start()
        self._servers.announce_transfer(None)


def open_nccl(group: Group, host: str) -> Any:
    """The trainer's end on this process's current GPU."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    class Source(WeightSource):  # type: ignore[misc]
        """What vLLM reads; tensors that lie in main memory (sharded ones do) go to the GPU one by one."""

        def metadata(self) -> list[Any]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in group.pairs()]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            for name, tensor in group.pairs():
                yield name, tensor.to("cuda" if torch.cuda.is_available() else "cpu")

    info = NCCLTrainerInitInfo(host, group.transfer.port, group.transfer.num_ranks, rank=0)
    return WeightTransferTrainerFactory.trainer_init(info, client=group, source=Source())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
        return port
