"""vLLM's processes end with the server, however that ends: one that is killed tells them nothing.

server: `announced` around their start ──► environment ──► each of them: `end_with_server`
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator

SERVER = "DISTRL_VLLM_SERVER"
"""The variable with the server's process id, for the processes that vLLM starts."""


@contextlib.contextmanager
def announced() -> Iterator[None]:
    """Lets the processes that are started in the block know this one as their server."""
    os.environ[SERVER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[SERVER]


def end_with_server() -> None:
    """Kills this process when its server has ended. Not the server itself; nothing without one."""
    server = int(os.environ.get(SERVER, os.getpid()))
    if server == os.getpid():
        return
    try:
        descriptor = os.pidfd_open(server)
    except ProcessLookupError:
        _end()
    except OSError:  # a kernel without it
        return
    threading.Thread(target=_watch, args=(descriptor,), name="server-death", daemon=True).start()


def _watch(descriptor: int) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.poll()  # as long as the server lives
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
