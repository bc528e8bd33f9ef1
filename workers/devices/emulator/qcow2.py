"""The base of a QCOW2 image: an AVD's changes lie in overlays that name the image beneath by its path.

The header (QEMU's docs/interop/qcow2.txt) has, big-endian: magic `QFI\\xfb` at 0, the offset of the base's
name at 8 (8 bytes), the length of that name at 16 (4 bytes), and log2 of the cluster size at 20 (4 bytes).
Name and header lie in the first cluster.
"""

from __future__ import annotations

import struct
from pathlib import Path

from distrl.workers.devices.errors import EmulatorError

_MAGIC = b"QFI\xfb"
_MAX_NAME = 1023


def base_of(image: Path) -> str | None:
    """The path of the image beneath; None if this is no QCOW2 image or has none.

    Raises:
        EmulatorError: If the file cannot be read.
    """
    try:
        with image.open("rb") as file:
            header = file.read(24)
            place = _name_place(header)
            if place is None:
                return None
            file.seek(place[0])
            return file.read(place[1]).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise EmulatorError(f"{image} cannot be read: {error.strerror}.", "Is the AVD complete?") from error


def set_base(image: Path, base: str) -> None:
    """Names another image beneath, of the same content.

    Raises:
        EmulatorError: If the name does not fit into the header.
    """
    name = base.encode("utf-8", "surrogateescape")
    with image.open("r+b") as file:
        header = file.read(24)
        place = _name_place(header)
        assert place is not None, f"{image} has no base"
        offset, old_length = place
        cluster = 1 << struct.unpack_from(">I", header, 20)[0]
        if len(name) > old_length:
            file.seek(offset + old_length)
            behind = file.read(len(name) - old_length)
            if len(name) > _MAX_NAME or offset + len(name) > cluster or behind.strip(b"\0"):
                raise EmulatorError(
                    f"the path {base!r} does not fit into the header of {image.name}.",
                    f"Choose a name at most {len(name) - old_length} characters shorter.",
                )
        file.seek(offset)
        file.write(name.ljust(old_length, b"\0"))
        file.seek(16)
        file.write(struct.pack(">I", len(name)))


def _name_place(header: bytes) -> tuple[int, int] | None:
    """Offset and length of the base's name."""
    if len(header) < 24 or header[:4] != _MAGIC:
        return None
    offset, length = struct.unpack_from(">QI", header, 8)
    return (offset, length) if offset and 0 < length <= _MAX_NAME else None
