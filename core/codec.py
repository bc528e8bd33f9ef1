"""Trajectories as bytes, for disks and for the wire: msgpack of field names and values, compressed by zlib.

A worker packs a trajectory once, when its episode ends: its spool, the message to the learner and the
learner's store hold the same bytes.
"""

from __future__ import annotations

import zlib

import msgpack
from pydantic import ValidationError

from distrl.core.errors import StoreError
from distrl.core.types import Trajectory

MAX_TRAJECTORY_BYTES = 16 * 2**20
"""Of a trajectory's msgpack."""

# A few compressed bytes must not ask for much memory: an empty list is one byte of msgpack, and 56 in Python.
_FREE_BYTES, _MAX_RATIO = 2**20, 32

_LEVEL = 1  # 3.4 times smaller; higher levels take longer and gain a few percent


def pack_trajectory(trajectory: Trajectory) -> bytes:
    """The bytes of `trajectory`, without its images.

    Raises:
        StoreError: A task parameter is no plain data (or nested too deep).
    """
    try:
        packed: bytes = msgpack.packb(trajectory.model_dump(), use_bin_type=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreError(
            f"Trajectory {trajectory.id} cannot be stored: {error}.", "Task parameters must be plain data."
        ) from error
    compressed = zlib.compress(packed, _LEVEL)
    return compressed if len(packed) <= _most_bytes(compressed) else packed


def _most_bytes(compressed: bytes) -> int:
    """How many bytes `compressed` may expand to."""
    return min(MAX_TRAJECTORY_BYTES, _FREE_BYTES + _MAX_RATIO * len(compressed))


def unpack(data: bytes) -> object:
    """What the bytes hold, not validated. Stores of earlier versions hold uncompressed bytes.

    Raises:
        ValueError: They are neither, expand to more than they may, or have something behind their end.
    """
    if data[:1] == b"\x78":  # zlib's first byte; a msgpack map begins with 0x80 or more
        stream = zlib.decompressobj()
        try:
            most = _most_bytes(data)
            data = stream.decompress(data, most)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not stream.eof or stream.unused_data:
            raise ValueError(f"compressed bytes are cut off, or expand to more than {most} bytes")
    try:
        return msgpack.unpackb(data, raw=False)
    except (TypeError, msgpack.UnpackException) as error:
        raise ValueError(str(error)) from error


def unpack_trajectory(data: bytes) -> Trajectory:
    """The trajectory in `data`.

    Raises:
        StoreError: The bytes are no trajectory of this version.
    """
    try:
        return Trajectory.model_validate(unpack(data))
    except (ValueError, ValidationError) as error:
        raise StoreError(f"Stored bytes are no trajectory: {error}.", "Was the file damaged?") from error
