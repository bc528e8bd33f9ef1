"""Small programs in the emulator's place: they say what they are told to say, and live or end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from waiting import until

from distrl.workers.devices.processes import cmdline


def program(path: Path, *lines: str) -> Path:
    """A shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)
    return path


def bystander(*words: str, name: str = "emulator") -> subprocess.Popen[bytes]:
    """A process that calls itself `name` and waits for its input, with `words` in its command line."""
    command = [name, "-c", "read line", name, *words]
    child = subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE)
    until(lambda: cmdline(child.pid) == command)
    return child


def dead_pid() -> int:
    """The number of a process that has ended."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
