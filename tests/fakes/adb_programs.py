"""adb programs that this machine has, and adb servers of our own on free ports, stopped by process id."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from waiting import until


def debian() -> str | None:
    """The adb on PATH."""
    return shutil.which("adb")


def bundled() -> str | None:
    """The adb that comes with the package adbutils."""
    spec = find_spec("adbutils")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "binaries" / "adb"
    return str(program) if os.access(program, os.X_OK) else None


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(port: int, request: str, timeout_s: float = 5.0) -> bytes:
    """What an adb server answers; b"" if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as server:
            server.sendall(f"{len(request):04x}{request}".encode())
            head = _exactly(server, 4)
            if head != b"OKAY":
                return head
            return _exactly(server, int(_exactly(server, 4) or b"0", 16))
    except OSError:
        return b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := connection.recv(size - len(data))):
        data += chunk
    return data


def environment(port: int, home: Path) -> dict[str, str]:
    """The environment in which an adb program uses our server and leaves the user's keys alone."""
    return {
        **os.environ,
        "ANDROID_ADB_SERVER_PORT": str(port),
        "ADB_LIBUSB": "0",
        "ADB_MDNS_AUTO_CONNECT": "0",
        "ADB_LOCAL_TRANSPORT_MAX_PORT": "5554",  # emulators that run on this machine are not ours
        "HOME": str(home),
        "ANDROID_SDK_HOME": str(home),
    }


@contextlib.contextmanager
def server(program: str, home: Path, port: int | None = None) -> Iterator[int]:
    """An adb server; gives its port.

    Args:
        program: The adb program.
        home: Where it keeps its keys.
        port: Where it listens; a free one when None.
    """
    port = free_port() if port is None else port
    home.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [program, "-P", str(port), "nodaemon", "server"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(port, home),
        start_new_session=True,
    )
    try:
        until(lambda: ask(port, "host:version"), "the adb server", meanwhile=lambda: _still_runs(process))
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill(port: int) -> None:
    """Ends the adb server at this port, if there is one."""
    ask(port, "host:kill")


def _still_runs(process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, f"the adb server ended with exit code {process.returncode}"


def wait_listed(port: int, serial: str, state: str = "device") -> None:
    """Waits until the server lists `serial` in `state`."""
    line = f"{serial}\t{state}"
    until(
        lambda: line in ask(port, "host:devices").decode().splitlines(),
        f"{serial} as {state}",
        details=lambda: ask(port, "host:devices").decode(),
    )
