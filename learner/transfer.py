"""Full weights to inference servers from GPU to GPU, by vLLM's weight transfer over NCCL.

    publisher ──► WeightTransfer.send ──► a thread: vLLM's trainer engine ═══ NCCL ═══► the servers' GPUs
                                                    │ Status.transfer                        │
                                                    ▼                                        ▼
                       broadcast ──► servers join the group once, then receive ──► heartbeats: group, version

The learner's rank 0 and all GPUs of the servers that can receive form a group, which is opened again when
these change. Each version is one broadcast. If a server fails or dies, or the deadline passes, the group is
given up: versions go out in chunks (`core.weights`), and after `RETRY_S` a new group is tried.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from distrl.core.errors import NetworkError
from distrl.core.policies import weights_io
from distrl.core.rendezvous import reachable
from distrl.core.transfer import DONE, GROUP, RANKS, Transfer

if TYPE_CHECKING:
    from distrl.learner.server import ServerBase

LIMIT_S = 120.0  # until all servers have joined a group, or have a version
RETRY_S = 300.0
POLL_S = 0.02
_log = logging.getLogger(__name__)


class WeightTransfer:
    """Sends versions to the servers that can receive them. Used by the training thread."""

    def __init__(self, servers: ServerBase) -> None:
        self._servers = servers
        self.group: Transfer | None = None
        self._engine: Any = None  # vLLM's `TrainerWeightTransferEngine`
        self._number = int(time.time())  # of the newest group; an earlier learner's were smaller
        self._state: Mapping[str, Tensor] = {}
        self._retry_at = 0.0
        self._is_everywhere = False

    def send(self, state: Mapping[str, Tensor], version: int) -> bool:
        """Sends a version. Returns whether every server that is alive has it now."""
        self._is_everywhere, self._state = False, state
        stats = self._servers.server_stats()
        ranks = {name: int(stats[name][RANKS]) for name in sorted(stats) if RANKS in stats[name]}
        if not ranks or time.monotonic() < self._retry_at:
            return False
        try:
            if self.group is None or ranks.keys() != self.group.offsets.keys() - self._outsiders():
                self._open(ranks)
            self._together(version, self._engine.send_weights)
        except Exception as error:  # noqa: BLE001 - whatever it is, chunks do not need it
            reason = str(error) or type(error).__name__
            _log.warning("weights go out in chunks for %.0f minutes: %s", RETRY_S / 60, reason)
            self._retry_at = time.monotonic() + RETRY_S
            self._close()
            return False
        finally:
            self._state = {}
        self._is_everywhere = not self._outsiders()
        return self._is_everywhere

    @property
    def is_missed(self) -> bool:
        """Whether a server is there now that has not received the newest version, and cannot fetch it."""
        return self._is_everywhere and bool(self._outsiders())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """What is sent, by vLLM's names: the policy's are those of its model, one level down.

        Tensors that lie in main memory (sharded ones do) go to the GPU one by one.
        """
        for name in sorted(self._state):
            device = "cuda" if torch.cuda.is_available() else "cpu"
            yield name.removeprefix("model."), self._state[name].detach().to(device)

    def announce(self) -> None:
        """Lets the servers join, or receive a version: the learner's end is ready."""
        self._servers.announce_transfer(self.group)

    def _outsiders(self) -> set[str]:
        """The servers that have not joined the group; one that was restarted has not."""
        assert self.group is not None
        stats = self._servers.server_stats().items()
        return {name for name, one in stats if one.get(GROUP) != self.group.group}

    def _open(self, ranks: Mapping[str, int]) -> None:
        self._close()
        self._number += 1
        bound = self._servers.endpoints.weights
        listens, reached = (urlsplit(one).hostname or "127.0.0.1" for one in (bound, reachable(bound)))
        with socket.create_server((listens, 0)) as found:
            port = found.getsockname()[1]
        self.group = group = Transfer(
            group=self._number,
            host=reached,
            port=port,
            num_ranks=1 + sum(ranks.values()),
            offsets=dict(zip(ranks, accumulate(ranks.values(), initial=1), strict=False)),
            layout=weights_io.layout(self._state)[1],
        )
        self._engine = self._together(0, lambda: open_engine(self, listens, group))
        _log.info("weights go to %s from GPU to GPU", ", ".join(ranks))

    def _together(self, version: int, work: Callable[[], Any]) -> Any:
        """Does the learner's `work` in a thread, until the servers too have joined (0) or have a version.

        Raises:
            NetworkError: A server failed or died, or the deadline passed; or what `work` raises.
        """
        assert self.group is not None
        self.group = self.group.model_copy(update={"version": version})
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - raised below
                done.set_exception(error)

        threading.Thread(target=run, name="weight-transfer", daemon=True).start()
        deadline = time.monotonic() + LIMIT_S
        while (late := self._late(self.group)) or not done.done():
            if done.done() and (error := done.exception()) is not None:
                raise error
            if time.monotonic() > deadline:
                raise NetworkError(f"{', '.join(late) or 'NCCL'} did not answer within {LIMIT_S:g} s.")
            time.sleep(POLL_S)
        return done.result()

    def _late(self, group: Transfer) -> list[str]:
        """The servers that have not done what is announced."""
        stats = self._servers.server_stats()
        done = {name: (one.get(GROUP), one.get(DONE)) for name, one in stats.items()}
        for name in group.offsets:
            if name not in done or done[name] == (group.group, -1):
                raise NetworkError(f"{name} {'failed' if name in done else 'is gone'}.")
        return [name for name in group.offsets if done[name] != (group.group, group.version)]

    def _close(self) -> None:
        engine, self._engine, self.group = self._engine, None, None
        self.announce()
        if engine is not None:
            engine.shutdown()  # ends what waits for a server that is gone


def open_engine(transfer: WeightTransfer, host: str, group: Transfer) -> Any:
    """Opens the learner's end of a group, on this process's current GPU; it listens at `host`."""
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    servers = SimpleNamespace(  # they start and finish by themselves
        init_weight_transfer_engine=lambda info: transfer.announce(),
        start_weight_update=lambda: None,
        update_weights=lambda info: transfer.announce(),
        finish_weight_update=lambda: None,
    )
    info = NCCLTrainerInitInfo(host, group.port, group.num_ranks, rank=0)
    source = ModuleSource(SimpleNamespace(named_parameters=transfer.tensors))
    return WeightTransferTrainerFactory.trainer_init(info, client=servers, source=source)
