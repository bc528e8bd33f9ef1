"""Virtual devices on disk, small but with all the files that paths hide in."""

from __future__ import annotations

import struct
from pathlib import Path

from emulator_programs import dead_pid

from distrl.simulator.emulator.sdk import make_avd
from distrl.workers.devices.avd import Avd, AvdStore


def qcow2(path: Path, base: str, room: int = 65536) -> None:
    """An empty QCOW2 image on top of `base`; `room` bytes are the first cluster."""
    name = base.encode()
    header = struct.pack(">4sIQII", b"QFI\xfb", 3, 104, len(name), room.bit_length() - 1)
    path.write_bytes(header.ljust(104, b"\0") + name.ljust(room - 104, b"\0"))


def avd_with_snapshot(store: AvdStore, name: str = "pixel", snapshot: str = "base") -> Avd:
    """An AVD as one is that ran once and saved a snapshot."""
    avd = make_avd(store, name)
    folder = avd.directory
    (folder / "userdata-qemu.img").write_bytes(b"d" * 100)
    qcow2(folder / "userdata-qemu.img.qcow2", f"{folder}/userdata-qemu.img")
    (folder / "hardware-qemu.ini").write_text(
        f"hw.cpu.ncore = 4\ndisk.dataPartition.path = {folder}/userdata-qemu.img\n"
        f"kernel.path = /sdk/kernel\navd.name = {name}\n"
    )
    (folder / "hardware-qemu.ini.lock").write_text(str(dead_pid()))
    (folder / "multiinstance.lock").touch()
    (folder / "emu-launch-params.txt").write_text("-avd pixel")
    saved = folder / "snapshots" / snapshot
    saved.mkdir(parents=True)
    (saved / "ram.bin").write_bytes(b"r" * 1000)
    (saved / "hardware.ini").write_text(
        f"disk.cachePartition.path = {folder}/cache.img\nhw.gpu.mode = off\navd.name = {name}\n"
    )
    return avd
