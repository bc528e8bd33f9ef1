"""Trajectories as bytes for disks: msgpack of field names and values, as on the wire."""

from __future__ import annotations

import msgpack
from pydantic import ValidationError

from distrl.core.errors import StoreError
from distrl.core.types import Trajectory


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
    return packed


def unpack_trajectory(data: bytes) -> Trajectory:
    """The trajectory in `data`.

    Raises:
        StoreError: The bytes are no trajectory of this version.
    """
    try:
        return Trajectory.model_validate(msgpack.unpackb(data, raw=False))
    except (ValueError, TypeError, msgpack.UnpackException, ValidationError) as error:
        raise StoreError(f"Stored bytes are no trajectory: {error}.", "Was the file damaged?") from error
