"""The pictures of requests as the policy reads them; those of running episodes are decoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from torch import Tensor

from distrl.core.policies.images import check_total

MAX_BYTES = 2**30
"""Some 550 screenshots as a model reads them at 660,000 pixels: in mode `incremental`, in which each request
shows all pictures of its episode so far, those of 36 slots at their fifteenth step."""
DECODERS = 4  # threads; Pillow lets others run while it decodes and resizes


class DecodedImages:
    """Decodes pictures, several at a time, and keeps them by digest; the least recently used leave first.

    Any thread. The threads that decode are idle between requests, and end with this object.

    Args:
        decode: From encoded bytes to what the policy reads; called by several threads at once.
        max_bytes: So much is kept at most.
    """

    def __init__(self, decode: Callable[[bytes], Tensor], max_bytes: int = MAX_BYTES) -> None:
        self._decode = decode
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._images: OrderedDict[str, Tensor] = OrderedDict()
        self._decoders = ThreadPoolExecutor(DECODERS, "decode")

    def of(self, digests: Sequence[str], images: Mapping[str, bytes | memoryview]) -> tuple[Tensor, ...]:
        """The pictures of `digests`, in their order.

        Args:
            digests: Which; one may be there more than once.
            images: Encoded bytes by digest.

        Raises:
            PolicyError: One is unreadable, the first of those that are; or they have too many pixels.
        """
        found = self._kept(digests)
        missing = [digest for digest in dict.fromkeys(digests) if digest not in found]
        encoded = [bytes(images[digest]) for digest in missing]
        if len(missing) > 1:  # a single one is checked when it is decoded
            check_total(encoded)
        decode_all = self._decoders.map if len(missing) > 1 else map
        decoded = decode_all(self._decode, encoded)
        for digest, image in zip(missing, decoded, strict=True):
            found[digest] = image
            self._keep(digest, image)
        return tuple(found[digest] for digest in digests)

    def _kept(self, digests: Sequence[str]) -> dict[str, Tensor]:
        with self._lock:
            found = {digest: self._images[digest] for digest in digests if digest in self._images}
            for digest in found:
                self._images.move_to_end(digest)
            return found

    def _keep(self, digest: str, image: Tensor) -> None:
        with self._lock:
            if digest in self._images or image.nbytes > self._max_bytes:
                return
            self._images[digest] = image
            self._num_bytes += image.nbytes
            while self._num_bytes > self._max_bytes:
                _, oldest = self._images.popitem(last=False)
                self._num_bytes -= oldest.nbytes
