"""The process in which the `android_world` package runs: it seeds the global `random` and prints as it likes.

Started as `python -m distrl.workers.envs.android_world_child FD`, where FD is its end of a socket pair. It
does one request after another. When the other end is gone, or the parent is, it tears the task down, closes
the device and ends. Standard output goes where standard error goes: to the environment's log file.

    main thread   waits for a request, without a deadline, or for the end of the pipe
    watch thread  waits for the parent's end; `LAST_S` later the process ends, whatever the main thread does
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from distrl.workers.envs.android_world_pipe import Pipe, PipeClosed, PipeTimeout
from distrl.workers.envs.android_world_session import DEVICE, ENV, Refused, Session

PARENT_POLL_S = 1.0
LAST_S = 60.0
"""How long tearing down may take after the parent's end."""

ANSWER_S = 30.0
"""How long the parent may take to read an answer before it counts as gone."""


def answer(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Does one request."""
    operation = str(message.pop("op", ""))
    do: Callable[..., dict[str, Any]] | None = getattr(session, operation, None)
    try:
        if do is None or operation.startswith("_"):
            raise Refused(ENV, f"there is no operation {operation!r}")
        return {"ok": do(**message)}
    except Refused as error:
        return {"error": error.kind, "message": str(error), "detail": ""}
    except Exception as error:  # noqa: BLE001 - whatever the package raises is told to the parent
        kind = ENV if operation in ("describe", "score") else DEVICE
        message_text = f"{type(error).__name__}: {error}"
        return {"error": kind, "message": message_text[:2000], "detail": traceback.format_exc()[-4000:]}


def serve(pipe: Pipe) -> None:
    """Answers requests until the other side is gone or asks to close."""
    session = Session()
    try:
        while True:
            message = pipe.receive()
            is_last = message.get("op") == "close"
            pipe.send(answer(session, message), ANSWER_S)
            if is_last:
                return
    except (PipeClosed, PipeTimeout):
        answer(session, {"op": "close"})


def _watch(parent: int) -> None:
    """Ends this process soon after its parent, also when the package hangs."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    time.sleep(LAST_S)  # the main thread sees the end of the pipe, and tears down
    os._exit(1)


def main() -> None:
    """Runs the child."""
    os.dup2(2, 1)  # what the package prints
    pipe = Pipe(socket.socket(fileno=int(sys.argv[1])))
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    serve(pipe)


if __name__ == "__main__":
    main()
