"""The images of act requests, and those of earlier requests that a server still holds for the next ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from distrl.core.errors import ProtocolError
from distrl.core.messages import ActRequest, RejectCode
from distrl.core.types import image_digest, shown_images

MAX_BYTES = 128 * 2**20
"""About a thousand screenshots of a phone: those of the running episodes of some sixty slots."""


class HeldImages:
    """Encoded images by digest; those not asked for the longest leave first. Used by one thread.

    Args:
        max_bytes: So much is held at most.

    Attributes:
        num_received_bytes, num_spared_bytes: What came with requests so far, and what did not have to; of
            those that `of` refused neither.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._images: OrderedDict[str, bytes] = OrderedDict()
        self.num_received_bytes = 0
        self.num_spared_bytes = 0

    def of(self, request: ActRequest, blobs: Sequence[bytes | memoryview]) -> dict[str, bytes]:
        """The images of a request by digest: all that it shows, sent with it or held here.

        Args:
            request: Names them.
            blobs: The bytes of those that were sent.

        Raises:
            ProtocolError: "not-found" if one of `request.held` is not held; "malformed" or "digest" if the
                request does not fit its frames.
        """
        held = set(request.held)
        sent = [digest for digest in request.images if digest not in held]
        _check(request, sent, blobs)
        images = {}
        for digest, blob in zip(sent, blobs, strict=True):
            images[digest] = bytes(blob)
            if image_digest(images[digest]) != digest:
                raise ProtocolError(RejectCode.DIGEST.value, f"image {digest:.40} has another digest")
        for digest in request.held:
            if digest not in self._images:
                raise ProtocolError(RejectCode.NOT_FOUND.value, f"image {digest:.40} is not held here")
            images[digest] = self._images[digest]
        self.num_spared_bytes += sum(len(images[digest]) for digest in held)
        self._hold(images, sent)
        return images

    def _hold(self, images: dict[str, bytes], sent: Sequence[str]) -> None:
        for digest in sent:
            self.num_received_bytes += len(images[digest])
            if digest not in self._images:
                self._images[digest] = images[digest]
                self._num_bytes += len(images[digest])
        for digest in images:
            self._images.move_to_end(digest)
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= len(self._images.popitem(last=False)[1])


def _check(request: ActRequest, sent: Sequence[str], blobs: Sequence[bytes | memoryview]) -> None:
    """That a request names each image that it shows, and brings each that it does not take for held."""
    named = set(request.images)
    if not named.issuperset(request.held):
        raise ProtocolError(RejectCode.MALFORMED.value, "an image is named as held, but not among the images")
    if len(blobs) != len(sent):
        raise ProtocolError(
            RejectCode.MALFORMED.value, f"{len(sent)} images are to be sent but {len(blobs)} frames came"
        )
    if request.prefix_images and not request.prefix:
        raise ProtocolError(RejectCode.MALFORMED.value, "images of a prefix, but no prefix")
    if {*request.prefix_images, *shown_images(request.messages)} - named:
        raise ProtocolError(RejectCode.MALFORMED.value, "the chat shows an image that was not sent")
