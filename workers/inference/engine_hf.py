"""The engine on transformers: whole batches of completions by the policy itself.

`prepare` may run in another thread than `submit` and `load`: it only reads the tokenizer, and decoded images,
which have a lock and threads of their own. `submit` runs its batch before it returns, in the thread of
`load`, so that weights never change within a batch.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence

import torch
from torch import Tensor

from distrl.core.errors import DistrlError
from distrl.core.policies.base import Policy
from distrl.core.types import Completion
from distrl.workers.inference.engine import Engine, OnDone, Prepared

_log = logging.getLogger(__name__)


class HFEngine(Engine):
    """A policy, on its device and in eval mode, behind batches; `seed` is that of the sampling."""

    def __init__(self, policy: Policy, seed: int) -> None:
        super().__init__(policy)
        self._generator = torch.Generator(device=policy.device).manual_seed(seed)
        self._lost: str | None = None  # what the device said when it was lost

    def submit(self, requests: Sequence[Prepared], on_done: OnDone) -> None:
        """Runs a batch. If it fails, its halves are tried, so that only the requests at fault fail."""
        try:
            results = list(zip(range(len(requests)), self.act(requests), strict=True))
        except Exception as error:  # noqa: BLE001 - what fails must not end the service for everybody
            if isinstance(error, torch.AcceleratorError):  # after which nothing of this process runs there
                self._lost = str(error)
            if len(requests) == 1:
                on_done(0, error)
                return
            _log.warning("A batch of %d failed; trying its halves: %s", len(requests), traceback.format_exc())
        else:
            for index, completion in results:
                on_done(index, completion)
            return
        # Not in the handler: the error would hold the batch's tensors while the halves need the memory.
        if self.policy.device.type == "cuda" and self._lost is None:
            torch.cuda.empty_cache()
        middle = (len(requests) + 1) // 2
        self.submit(requests[:middle], on_done)
        self.submit(requests[middle:], lambda index, result: on_done(middle + index, result))

    def act(self, requests: Sequence[Prepared]) -> list[Completion]:
        """One completion for each request, all with the present weights."""
        batch = self.policy.collate([r.prompt_ids for r in requests], [r.images for r in requests])
        generated = self.policy.generate(batch, [r.sampling for r in requests], self._generator)
        return [
            self.completion(request, result, self.version)
            for request, result in zip(requests, generated, strict=True)
        ]

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        self.policy.load_published(state)
        self.version = version

    def check(self) -> None:
        """Raises a DistrlError if the device is lost: another process may have it again."""
        if self._lost is not None:
            raise DistrlError(f"The device is lost: {self._lost}", "Start the server again.")

    def close(self) -> None:
        """Holds nothing that must be freed."""
