"""Roles as real processes: addresses, starting, and what they have come to."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from distrl.core import checkpoints
from distrl.core.process import Child


def free_endpoints(count: int) -> list[str]:
    """Loopback addresses that were free a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    endpoints = [f"tcp://127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    return endpoints


def start(folder: Path, name: str, *arguments: str) -> Child:
    command = [sys.executable, "-m", "distrl", *arguments]
    return Child(name, command, folder / f"{name}.log")


def check_alive(children: list[Child]) -> None:
    for child in children:
        assert child.poll() is None, f"{child.name} ended: {child.log_file.read_text()[-2000:]}"


def step_of_latest(directory: Path) -> int:
    return checkpoints.step_of(checkpoints.pointed(directory, "latest") or "") or 0
