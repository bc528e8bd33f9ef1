"""vLLM's weight transfer with TCP in place of NCCL: both ends are vLLM's own but for the bytes' way.

`RANKS` is named in vLLM's option `worker_extension_cls`, so that its workers import this module.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from vllm.distributed.utils import StatelessProcessGroup
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.nccl_engine import (
    NCCLTrainerWeightTransferEngine,
    NCCLWeightTransferEngine,
    NCCLWeightTransferInitInfo,
)

WORKER_EXTENSION = "tcp_transfer.Extension"


class Extension:
    """Adds nothing to vLLM's workers."""


class ServerEnd(NCCLWeightTransferEngine):  # type: ignore[misc]
    """Receives tensor by tensor."""

    def init_transfer_engine(self, init_info: Any) -> None:
        assert init_info.packed, "vLLM's trainer packs"
        rank = init_info.rank_offset + self.parallel_config.rank
        self._group = StatelessProcessGroup.create(
            init_info.master_address, init_info.master_port, rank, init_info.world_size
        )

    def update_weights(self, update_info: dict[str, Any]) -> None:
        info = self.parse_update_info(update_info)
        for name, dtype, shape in zip(info.names, info.dtype_names, info.shapes, strict=True):
            tensor = self._group.broadcast_obj(None, 0)
            assert (str(tensor.dtype), list(tensor.shape)) == (f"torch.{dtype}", list(shape))
            self.model.load_weights([(name, tensor)])

    def shutdown(self) -> None:
        self._group = None


class TrainerEnd(NCCLTrainerWeightTransferEngine):  # type: ignore[misc]
    """Sends tensor by tensor."""

    @classmethod
    def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> TrainerEnd:
        engine = cls(client=client, source=source)
        told = NCCLWeightTransferInitInfo(
            master_address=init_info.master_address,
            master_port=init_info.master_port,
            rank_offset=1,
            world_size=init_info.world_size,
        )
        with ThreadPoolExecutor(1) as pool:
            joined = pool.submit(client.init_weight_transfer_engine, asdict(told))
            engine._group = StatelessProcessGroup.create(
                init_info.master_address, init_info.master_port, 0, init_info.world_size
            )
            joined.result()
        return engine

    def _broadcast(self, source: Any, meta: Any) -> None:
        for _, tensor in self._checked_iter(source, meta):
            self._group.broadcast_obj(tensor.clone(), 0)

    def shutdown(self) -> None:
        self._group = None


WeightTransferEngineFactory._registry["nccl"] = lambda: ServerEnd
WeightTransferTrainerFactory._registry["nccl"] = lambda: TrainerEnd
